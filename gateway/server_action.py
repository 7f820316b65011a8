"""POST /servers/{id}/action: one action body → one command."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from commands.instance.power import RebootInstance, StartInstance, StopInstance
from domain.errors import InstanceNotReady
from domain.identifiers import ServiceId
from gateway.backend import Backend, QueryFailed, QueryUnanswered
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.servers import find_server, server_in_scope

ACTION = "/servers/{server_id}/action"


class ServerActions:
    def __init__(self, backend: Backend, shutdown_timeout_s: int) -> None:
        self._backend = backend
        self._grace_s = shutdown_timeout_s

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("POST", ACTION, "os-start"): self.start,
            ("POST", ACTION, "os-stop"): self.stop,
            ("POST", ACTION, "reboot"): self.reboot,
            ("POST", ACTION, "os-getConsoleOutput"): self.console_output,
        }

    async def start(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        await self._backend.ask(request, StartInstance(instance_id=instance_id, project_id=project_id))
        return Response(status=202)

    async def stop(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        command = StopInstance(instance_id=instance_id, project_id=project_id, grace_s=self._grace_s)
        await self._backend.ask(request, command)
        return Response(status=202)

    async def reboot(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        hard = request.body["reboot"]["type"].upper() == "HARD"
        command = RebootInstance(instance_id=instance_id, project_id=project_id, hard=hard, grace_s=self._grace_s)
        await self._backend.ask(request, command)
        return Response(status=202)

    async def console_output(self, request: Request) -> Response:
        """The last lines of the serial console. A length of −1 or null is all that the host keeps (100 KiB)."""
        row = await find_server(self._backend, request, "id, service_id, launched_at")
        if row[1] is None:
            raise InstanceNotReady(row[0])
        try:
            console = await self._backend.console(ServiceId(uuid.UUID(row[1])), row[0])
        except QueryFailed as failed:
            raise Fault(404, f"Guest does not have a console available: {failed}") from None
        except QueryUnanswered as unanswered:
            raise Fault(503, str(unanswered), retry_after_s=5) from None
        text = console.decode("utf-8", "replace")
        length = request.body["os-getConsoleOutput"].get("length")
        if length is not None and int(length) >= 0:
            lines = text.split("\n")
            text = "\n".join(lines[-int(length) :] if int(length) else [])
        # XML 1.0 has no way to say some control characters, and old clients parse this as XML: Nova drops them too.
        return Response({"output": "".join(c for c in text if c >= " " or c in "\t\n\r")})
