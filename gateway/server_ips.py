"""The addresses of a server, by the network they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.servers import find_server

IPS = "/servers/{server_id}/ips"


class ServerIps:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("GET", IPS): self.index, ("GET", IPS + "/{network_label}"): self.show}

    async def index(self, request: Request) -> Response:
        return Response({"addresses": await self._networks(request)})

    async def show(self, request: Request) -> Response:
        label, networks = request.path_params["network_label"], await self._networks(request)
        if label not in networks:
            raise Fault(404, "Instance is not a member of specified network")
        return Response({label: networks[label]})

    async def _networks(self, request: Request) -> dict[str, Any]:
        row = await find_server(self._backend, request, "networks")
        networks: dict[str, Any] = orjson.loads(row[0])
        return networks
