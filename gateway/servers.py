"""Servers: list, detail, show, update, delete. Creating one is in `server_create.py`, its actions in `server_action.py`,
what hangs on it in `server_metadata.py`, `server_tags.py` and their like.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.instance.attributes import ADDRESSES, UpdateInstance
from commands.instance.delete import DeleteInstance
from domain.errors import InstanceNotFound
from domain.identifiers import InstanceId, ProjectId
from gateway.backend import Backend
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.schemas.formats import address
from gateway.server_filters import Selection, after_marker, all_projects_asked, is_uuid, select
from gateway.server_view import ADMINISTRATOR, DETAIL, SHOW, UPDATE, finished, shown_to

ALL_FILTERS = "os_compute_api:servers:allow_all_filters"
ALL_PROJECTS = "os_compute_api:servers:{}:get_all_tenants"
# What an update may change, as its body names it, and as the ledger does.
CHANGEABLE = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "accessIPv4": "access_ipv4",
    "accessIPv6": "access_ipv6",
    "OS-DCF:diskConfig": "disk_config",
    "pinned_availability_zone": "pinned_availability_zone",
}


class Servers:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/servers"): self.index,
            ("GET", "/servers/detail"): self.detail,
            ("GET", "/servers/{server_id}"): self.show,
            ("PUT", "/servers/{server_id}"): self.update,
            ("DELETE", "/servers/{server_id}"): self.delete,
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "brief", "index", "servers")

    async def detail(self, request: Request) -> Response:
        return await self._page(request, shown_to(request, DETAIL), "detail", "servers/detail")

    async def show(self, request: Request) -> Response:
        return await self._shown(request, SHOW)

    async def update(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        asked = request.body["server"]
        changes = {ours: asked[theirs] for theirs, ours in CHANGEABLE.items() if theirs in asked}
        if "name" in changes:
            changes["name"] = changes["name"].strip()
        for name in ADDRESSES:
            if name in changes:
                changes[name] = address(changes[name])
        command = UpdateInstance(instance_id=instance_id, project_id=project_id, changes=changes)
        await self._backend.ask(request, command)
        return await self._shown(request, UPDATE)

    async def delete(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        await self._backend.ask(request, DeleteInstance(instance_id=instance_id, project_id=project_id))
        return Response(status=204)

    async def _shown(self, request: Request, form: str) -> Response:
        row = await find_server(self._backend, request, shown_to(request, form))
        answer = b'{"server":' + row[0].encode() + b"}"
        return Response(finished(request, answer, self._backend.payload))

    async def _page(self, request: Request, expression: str, what: str, path: str) -> Response:
        query = request.query.lists()
        all_projects = all_projects_asked(query)
        if all_projects:
            request.require(ALL_PROJECTS.format(what))
        selection = select(
            query,
            request.version,
            project_id=request.project_id,
            admin=request.allows(ADMINISTRATOR),
            all_filters=request.allows(ALL_FILTERS),
            all_projects=all_projects,
            max_limit=self._max_limit,
        )
        marker = request.query.get("marker")
        if marker is not None:
            await self._mark(request, selection, marker, all_projects=all_projects)
        rows = await self._backend.views.rows(selection.sql(f"{expression}, id"), selection.parameters)
        body = b'{"servers":[' + ",".join(row[0] for row in rows).encode() + b"]"
        if rows and len(rows) == selection.limit:
            href = f"{request.base_url}/{path}?{request.query.with_changed(marker=rows[-1][1])}"
            body += b',"servers_links":[{"rel":"next","href":"' + href.encode() + b'"}]'
        return Response(finished(request, body + b"}", self._backend.payload))

    async def _mark(self, request: Request, selection: Selection, marker: str, *, all_projects: bool) -> None:
        columns = ", ".join(column for column, _ in selection.order)
        row = await self._backend.views.row(
            f"SELECT {columns} FROM servers WHERE id = ? AND (project_id = ? OR ?)",
            (marker, request.project_id, all_projects),
        )
        after_marker(selection, marker, row)


def server_in_scope(request: Request) -> tuple[InstanceId, ProjectId | None]:
    """The server that a path names, and whose it must be: none for administrators, who reach all.

    Raises:
        InstanceNotFound: not a server's id; HTTP answers 404.
    """
    name = request.path_params["server_id"]
    if not is_uuid(name):
        raise InstanceNotFound(name)
    scope = None if request.allows(ADMINISTRATOR) else ProjectId(request.project_id)
    return InstanceId(uuid.UUID(name)), scope


async def find_server(backend: Backend, request: Request, columns: str, *, deleted: bool = False) -> Any:
    """A server's columns, in the caller's scope.

    Raises:
        InstanceNotFound: HTTP answers 404.
    """
    instance_id, project_id = server_in_scope(request)
    row = await backend.views.row(
        f"SELECT {columns} FROM servers WHERE id = ? AND (project_id = ? OR ? IS NULL) AND (NOT deleted OR ?)",
        (str(instance_id), project_id, project_id, deleted),
    )
    if row is None:
        raise InstanceNotFound(instance_id)
    return row
