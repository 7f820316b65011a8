"""What has to be asked of a server's host: where it is, and what is said while that does not answer."""

from __future__ import annotations

import uuid

from domain.errors import InstanceNotReady
from domain.identifiers import ServiceId
from gateway.backend import Backend, QueryUnanswered
from gateway.faults import Fault
from gateway.request import Request
from gateway.servers import find_server

RETRY_AFTER_S = 5


async def host_of(backend: Backend, request: Request) -> tuple[str, ServiceId]:
    """A server's id, and who looks after it.

    Raises:
        InstanceNotFound: HTTP answers 404.
        InstanceNotReady: it is on no host yet; HTTP answers 409.
    """
    server_id, service_id = await find_server(backend, request, "id, service_id")
    if service_id is None:
        raise InstanceNotReady(server_id)
    return server_id, ServiceId(uuid.UUID(service_id))


def unanswered_by_host(unanswered: QueryUnanswered) -> Fault:
    return Fault(503, str(unanswered), retry_after_s=RETRY_AFTER_S)
