"""Hypervisors: what each host has, and how much of it is claimed. From 2.53 their ids are UUIDs, from 2.88 what they have is
Placement's to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import Steps, V, without
from gateway.numbers import page_limit
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import is_uuid, truth

_COLUMNS = (
    "h.node_id, h.number, h.name, h.type, h.version, h.host_ip, h.cpu_info, h.vcpus, h.memory_mib, h.disk_gib, "
    "h.vcpus_used, h.memory_mib_used, h.disk_gib_used, h.reserved_memory_mib, h.running, "
    "s.service_id, s.number, s.host, s.up AND NOT s.forced_down, s.enabled, s.disabled_reason, h.booted_at_s"
)
_FROM = "FROM hypervisors h JOIN services s USING (service_id)"
UP, BOOTED = 18, 21  # of these columns

STATISTICS = {
    "count": "COUNT(*)",
    "vcpus": "SUM(vcpus)",
    "memory_mb": "SUM(memory_mib)",
    "local_gb": "SUM(disk_gib)",
    "vcpus_used": "SUM(vcpus_used)",
    "memory_mb_used": "SUM(memory_mib_used + reserved_memory_mib)",
    "local_gb_used": "SUM(disk_gib_used)",
    "free_ram_mb": "SUM(memory_mib - reserved_memory_mib - memory_mib_used)",
    "free_disk_gb": "SUM(disk_gib - disk_gib_used)",
    "disk_available_least": "SUM(disk_gib - disk_gib_used)",
    "running_vms": "SUM(running)",
    "current_workload": "0",
}


class Hypervisors:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-hypervisors"): self.index,
            ("GET", "/os-hypervisors/detail"): self.detail,
            ("GET", "/os-hypervisors/statistics"): self.statistics,
            ("GET", "/os-hypervisors/{hypervisor_id}"): self.show,
            ("GET", "/os-hypervisors/{hypervisor_id}/uptime"): self.uptime,
            ("GET", "/os-hypervisors/{hostname_pattern}/search"): self.search,
            ("GET", "/os-hypervisors/{hostname_pattern}/servers"): self.servers,
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "os-hypervisors", _brief)

    async def detail(self, request: Request) -> Response:
        return await self._page(request, "os-hypervisors/detail", _whole)

    async def show(self, request: Request) -> Response:
        row = await self._named(request)
        shown = [_whole(row, request)]
        if _with_servers(request):
            await self._add_servers(request, shown, [row])
        return Response({"hypervisor": shown[0]})

    async def uptime(self, request: Request) -> Response:
        row = await self._named(request)
        if not row[UP]:
            raise Fault(400, f"Compute service of {row[17]} is unavailable at this time.")
        if row[BOOTED] is None:
            raise Fault(501, "The requested functionality is not supported.")
        return Response({"hypervisor": _brief(row, request) | {"uptime": uptime(row[BOOTED], datetime.now(UTC))}})

    async def search(self, request: Request) -> Response:
        rows = await self._matching(request.path_params["hostname_pattern"])
        return Response({"hypervisors": [_brief(row, request) for row in rows]})

    async def servers(self, request: Request) -> Response:
        rows = await self._matching(request.path_params["hostname_pattern"])
        shown = [_brief(row, request) for row in rows]
        await self._add_servers(request, shown, rows)
        return Response({"hypervisors": shown})

    async def statistics(self, request: Request) -> Response:
        """Sums over all enabled hosts."""
        sums = ", ".join(f"COALESCE({expression}, 0)" for expression in STATISTICS.values())
        row = await self._backend.views.row(f"SELECT {sums} {_FROM} WHERE s.enabled")
        return Response({"hypervisor_statistics": dict(zip(STATISTICS, row, strict=True))})

    async def _page(self, request: Request, path: str, view: Any) -> Response:
        query, version = request.query, request.version
        pattern = query.get("hypervisor_hostname_pattern") if version >= V(2, 53) else None
        if pattern is not None:
            if "limit" in query or "marker" in query:
                raise Fault(
                    400,
                    "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported.",
                )
            rows, limit = await self._matching(pattern), None
        elif version >= V(2, 33):
            limit = page_limit(query, self._max_limit)
            rows = await self._after(query.get("marker"), limit, "node_id" if version >= V(2, 53) else "number")
        else:
            rows, limit = await self._after(None, -1, "number"), None
        shown = [view(row, request) for row in rows]
        if _with_servers(request):
            await self._add_servers(request, shown, rows)
        body: dict[str, Any] = {"hypervisors": shown}
        if rows and len(rows) == limit:
            href = f"{request.base_url}/{path}?{query.with_changed(marker=str(shown[-1]['id']))}"
            body["hypervisors_links"] = [{"rel": "next", "href": href}]
        return Response(body)

    async def _after(self, marker: str | None, limit: int, column: str) -> Sequence[Any]:
        after = -1
        if marker is not None:
            at = await self._backend.views.row(f"SELECT number FROM hypervisors WHERE {column} = ?", (marker,))
            if at is None:
                raise Fault(400, f"marker [{marker}] not found")
            after = at[0]
        return await self._backend.views.rows(
            f"SELECT {_COLUMNS} {_FROM} WHERE h.number > ? ORDER BY h.number LIMIT ?", (after, limit)
        )

    async def _matching(self, pattern: str) -> Sequence[Any]:
        """Those whose name has the pattern in it.

        Raises:
            Fault: 404, there is none.
        """
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} {_FROM} WHERE instr(h.name, ?) > 0 ORDER BY h.number", (pattern,)
        )
        if not rows:
            raise Fault(404, f"No hypervisor matching '{pattern[:100]}' could be found.")
        return rows

    async def _named(self, request: Request) -> Any:
        """The one that the path names.

        Raises:
            Fault: 400, from 2.53 its id is no UUID; 404, there is none.
        """
        name, by_uuid = request.path_params["hypervisor_id"], request.version >= V(2, 53)
        if by_uuid and not is_uuid(name):
            raise Fault(400, f"Invalid uuid {name[:100]}")
        column = "h.node_id" if by_uuid else "h.number"
        row = await self._backend.views.row(f"SELECT {_COLUMNS} {_FROM} WHERE {column} = ?", (name,))
        if row is None:
            raise Fault(404, f"Hypervisor with ID '{name[:100]}' could not be found.")
        return row

    async def _add_servers(self, request: Request, shown: list[dict[str, Any]], rows: Sequence[Any]) -> None:
        for hypervisor, row in zip(shown, rows, strict=True):
            servers = await self._backend.views.rows(
                "SELECT id FROM servers WHERE host = ? AND NOT deleted ORDER BY sequence", (row[17],)
            )
            if servers or request.version >= V(2, 75):
                hypervisor["servers"] = [{"uuid": s[0], "name": f"instance-{s[0]}"} for s in servers]


def uptime(booted_at_s: int, now: datetime) -> str:
    """As the uptime command begins."""
    minutes = max(0, int(now.timestamp()) - booted_at_s) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    since = f"{days} day{'' if days == 1 else 's'}, " if days else ""
    return f" {now:%H:%M:%S} up {since}{hours:2d}:{minutes % 60:02d}"


def _with_servers(request: Request) -> bool:
    return request.version >= V(2, 53) and truth(request.query.get("with_servers"))


def _brief(row: Any, request: Request) -> dict[str, Any]:
    return {
        "id": row[0] if request.version >= V(2, 53) else row[1],
        "hypervisor_hostname": row[2],
        "state": "up" if row[UP] else "down",
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
        "uptime": uptime(row[BOOTED], datetime.now(UTC)) if row[UP] and row[BOOTED] is not None else None,
    }
    if version < V(2, 88):
        shown |= _capacity(row)
    return VIEW.lower(shown, version)


def _capacity(row: Any) -> dict[str, Any]:
    return {
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
        "cpu_info": orjson.loads(row[6] or "{}"),
    }


def _cpu_info_as_text(shown: dict[str, Any]) -> None:
    shown["cpu_info"] = orjson.dumps(shown["cpu_info"]).decode()


VIEW = Steps((V(2, 28), _cpu_info_as_text), (V(2, 88), without("uptime")))
