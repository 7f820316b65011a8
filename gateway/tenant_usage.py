"""Use by project: how long its servers ran in a period, times what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from commands.assembly import utc_now
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V
from gateway.numbers import page_limit
from gateway.request import Handler, HandlerKey, Request, Response

FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
PATH = "os-simple-tenant-usage"
_COLUMNS = (
    "u.instance_id, u.project_id, u.flavor, u.vcpus, u.memory_mib, u.disk_gib, u.launched_at, u.terminated_at, s.name, "
    "s.vm_state"
)


class TenantUsage:
    def __init__(self, backend: Backend, max_limit: int, clock: Callable[[], datetime] = utc_now) -> None:
        self._backend = backend
        self._max_limit = max_limit
        self._clock = clock

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("GET", f"/{PATH}"): self.index, ("GET", f"/{PATH}/{{project_id}}"): self.show}

    async def index(self, request: Request) -> Response:
        """Of all projects; with their servers if `detailed` is 1."""
        now = self._clock()
        start, end = _period(request, now)
        servers, more = await self._servers(request, start, end, None)
        detailed = request.query.get("detailed") == "1"
        body: dict[str, Any] = {"tenant_usages": _usages(servers, start, end, now, detailed=detailed)}
        return Response(body | ({"tenant_usages_links": _next(request, PATH, servers)} if more else {}))

    async def show(self, request: Request) -> Response:
        """Of one project, with its servers; empty where none ran."""
        now, project_id = self._clock(), request.path_params["project_id"]
        start, end = _period(request, now)
        servers, more = await self._servers(request, start, end, project_id)
        usages = _usages(servers, start, end, now, detailed=True)
        body: dict[str, Any] = {"tenant_usage": usages[0] if usages else {}}
        links = {"tenant_usage_links": _next(request, f"{PATH}/{project_id}", servers)} if more else {}
        return Response(body | links)

    async def _servers(
        self, request: Request, start: datetime, end: datetime, project_id: str | None
    ) -> tuple[Sequence[Any], bool]:
        """Those that ran in the period, a page of them from 2.40 on; and whether the page is full."""
        conditions = ["(u.terminated_at IS NULL OR u.terminated_at > ?)", "u.launched_at < ?"]
        parameters: list[object] = [_shown(start), _shown(end)]
        if project_id is not None:
            conditions.append("u.project_id = ?")
            parameters.append(project_id)
        limit, paged = self._max_limit, request.version >= V(2, 40)
        if paged:
            limit = page_limit(request.query, limit)
            if (marker := request.query.get("marker")) is not None:
                at = await self._backend.views.row(
                    "SELECT project_id, instance_id FROM usage WHERE instance_id = ?", (marker,)
                )
                if at is None:
                    raise Fault(400, f"Marker {marker} could not be found.")
                conditions.append("(u.project_id, u.instance_id) > (?, ?)")
                parameters.extend(at)
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM usage u JOIN servers s ON s.id = u.instance_id WHERE {' AND '.join(conditions)} "
            "ORDER BY u.project_id, u.instance_id LIMIT ?",
            (*parameters, limit),
        )
        return rows, paged and bool(rows) and len(rows) == limit


def _period(request: Request, now: datetime) -> tuple[datetime, datetime]:
    """Raises:
    Fault: 400
    """
    asked_start, asked_end = request.query.get("start"), request.query.get("end")
    start, end = _time(asked_start, now), _time(asked_end, now + timedelta(microseconds=1))
    if not start < end:
        raise Fault(400, "Invalid start time. The start time cannot occur after the end time.")
    return start, min(end, now)


def _time(text: str | None, default: datetime) -> datetime:
    if not text:
        return default
    for form in FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise Fault(400, "Invalid datetime string: Datetime is in invalid format")


def _usages(
    rows: Sequence[Any], start: datetime, end: datetime, now: datetime, *, detailed: bool
) -> list[dict[str, Any]]:
    usages: dict[str, dict[str, Any]] = {}
    for row in rows:
        server = _server(row, start, end, now)
        usage = usages.get(row[1])
        if usage is None:
            usage = usages[row[1]] = {
                "tenant_id": row[1],
                "total_local_gb_usage": 0.0,
                "total_vcpus_usage": 0.0,
                "total_memory_mb_usage": 0.0,
                "total_hours": 0.0,
                "start": _shown(start),
                "stop": _shown(end),
            } | ({"server_usages": []} if detailed else {})
        hours = server["hours"]
        usage["total_local_gb_usage"] += server["local_gb"] * hours
        usage["total_vcpus_usage"] += server["vcpus"] * hours
        usage["total_memory_mb_usage"] += server["memory_mb"] * hours
        usage["total_hours"] += hours
        if detailed:
            usage["server_usages"].append(server)
    return list(usages.values())


def _server(row: Any, start: datetime, end: datetime, now: datetime) -> dict[str, Any]:
    launched = _read(row[6])
    terminated = None if row[7] is None else _read(row[7])
    ran = min(end, terminated or end) - max(start, launched)
    return {
        "instance_id": row[0],
        "name": row[8],
        "tenant_id": row[1],
        "flavor": row[2],
        "vcpus": row[3],
        "memory_mb": row[4],
        "local_gb": row[5],
        "hours": max(0.0, ran.total_seconds() / 3600),
        "started_at": row[6],
        "ended_at": row[7],
        "state": "terminated" if terminated else row[9],
        "uptime": max(0, int(((terminated or now) - launched).total_seconds())),
    }


def _next(request: Request, path: str, servers: Sequence[Any]) -> list[dict[str, str]]:
    href = f"{request.base_url}/{path}?{request.query.with_changed(marker=servers[-1][0])}"
    return [{"rel": "next", "href": href}]


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")[:26]


def _read(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
