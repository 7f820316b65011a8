"""The tags of a server (Nova API 2.26): words that it is found by."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import orjson

from commands.instance.tags import AddTag, RemoveTag, SetTags
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.servers import find_server, server_in_scope

TAGS = "/servers/{server_id}/tags"
TAG = TAGS + "/{tag}"


class ServerTags:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", TAGS): self.index,
            ("PUT", TAGS): self.replace,
            ("DELETE", TAGS): self.clear,
            ("GET", TAG): self.show,
            ("PUT", TAG): self.add,
            ("DELETE", TAG): self.delete,
        }

    async def index(self, request: Request) -> Response:
        return Response({"tags": await self._tags(request)})

    async def show(self, request: Request) -> Response:
        tag = request.path_params["tag"]
        if tag not in await self._tags(request):
            raise Fault(404, f"Server {request.path_params['server_id']} has no tag '{tag}'")
        return Response(status=204)

    async def replace(self, request: Request) -> Response:
        await self._set(request, tuple(request.body["tags"]))
        return await self.index(request)

    async def clear(self, request: Request) -> Response:
        await self._set(request, ())
        return Response(status=204)

    async def add(self, request: Request) -> Response:
        """201 for a tag that is new, 204 for one that was there."""
        instance_id, project_id = server_in_scope(request)
        tag = request.path_params["tag"]
        accepted = await self._backend.ask(request, AddTag(instance_id=instance_id, project_id=project_id, tag=tag))
        if not accepted.events:
            return Response(status=204)
        location = f"{request.base_url}/servers/{instance_id}/tags/{quote(tag)}"
        return Response(status=201, headers=(("location", location),))

    async def delete(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        tag = request.path_params["tag"]
        await self._backend.ask(request, RemoveTag(instance_id=instance_id, project_id=project_id, tag=tag))
        return Response(status=204)

    async def _set(self, request: Request, tags: tuple[str, ...]) -> None:
        instance_id, project_id = server_in_scope(request)
        await self._backend.ask(request, SetTags(instance_id=instance_id, project_id=project_id, tags=tags))

    async def _tags(self, request: Request) -> list[str]:
        row = await find_server(self._backend, request, "tags")
        tags: list[str] = orjson.loads(row[0])
        return tags
