"""What the standalone faces share about one HTTP exchange: the caller, the body, the answer, the refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from commands.neighbours.identity import Credentials, Identity
from gateway import strict_json

LOG = logging.getLogger(__name__)

MAX_JSON_BYTES = 1 << 20
MAX_DEPTH = 32  # of JSON: no request of these APIs comes near

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    503: "Service Unavailable",
}
NEEDS_LOGIN = "The request you have made requires authentication."  # Keystone's words


class Refusal(Exception):
    """Becomes an answer in the shape of the face's errors."""

    def __init__(self, status: int, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind  # Neutron's error type

    @property
    def title(self) -> str:
        return TITLES.get(self.status, "Error")

    def keystone_shape(self) -> dict[str, Any]:
        return {"error": {"code": self.status, "message": self.message, "title": self.title}}


def unauthorized() -> Refusal:
    return Refusal(401, NEEDS_LOGIN)


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def no_content() -> Response:
    return Response(status_code=204)


def caller(request: Request, identity: Identity) -> Credentials:
    """Raises:
    Refusal: 401, without a valid X-Auth-Token.
    """
    token = request.headers.get("x-auth-token")
    credentials = identity.validate(token) if token else None
    if credentials is None:
        raise unauthorized()
    return credentials


async def json_body(request: Request) -> Any:
    """Raises:
    Refusal: 413 over MAX_JSON_BYTES, 400 when it is not JSON or nested deeper than MAX_DEPTH.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise Refusal(413, f"The request body is larger than {MAX_JSON_BYTES} bytes.")
    try:
        return strict_json.read(body, max_depth=MAX_DEPTH)
    except ValueError:
        message = f"The request body is not valid JSON, or is nested deeper than {MAX_DEPTH} levels."
        raise Refusal(400, message) from None


async def json_object(request: Request, *path: str) -> dict[str, Any]:
    """The body, or the object at a path of keys within it."""
    return part(await json_body(request), *path)


def part(content: Any, *path: str) -> dict[str, Any]:
    """Raises:
    Refusal: 400 when there is no object at that path.
    """
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, dict):
        raise Refusal(400, f"Expecting to find an object {'.'.join(path) or 'as the request body'}.")
    return content


def text(content: dict[str, Any], key: str, *, longest: int = 255) -> str | None:
    """Raises:
    Refusal: 400 when the value is there and is not text of that length.
    """
    value = content.get(key)
    if value is not None and (not isinstance(value, str) or len(value) > longest):
        raise Refusal(400, f"{key} must be text of at most {longest} characters.")
    return value


def flag(content: dict[str, Any], key: str, default: bool) -> bool:
    value = content.get(key, default)
    if not isinstance(value, bool):
        raise Refusal(400, f"{key} must be true or false.")
    return value


def application(routes: Sequence[BaseRoute], shape: Callable[[Refusal], Any]) -> Starlette:
    """A face that can be mounted anywhere; `shape` is how its errors look."""

    async def refused(request: Request, refusal: Exception) -> Response:
        assert isinstance(refusal, Refusal)
        headers = {"WWW-Authenticate": "Keystone"} if refusal.status == 401 else None
        return answer(shape(refusal), refusal.status, headers)

    async def not_routed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await refused(request, Refusal(error.status_code, error.detail))

    async def unwritten(request: Request, error: Exception) -> Response:
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        return await refused(request, Refusal(503, "The service cannot write what it was asked to keep."))

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    return Starlette(
        routes=list(routes),
        exception_handlers={Refusal: refused, HTTPException: not_routed, ClientDisconnect: gone, OSError: unwritten},
    )
