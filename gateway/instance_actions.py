"""The action log of a server: who asked what, when, and with which result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import instant
from gateway.servers import find_server

EVENT_DETAILS = "os_compute_api:os-instance-actions:events:details"
EVENTS = "os_compute_api:os-instance-actions:events"
_COLUMNS = "sequence, request_id, action, user_id, project_id, start_time, updated_at, message"


class InstanceActions:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/servers/{server_id}/os-instance-actions"): self.index,
            ("GET", "/servers/{server_id}/os-instance-actions/{request_id}"): self.show,
        }

    async def index(self, request: Request) -> Response:
        server_id = await self._server(request)
        conditions: list[str] = ["instance_id = ?"]
        parameters: list[object] = [server_id]
        limit = self._max_limit
        if request.version >= V(2, 58):
            limit = await self._page(request, server_id, conditions, parameters)
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM instance_actions WHERE {' AND '.join(conditions)} ORDER BY sequence DESC LIMIT ?",
            (*parameters, limit),
        )
        body: dict[str, Any] = {"instanceActions": [_action(row, server_id, request) for row in rows]}
        if request.version >= V(2, 58) and rows and len(rows) == limit and request.query.get("limit"):
            path = f"servers/{server_id}/os-instance-actions"
            href = f"{request.base_url}/{path}?{request.query.with_changed(marker=rows[-1][1])}"
            body["links"] = [{"rel": "next", "href": href}]
        return Response(body)

    async def show(self, request: Request) -> Response:
        server_id, wanted = await self._server(request), request.path_params["request_id"]
        row = await self._backend.views.row(
            f"SELECT {_COLUMNS} FROM instance_actions WHERE instance_id = ? AND request_id = ? ORDER BY sequence",
            (server_id, wanted),
        )
        if row is None:
            raise Fault(404, f"Action for request_id {wanted} on instance {server_id} not found")
        action = _action(row, server_id, request)
        detailed = request.allows(EVENTS)
        if detailed or request.version >= V(2, 51):
            events = await self._backend.views.rows(
                "SELECT name, start_time, finish_time, result, host, details FROM instance_action_events "
                "WHERE instance_id = ? AND action = ? ORDER BY sequence",
                (server_id, row[0]),
            )
            action["events"] = [self._event(event, request, detailed=detailed) for event in events]
        return Response({"instanceAction": action})

    async def _server(self, request: Request) -> str:
        """The server, also after its delete from 2.21 on."""
        row = await find_server(self._backend, request, "id", deleted=request.version >= V(2, 21))
        return str(row[0])

    async def _page(self, request: Request, server_id: str, conditions: list[str], parameters: list[object]) -> int:
        query = request.query
        for name, comparison, since in (("changes-since", ">=", V(2, 58)), ("changes-before", "<=", V(2, 66))):
            if (text := query.get(name)) is not None and request.version >= since:
                conditions.append(f"updated_at {comparison} ?")
                parameters.append(instant(name, text))
        if (marker := query.get("marker")) is not None:
            at = await self._backend.views.row(
                "SELECT sequence FROM instance_actions WHERE instance_id = ? AND request_id = ?", (server_id, marker)
            )
            if at is None:
                raise Fault(400, f"Marker {marker} could not be found.")
            conditions.append("sequence < ?")
            parameters.append(at[0])
        asked = query.get("limit")
        return min(int(asked[:9]), self._max_limit) if asked and asked.isdigit() and int(asked[:9]) else self._max_limit

    def _event(self, row: Any, request: Request, *, detailed: bool) -> dict[str, Any]:
        version = request.version
        event = {"event": row[0], "start_time": row[1], "finish_time": row[2], "result": row[3]}
        if detailed:
            event["traceback"] = None
        if version >= V(2, 62):
            event["hostId"] = (
                "" if row[4] is None else hashlib.sha224(f"{request.project_id}{row[4]}".encode()).hexdigest()
            )
            if detailed:
                event["host"] = row[4] or ""  # of work that no host did
        if version >= V(2, 84):
            event["details"] = row[5]
        return event


def _action(row: Any, server_id: str, request: Request) -> dict[str, Any]:
    action = {
        "action": row[2],
        "instance_uuid": server_id,
        "request_id": row[1],
        "user_id": row[3],
        "project_id": row[4],
        "start_time": row[5],
        "message": row[7],
    }
    if request.version >= V(2, 58):
        action["updated_at"] = row[6]
    return action
