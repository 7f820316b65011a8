"""Server groups: servers to be kept together or apart. From 2.64 a group has one policy and its rules."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from commands.server_group import CreateServerGroup, DeleteServerGroup
from domain.errors import ServerGroupNotFound
from domain.identifiers import ProjectId, ServerGroupId, UserId
from domain.server_group import GroupPolicy
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import Steps, V, without
from gateway.numbers import page_limit
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_filters import is_uuid

_COLUMNS = "group_id, project_id, user_id, name, policy, max_server_per_host"
RULE = "max_server_per_host"


class ServerGroups:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-server-groups"): self.index,
            ("POST", "/os-server-groups"): self.create,
            ("GET", "/os-server-groups/{server_group_id}"): self.show,
            ("DELETE", "/os-server-groups/{server_group_id}"): self.delete,
        }

    async def index(self, request: Request) -> Response:
        """Of the caller's project; an administrator may ask for all."""
        condition, parameters = "project_id = ?", [request.project_id]
        if "all_projects" in request.query and request.allows("context_is_admin"):
            request.require("os_compute_api:os-server-groups:index:all_projects")
            condition, parameters = "1", []
        limit, offset = page_limit(request.query, self._max_limit), request.query.get("offset")
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM server_groups WHERE {condition} ORDER BY sequence LIMIT ? OFFSET ?",
            (*parameters, limit, int(offset[:12]) if offset else 0),
        )
        return Response({"server_groups": [await self._group(row, request) for row in rows]})

    async def create(self, request: Request) -> Response:
        body = request.body["server_group"]
        policy = GroupPolicy(body["policy"] if "policy" in body else body["policies"][0])
        rules = body.get("rules") or {}
        if rules and policy is not GroupPolicy.ANTI_AFFINITY:
            raise Fault(400, "Only anti-affinity policy supports rules.")
        group_id = ServerGroupId(uuid.uuid4())
        command = CreateServerGroup(
            server_group_id=group_id,
            project_id=ProjectId(request.project_id),
            user_id=UserId(request.user_id),
            name=body["name"].strip(),
            policy=policy,
            max_server_per_host=int(rules[RULE]) if RULE in rules else None,
        )
        await self._backend.ask(request, command)
        return Response({"server_group": await self._group(await self._found(request, str(group_id)), request)})

    async def show(self, request: Request) -> Response:
        row = await self._found(request, request.path_params["server_group_id"])
        return Response({"server_group": await self._group(row, request)})

    async def delete(self, request: Request) -> Response:
        row = await self._found(request, request.path_params["server_group_id"])
        command = DeleteServerGroup(server_group_id=ServerGroupId(uuid.UUID(row[0])), project_id=ProjectId(row[1]))
        await self._backend.ask(request, command)
        return Response(status=204)

    async def _found(self, request: Request, name: str) -> Any:
        """The group of that id, if it is the caller's project's; administrators see all.

        Raises:
            ServerGroupNotFound: HTTP answers 404.
        """
        group_id = str(uuid.UUID(name)) if is_uuid(name) else ""
        row = await self._backend.views.row(f"SELECT {_COLUMNS} FROM server_groups WHERE group_id = ?", (group_id,))
        if row is None or (row[1] != request.credentials.project_id and not request.allows("context_is_admin")):
            raise ServerGroupNotFound(name)
        return row

    async def _group(self, row: Any, request: Request) -> dict[str, Any]:
        members = await self._backend.views.rows(
            "SELECT instance_id FROM server_group_members WHERE group_id = ? ORDER BY sequence", (row[0],)
        )
        group = {
            "id": row[0],
            "name": row[3],
            "policy": row[4],
            "rules": {} if row[5] is None else {RULE: row[5]},
            "members": [instance_id for (instance_id,) in members],
            "project_id": row[1],
            "user_id": row[2],
        }
        return VIEW.lower(group, request.version)


def _policies_and_metadata(group: dict[str, Any]) -> None:
    del group["rules"]
    group["policies"], group["metadata"] = [group.pop("policy")], {}


VIEW = Steps((V(2, 13), without("project_id", "user_id")), (V(2, 64), _policies_and_metadata))
