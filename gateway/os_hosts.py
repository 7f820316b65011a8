"""Hosts, as clients below 2.43 know them: list, what is used by whom, enabled or not. Power is not ours to switch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.compute_service import DisableService, EnableService
from domain.errors import ComputeHostNotFound
from domain.identifiers import ServiceId
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response

UNSUPPORTED = "The requested functionality is not supported."


class OsHosts:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        one = "/os-hosts/{host_name}"
        return {
            ("GET", "/os-hosts"): self.index,
            ("GET", one): self.show,
            ("PUT", one): self.update,
            ("GET", f"{one}/reboot"): self.power,
            ("GET", f"{one}/shutdown"): self.power,
            ("GET", f"{one}/startup"): self.power,
        }

    async def index(self, request: Request) -> Response:
        zone = request.query.get("zone") or ""
        rows = await self._backend.views.rows(
            "SELECT host, zone FROM services WHERE enabled AND ?1 IN ('', zone) ORDER BY number", (zone,)
        )
        return Response({"hosts": [{"host_name": host, "service": "compute", "zone": z} for host, z in rows]})

    async def show(self, request: Request) -> Response:
        """In all, used now, used at most, and used by each project."""
        host = request.path_params["host_name"]
        row = await self._backend.views.row(
            "SELECT vcpus, memory_mib, disk_gib, vcpus_used, memory_mib_used + reserved_memory_mib, disk_gib_used "
            "FROM hypervisors JOIN services s USING (service_id) WHERE s.host = ?",
            (host,),
        )
        if row is None:
            raise ComputeHostNotFound(host)
        by_project = await self._backend.views.rows(
            "SELECT u.project_id, SUM(u.vcpus), SUM(u.memory_mib), SUM(u.disk_gib) FROM usage u "
            "JOIN servers s ON s.id = u.instance_id WHERE s.host = ? AND NOT s.deleted GROUP BY 1 ORDER BY 1",
            (host,),
        )
        most = tuple(sum(used) for used in zip(*(row[1:] for row in by_project), strict=True)) or (0, 0, 0)
        shown = [("(total)", *row[:3]), ("(used_now)", *row[3:]), ("(used_max)", *most), *by_project]
        return Response({"host": [{"resource": _resource(host, *one)} for one in shown]})

    async def update(self, request: Request) -> Response:
        """Raises:
        ComputeHostNotFound: HTTP answers 404.
        Fault: 501, maintenance mode.
        """
        service_id, body = await self._service(request), request.body
        if "maintenance_mode" in body:
            raise Fault(501, UNSUPPORTED)
        enabled = body["status"].lower() == "enable"
        command = EnableService(service_id=service_id) if enabled else DisableService(service_id=service_id)
        await self._backend.ask(request, command)
        status = "enabled" if enabled else "disabled"
        return Response({"host": request.path_params["host_name"], "status": status})

    async def power(self, request: Request) -> Response:
        await self._service(request)
        raise Fault(501, UNSUPPORTED)

    async def _service(self, request: Request) -> ServiceId:
        host = request.path_params["host_name"]
        row = await self._backend.views.row("SELECT service_id FROM services WHERE host = ?", (host,))
        if row is None:
            raise ComputeHostNotFound(host)
        return ServiceId(uuid.UUID(row[0]))


def _resource(host: str, project: str, cpu: int, memory_mb: int, disk_gb: int) -> dict[str, Any]:
    return {"host": host, "project": project, "cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb}
