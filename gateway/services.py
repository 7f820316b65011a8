"""Compute services and availability zones."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.compute_service import DisableService, EnableService
from domain.errors import ServiceNotFound
from domain.identifiers import ServiceId
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import is_uuid

BINARY = "nova-compute"  # what clients know a host's agent as
_COLUMNS = "service_id, number, host, zone, up, enabled, disabled_reason, forced_down, updated_at"


class Services:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-services"): self.index,
            ("PUT", "/os-services/{service_id}"): self.update,
            ("GET", "/os-availability-zone"): self.zones,
            ("GET", "/os-availability-zone/detail"): self.zones_in_detail,
        }

    async def index(self, request: Request) -> Response:
        conditions, parameters = ["1"], []
        if (host := request.query.get("host")) is not None:
            conditions.append("host = ?")
            parameters.append(host)
        if request.query.get("binary") not in (None, BINARY):
            conditions.append("0")
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM services WHERE {' AND '.join(conditions)} ORDER BY number", parameters
        )
        return Response({"services": [_service(row, request) for row in rows]})

    async def update(self, request: Request) -> Response:
        """Enable or disable (Nova API 2.53)."""
        name, body = request.path_params["service_id"], request.body
        if not is_uuid(name):
            raise Fault(400, f"Invalid uuid {name[:100]}")
        service_id = ServiceId(uuid.UUID(name))
        if body.get("forced_down") is not None:
            raise Fault(501, "Forcing a service down is not built yet.")
        if body.get("status") == "enabled":
            if body.get("disabled_reason"):
                raise Fault(400, "Specifying disabled_reason when status is enabled is invalid.")
            await self._backend.ask(request, EnableService(service_id=service_id))
        elif body.get("status") == "disabled":
            command = DisableService(service_id=service_id, reason=body.get("disabled_reason"))
            await self._backend.ask(request, command)
        else:
            raise Fault(400, "No updates were requested. Fields 'status' or 'forced_down' should be specified.")
        row = await self._backend.views.row(f"SELECT {_COLUMNS} FROM services WHERE service_id = ?", (name,))
        if row is None:
            raise ServiceNotFound(name)
        return Response({"service": _service(row, request)})

    async def zones(self, request: Request) -> Response:
        rows = await self._backend.views.rows(
            "SELECT zone, MAX(enabled AND NOT forced_down) FROM services GROUP BY zone ORDER BY zone"
        )
        zones = [{"zoneName": z, "zoneState": {"available": bool(up)}, "hosts": None} for z, up in rows]
        return Response({"availabilityZoneInfo": zones})

    async def zones_in_detail(self, request: Request) -> Response:
        rows = await self._backend.views.rows(f"SELECT {_COLUMNS} FROM services ORDER BY zone, host")
        zones: dict[str, dict[str, Any]] = {}
        for row in rows:
            zone = zones.setdefault(row[3], {"zoneName": row[3], "zoneState": {"available": False}, "hosts": {}})
            zone["zoneState"]["available"] |= bool(row[5])
            zone["hosts"][row[2]] = {
                BINARY: {"available": bool(row[4]) and not row[7], "active": bool(row[5]), "updated_at": row[8]}
            }
        return Response({"availabilityZoneInfo": list(zones.values())})


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
    }
    if request.version >= V(2, 11):
        service["forced_down"] = bool(row[7])
    return service
