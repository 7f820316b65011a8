"""Compute services: listed, enabled, disabled, forced down and deleted; by id from 2.53 on, before by host and binary."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.compute_service import DeleteService, DisableService, EnableService, ForceServiceDown
from domain.errors import ServiceNotFound
from domain.identifiers import ServiceId
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import Steps, V, without
from gateway.numbers import whole_id
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import is_uuid, truth

BINARY = "nova-compute"  # what clients know a host's agent as
NOTHING_ASKED = "No updates were requested. Fields 'status' or 'forced_down' should be specified."
_COLUMNS = "service_id, number, host, zone, up, enabled, disabled_reason, forced_down, updated_at"

VIEW = Steps((V(2, 11), without("forced_down")))


class Services:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-services"): self.index,
            ("PUT", "/os-services/{service_id}"): self.update,
            ("PUT", "/os-services/enable"): self.enable,
            ("PUT", "/os-services/disable"): self.disable,
            ("PUT", "/os-services/disable-log-reason"): self.disable,
            ("PUT", "/os-services/force-down"): self.force_down,
            ("DELETE", "/os-services/{service_id}"): self.delete,
        }

    async def index(self, request: Request) -> Response:
        conditions, parameters = ["1"], []
        if host := request.query.get("host"):
            conditions.append("host = ?")
            parameters.append(host)
        if request.query.get("binary") not in (None, "", BINARY):
            conditions.append("0")
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM services WHERE {' AND '.join(conditions)} ORDER BY number", parameters
        )
        return Response({"services": [_service(row, request) for row in rows]})

    async def update(self, request: Request) -> Response:
        """Enable or disable, force down or up again, or both (Nova API 2.53)."""
        name, body = request.path_params["service_id"], request.body
        service_id = _id(name)
        await self._row("service_id = ?", str(service_id), ServiceNotFound(name))
        status, reason = body.get("status"), body.get("disabled_reason")
        if status == "enabled" and reason:
            raise Fault(400, "Specifying 'disabled_reason' with status 'enabled' is invalid.")
        if status is None and "forced_down" not in body:
            raise Fault(400, NOTHING_ASKED)
        if status == "enabled":
            await self._backend.ask(request, EnableService(service_id=service_id))
        elif status == "disabled":
            await self._backend.ask(request, DisableService(service_id=service_id, reason=reason))
        if "forced_down" in body:
            await self._force_down(request, service_id)
        row = await self._row("service_id = ?", str(service_id), ServiceNotFound(name))
        return Response({"service": _service(row, request)})

    async def enable(self, request: Request) -> Response:
        await self._backend.ask(request, EnableService(service_id=await self._named(request)))
        return _answer(request, status="enabled")

    async def disable(self, request: Request) -> Response:
        reason = request.body.get("disabled_reason")
        await self._backend.ask(request, DisableService(service_id=await self._named(request), reason=reason))
        why = {} if reason is None else {"disabled_reason": reason}
        return _answer(request, status="disabled", **why)

    async def force_down(self, request: Request) -> Response:
        forced_down = await self._force_down(request, await self._named(request))
        return _answer(request, forced_down=forced_down)

    async def delete(self, request: Request) -> Response:
        name = request.path_params["service_id"]
        missing = Fault(404, f"Service {name} not found.")
        if request.version >= V(2, 53):
            row = await self._row("service_id = ?", str(_id(name)), missing)
        else:
            row = await self._row("number = ?", whole_id(name, "id"), missing)
        await self._backend.ask(request, DeleteService(service_id=ServiceId(uuid.UUID(row[0]))))
        return Response(status=204)

    async def _force_down(self, request: Request, service_id: ServiceId) -> bool:
        forced_down = truth(str(request.body["forced_down"]))
        await self._backend.ask(request, ForceServiceDown(service_id=service_id, forced_down=forced_down))
        return forced_down

    async def _named(self, request: Request) -> ServiceId:
        """The service that the body names by host and binary.

        Raises:
            Fault: 400, it is not a host's agent; 404, there is no such host.
        """
        host, binary = request.body["host"], request.body["binary"]
        if binary != BINARY:
            shown = f"Updating a {binary} service is not supported."
            raise Fault(400, f"{shown} Only nova-compute services can be updated.")
        row = await self._row("host = ?", host, Fault(404, f"Could not find binary {binary} on host {host}."))
        return ServiceId(uuid.UUID(row[0]))

    async def _row(self, condition: str, value: object, missing: Exception) -> Any:
        row = await self._backend.views.row(f"SELECT {_COLUMNS} FROM services WHERE {condition}", (value,))
        if row is None:
            raise missing
        return row


def _id(name: str) -> ServiceId:
    if not is_uuid(name):
        raise Fault(400, f"Invalid uuid {name[:100]}")
    return ServiceId(uuid.UUID(name))


def _answer(request: Request, **fields: Any) -> Response:
    return Response({"service": {"host": request.body["host"], "binary": request.body["binary"], **fields}})


def _service(row: Any, request: Request) -> dict[str, Any]:
    service = {
        "id": row[0] if request.version >= V(2, 53) else row[1],
        "binary": BINARY,
        "host": row[2],
        "zone": row[3],
        "status": "enabled" if row[5] else "disabled",
        "state": "up" if row[4] and not row[7] else "down",
        "updated_at": row[8],
        "disabled_reason": row[6],
        "forced_down": bool(row[7]),
    }
    return VIEW.lower(service, request.version)
