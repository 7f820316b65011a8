"""Hypervisors: what each host has, and how much of it is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import truth

_COLUMNS = (
    "h.node_id, h.number, h.name, h.type, h.version, h.host_ip, h.cpu_info, h.vcpus, h.memory_mib, h.disk_gib, "
    "h.vcpus_used, h.memory_mib_used, h.disk_gib_used, h.reserved_memory_mib, h.running, "
    "s.service_id, s.number, s.host, s.up AND NOT s.forced_down, s.enabled, s.disabled_reason"
)
_FROM = "FROM hypervisors h JOIN services s USING (service_id)"


class Hypervisors:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-hypervisors"): self.index,
            ("GET", "/os-hypervisors/detail"): self.detail,
            ("GET", "/os-hypervisors/{hypervisor_id}"): self.show,
            ("GET", "/os-aggregates"): self.aggregates,
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "os-hypervisors", _brief)

    async def detail(self, request: Request) -> Response:
        return await self._page(request, "os-hypervisors/detail", _whole)

    async def show(self, request: Request) -> Response:
        name = request.path_params["hypervisor_id"]
        column = "h.node_id" if request.version >= V(2, 53) else "h.number"
        row = await self._backend.views.row(f"SELECT {_COLUMNS} {_FROM} WHERE {column} = ?", (name,))
        if row is None:
            raise Fault(404, f"Compute host {name} could not be found.")
        shown = _whole(row, request)
        if request.version >= V(2, 53) and truth(request.query.get("with_servers")):
            await self._add_servers([shown], [row])
        return Response({"hypervisor": shown})

    async def aggregates(self, request: Request) -> Response:
        """Host aggregates cannot be made yet, so there are none."""
        return Response({"aggregates": []})

    async def _page(self, request: Request, path: str, view: Any) -> Response:
        conditions: list[str] = ["1"]
        parameters: list[object] = []
        pattern = request.query.get("hypervisor_hostname_pattern") if request.version >= V(2, 53) else None
        if pattern is not None:
            conditions.append("instr(h.name, ?) > 0")
            parameters.append(pattern)
        limit = self._max_limit
        if request.version >= V(2, 33):
            asked = request.query.get("limit")
            if asked and asked.isdigit() and int(asked[:9]):
                limit = min(int(asked[:9]), limit)
            if (marker := request.query.get("marker")) is not None:
                column = "node_id" if request.version >= V(2, 53) else "number"
                at = await self._backend.views.row(f"SELECT number FROM hypervisors WHERE {column} = ?", (marker,))
                if at is None:
                    raise Fault(400, f"marker [{marker}] not found")
                conditions.append("h.number > ?")
                parameters.append(at[0])
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} {_FROM} WHERE {' AND '.join(conditions)} ORDER BY h.number LIMIT ?",
            (*parameters, limit),
        )
        if pattern is not None and not rows:
            raise Fault(404, f"No hypervisor matching '{pattern[:100]}' could be found.")
        shown = [view(row, request) for row in rows]
        if request.version >= V(2, 53) and truth(request.query.get("with_servers")):
            await self._add_servers(shown, rows)
        body: dict[str, Any] = {"hypervisors": shown}
        if rows and len(rows) == limit and request.version >= V(2, 33) and request.query.get("limit"):
            href = f"{request.base_url}/{path}?{request.query.with_changed(marker=str(shown[-1]['id']))}"
            body["hypervisors_links"] = [{"rel": "next", "href": href}]
        return Response(body)

    async def _add_servers(self, shown: list[dict[str, Any]], rows: list[Any]) -> None:
        for hypervisor, row in zip(shown, rows, strict=True):
            servers = await self._backend.views.rows(
                "SELECT id FROM servers WHERE host = ? AND NOT deleted ORDER BY sequence", (row[17],)
            )
            hypervisor["servers"] = [{"uuid": s[0], "name": f"instance-{s[0]}"} for s in servers]


def _brief(row: Any, request: Request) -> dict[str, Any]:
    return {
        "id": row[0] if request.version >= V(2, 53) else row[1],
        "hypervisor_hostname": row[2],
        "state": "up" if row[18] else "down",
        "status": "enabled" if row[19] else "disabled",
    }


def _whole(row: Any, request: Request) -> dict[str, Any]:
    version = request.version
    shown = _brief(row, request) | {
        "hypervisor_type": row[3],
        "hypervisor_version": row[4],
        "host_ip": row[5],
        "service": {
            "id": row[15] if version >= V(2, 53) else row[16],
            "host": row[17],
            "disabled_reason": row[20],
        },
    }
    if version >= V(2, 88):
        return shown | {"uptime": None, "servers": []}
    shown |= {
        "vcpus": row[7],
        "memory_mb": row[8],
        "local_gb": row[9],
        "vcpus_used": row[10],
        "memory_mb_used": row[11] + row[13],
        "local_gb_used": row[12],
        "free_ram_mb": row[8] - row[13] - row[11],
        "free_disk_gb": row[9] - row[12],
        "disk_available_least": row[9] - row[12],
        "running_vms": row[14],
        "current_workload": 0,
        "cpu_info": orjson.loads(row[6] or "{}") if version >= V(2, 28) else row[6],
    }
    return shown | {"servers": []} if version >= V(2, 75) else shown
