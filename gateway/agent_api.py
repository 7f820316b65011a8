"""What hosts on other machines ask of a gateway: the payloads and the images of their own guests, what they are to the
ledger themselves, and nothing else.

Each request is signed with the host's key, for this minute and once. What is not the host's business does not exist for
it: 404. The other side is `hostagent/agent_api.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, BinaryIO, Protocol
from uuid import UUID

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from commands.event_store import EventStore, StoreUnavailable
from commands.host_keys import HostKeys
from commands.neighbours.images import ImageNotActive, ImageNotFound, Images
from commands.records import Records
from commands.snapshots import Snapshots
from commands.vault import Vault, VaultDamaged
from domain.compute_service import ComputeService
from domain.identifiers import InstanceId, VaultRef, instance_stream, service_stream
from domain.instance.state import Instance
from gateway.host_requests import HostRequests, RequestRefused
from gateway.standalone.exchange import answer

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
RETRY_AFTER_S = "2"


class Ledger(Protocol):
    """What is read of the ledger: `commands/assembly.py` has it."""

    @property
    def store(self) -> EventStore: ...
    @property
    def vault(self) -> Vault: ...
    @property
    def records(self) -> Records: ...


def agent_api(
    ledger: Ledger,
    keys: HostKeys,
    images: Images,
    clock: Callable[[], float] = time.time,
    elapsed: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The agent API, to be mounted at /agent."""
    requests = HostRequests(keys, clock, elapsed)
    snapshots = Snapshots(ledger.vault)

    def guest_of(request: Request) -> Instance:
        """The guest, if it lives or is being made on the very host that asks, as the ledger has it at this moment."""
        host = requests.host_of(request)
        with suppress(ValueError):
            stream = instance_stream(InstanceId(UUID(request.path_params["instance_id"])))
            guest: Instance | None = snapshots.load(ledger.store, stream, ledger.records).state
            residence = None if guest is None or guest.deleted else guest.residence
            if guest is not None and residence is not None and residence.service_id == host.service_id:
                return guest
        raise requests.not_theirs(host, request.url.path)

    async def payload(request: Request) -> Response:
        found = await asyncio.to_thread(_payload, request)
        return Response(found, media_type="application/octet-stream", headers={"Cache-Control": "no-store"})

    def _payload(request: Request) -> bytes:
        asked = guest_of(request).request
        ref = VaultRef(request.path_params["ref"])
        if ref not in (asked.user_data, asked.admin_password, asked.injected_files):
            raise HTTPException(404, "This guest has no such payload.")
        found = ledger.vault.payload(ref)
        if found is None:
            raise HTTPException(404, "The payload is no longer kept.")
        return found

    async def image(request: Request) -> Response:
        file = await asyncio.to_thread(_image, request)
        return StreamingResponse(_pieces(file), media_type="application/octet-stream")

    def _image(request: Request) -> BinaryIO:
        guest = guest_of(request)
        image_id = request.path_params["image_id"]
        if image_id not in _images_of(guest):
            raise HTTPException(404, "This guest has no such image.")
        try:
            return images.open(image_id)
        except (ImageNotFound, ImageNotActive) as error:
            raise HTTPException(404, str(error)) from None

    async def session(request: Request) -> Response:
        return answer({"session": await asyncio.to_thread(_session, request)})

    def _session(request: Request) -> str:
        host = requests.host_of(request)
        service: ComputeService | None = snapshots.load(
            ledger.store, service_stream(host.service_id), ledger.records
        ).state
        try:
            epoch = int(request.path_params["epoch"])
        except ValueError:
            raise HTTPException(404, "An epoch is a number.") from None
        if service is None or epoch > service.epoch:
            return "unheard"
        ours = epoch == service.epoch and service.session in ("", request.path_params["session"])
        return "current" if ours else "replaced"

    guest = "/v1/instances/{instance_id}"
    return Starlette(
        routes=[
            Route("/v1/session/{epoch}/{session}", session, methods=["GET"]),
            Route(f"{guest}/payloads/{{ref:path}}", payload, methods=["GET"]),
            Route(f"{guest}/images/{{image_id:path}}", image, methods=["GET"]),
        ],
        exception_handlers={
            RequestRefused: _refused,
            HTTPException: _not_found,
            StoreUnavailable: _store_away,
            VaultDamaged: _damaged,
            ClientDisconnect: _gone,
        },
    )


def _images_of(guest: Instance) -> set[str]:
    image = guest.request.image
    if image is None:
        return set()
    return {image.image_id, *(one.image_id for one in (image.kernel, image.ramdisk) if one is not None)}


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await run_in_threadpool(file.read, PIECE_BYTES):
            yield piece


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body: dict[str, Any] = {"error": {"code": code, "message": message}}
    return answer(body, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return _error(error.status, error.reason, str(error), error.headers)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, "not_found" if error.status_code == 404 else "bad_request", error.detail)


async def _store_away(request: Request, error: Exception) -> Response:
    return _error(503, "store_unavailable", "The ledger's store does not answer.", {"Retry-After": RETRY_AFTER_S})


async def _damaged(request: Request, error: Exception) -> Response:
    log.error("%s: %s", request.url.path, error)
    return _error(500, "payload_damaged", "The payload does not open.")


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it
