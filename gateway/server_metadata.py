"""The metadata of a server: keys with values that its users write on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commands.instance.metadata import DeleteMetadataItem, SetMetadata
from domain.errors import MetadataItemNotFound
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.servers import find_server, server_in_scope

METADATA = "/servers/{server_id}/metadata"
ITEM = METADATA + "/{key}"


class ServerMetadata:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", METADATA): self.index,
            ("POST", METADATA): self.add,
            ("PUT", METADATA): self.replace,
            ("GET", ITEM): self.show,
            ("PUT", ITEM): self.set_item,
            ("DELETE", ITEM): self.delete,
        }

    async def index(self, request: Request) -> Response:
        return Response({"metadata": await self._metadata(request)})

    async def show(self, request: Request) -> Response:
        key, metadata = request.path_params["key"], await self._metadata(request)
        if key not in metadata:
            raise MetadataItemNotFound
        return Response({"meta": {key: metadata[key]}})

    async def add(self, request: Request) -> Response:
        await self._set(request, request.body["metadata"])
        return await self.index(request)

    async def replace(self, request: Request) -> Response:
        await self._set(request, request.body["metadata"], replace=True)
        return Response({"metadata": request.body["metadata"]})

    async def set_item(self, request: Request) -> Response:
        item = request.body["meta"]
        if request.path_params["key"] not in item:
            await find_server(self._backend, request, "id")
            raise Fault(400, "Request body and URI mismatch")
        await self._set(request, item)
        return Response({"meta": item})

    async def delete(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        key = request.path_params["key"]
        await self._backend.ask(request, DeleteMetadataItem(instance_id=instance_id, project_id=project_id, key=key))
        return Response(status=204)

    async def _set(self, request: Request, items: Mapping[str, str], *, replace: bool = False) -> None:
        instance_id, project_id = server_in_scope(request)
        command = SetMetadata(instance_id=instance_id, project_id=project_id, items=items, replace=replace)
        await self._backend.ask(request, command)

    async def _metadata(self, request: Request) -> dict[str, Any]:
        row = await find_server(self._backend, request, "metadata")
        metadata: dict[str, Any] = orjson.loads(row[0])
        return metadata
