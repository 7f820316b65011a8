"""Servers: list, detail, show, delete. Creating one is in `server_create.py`, its actions in `server_action.py`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.instance.delete import DeleteInstance
from domain.errors import InstanceNotFound
from domain.identifiers import InstanceId, ProjectId
from gateway.backend import Backend
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import Selection, after_marker, is_uuid, select, truth
from gateway.server_view import detail_expression, with_user_data

ADMIN_VIEW = "os_compute_api:os-extended-server-attributes"
ALL_PROJECTS = "os_compute_api:servers:detail:get_all_tenants"


class Servers:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/servers"): self.index,
            ("GET", "/servers/detail"): self.detail,
            ("GET", "/servers/{server_id}"): self.show,
            ("DELETE", "/servers/{server_id}"): self.delete,
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "brief", "servers")

    async def detail(self, request: Request) -> Response:
        expression = detail_expression(request.version, admin=request.allows(ADMIN_VIEW), show=False)
        return await self._page(request, expression, "servers/detail")

    async def show(self, request: Request) -> Response:
        admin = request.allows(ADMIN_VIEW)
        expression = detail_expression(request.version, admin=admin, show=True)
        row = await find_server(self._backend, request, expression)
        return Response(self._finished(request, b'{"server":' + row[0].encode() + b"}"))

    async def delete(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        await self._backend.ask(request, DeleteInstance(instance_id=instance_id, project_id=project_id))
        return Response(status=204)

    async def _page(self, request: Request, expression: str, path: str) -> Response:
        all_projects = truth(request.query.get("all_tenants"))
        if all_projects:
            request.require(ALL_PROJECTS)
        selection = select(
            request.query.lists(),
            request.version,
            project_id=request.project_id,
            admin=request.allows(ADMIN_VIEW),
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
        return Response(self._finished(request, body + b"}"))

    async def _mark(self, request: Request, selection: Selection, marker: str, *, all_projects: bool) -> None:
        columns = ", ".join(column for column, _ in selection.order)
        row = await self._backend.views.row(
            f"SELECT {columns} FROM servers WHERE id = ? AND (project_id = ? OR ?)",
            (marker, request.project_id, all_projects),
        )
        after_marker(selection, marker, row)

    def _finished(self, request: Request, body: bytes) -> bytes:
        """The answer with its URLs, and with the user data that administrators see."""
        body = with_user_data(body, self._backend.payload)
        return body.replace(b"\x01", request.base_url.encode()).replace(b"\x02", request.bookmark_url.encode())


def server_in_scope(request: Request) -> tuple[InstanceId, ProjectId | None]:
    """The server that a path names, and whose it must be: none for administrators, who reach all.

    Raises:
        InstanceNotFound: not a server's id; HTTP answers 404.
    """
    name = request.path_params["server_id"]
    if not is_uuid(name):
        raise InstanceNotFound(name)
    scope = None if request.allows("context_is_admin") else ProjectId(request.project_id)
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
