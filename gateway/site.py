"""The whole site at one address: which service answers below which path. The leanest router there can be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Site:
    """Hands a request to the service that its first path segment names, mounted there."""

    def __init__(self, services: Mapping[str, App]) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        path: str = scope["path"]
        name = path[1:].partition("/")[0]
        service = self._services.get(name)
        if service is None:
            await self._answer(path, send)
            return
        outer = scope.get("root_path", "")
        inner = path[len(name) + 1 :] or "/"
        # As Starlette's mounts do: `path` stays whole, `root_path` says how much of it leads here.
        await service(
            {
                **scope,
                "app_root_path": scope.get("app_root_path", outer),
                "root_path": f"{outer}/{name}",
                "path": f"{outer}/{name}{inner}",
            },
            receive,
            send,
        )

    async def _answer(self, path: str, send: Send) -> None:
        if path == "/":
            status = 200
            body: dict[str, Any] = {"services": {name: f"/{name}" for name in self._services}}
        else:
            status, body = 404, {"error": {"code": 404, "title": "Not Found", "message": "Nothing is served here."}}
        content = orjson.dumps(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
