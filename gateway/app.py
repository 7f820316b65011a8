"""The Compute API as one ASGI application: everything that happens to a request around its handler, in order.

Request id; size; token; route; microversion; body; schema; policy; handler; and whatever went wrong, as a fault. Paths and
versions are `surface.py`'s, schemas `bodies.py`'s, rules `policy.py`'s business.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request as AsgiRequest

from commands.metrics import HTTP_REQUESTS, HTTP_SECONDS
from commands.neighbours.identity import Credentials, Identity
from gateway import versions
from gateway.access_log import AccessLog, shown_path, write_line
from gateway.bodies import Validation, action_of, parse_json
from gateway.faults import Fault, fault_of, too_large, unexpected, unrouted
from gateway.microversions import OLDEST, Version, negotiate, response_headers
from gateway.operations import Operation, operations_and_rules
from gateway.policy import Policy
from gateway.request import Handler, HandlerKey, Query, Request, Response
from gateway.standalone.links import Links
from gateway.surface import Match, Matches, Surface

LOG = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

MAX_BODY_BYTES = 114_688  # Nova's osapi_max_request_body_size
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WITH_BODY = ("POST", "PUT")
MEDIA_TYPES = ("application/json", "text/plain", "")  # plain text is what some servers say where a client says nothing
NEEDS_LOGIN = {
    "error": {
        "code": 401,
        "title": "Unauthorized",
        "message": "The request you have made requires authentication.",
    }
}

_PROJECT = re.compile(r"[0-9a-f-]+")
_REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """What stands around the handlers."""

    identity: Identity
    policy: Policy
    links: Links
    max_body_bytes: int = MAX_BODY_BYTES
    identity_url: str | None = None  # told to who has no token; None: the identity service beside this one
    access_log: AccessLog = write_line


class Unauthorized(Exception):
    """No token, or not a valid one: answered in the form of Keystone's middleware."""


class Disconnected(Exception):
    """The client went away before its body was complete."""


def compute_app(shell: Shell, handlers: Mapping[HandlerKey, Handler]) -> ComputeApp:
    """The application, to be mounted at /compute. What has no handler in `handlers` is answered as not built.

    Raises:
        ValueError: a handler for something that is not an operation of the Compute API.
    """
    operations, _ = operations_and_rules()
    return ComputeApp(shell, Surface(operations, handlers), Validation())


class ComputeApp:
    def __init__(self, shell: Shell, surface: Surface, validation: Validation) -> None:
        self.shell = shell
        self.surface = surface
        self.validation = validation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the Compute API speaks HTTP, not {scope['type']}")
        await _Exchange(self, scope, receive).run(send)


class _Exchange:
    """One request and its answer; what is known so far decides how a fault looks."""

    __slots__ = (
        "app", "credentials", "global_request_id", "headers", "legacy", "operation", "path", "receive", "request_id",
        "scope", "version",
    )  # fmt: skip

    def __init__(self, app: ComputeApp, scope: Scope, receive: Receive) -> None:
        self.app = app
        self.scope = scope
        self.receive = receive
        self.request_id = f"req-{uuid.uuid4()}"
        self.headers = _folded(scope["headers"])
        asked_by = self.headers.get("x-openstack-request-id", "")
        self.global_request_id = asked_by if _REQUEST_ID.fullmatch(asked_by) else None
        self.path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        self.legacy = False
        self.version: Version | None = None  # of the answer's headers
        self.credentials: Credentials | None = None
        self.operation: Operation | None = None

    async def run(self, send: Send) -> None:
        started = time.perf_counter()
        try:
            status, headers, body = self._finished(await self._answer())
        except Disconnected:
            return
        except Unauthorized:
            status, headers, body = self._unauthorized()
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                LOG.exception("%s: %s %s failed", self.request_id, self.scope["method"], shown_path(self.path))
                fault = unexpected(self.request_id)
            status, headers, body = self._failed(fault)
        request_id = self.request_id.encode()
        headers.append((b"x-openstack-request-id", request_id))
        headers.append((b"x-compute-request-id", request_id))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        seconds = time.perf_counter() - started
        _count(self.scope["method"], status, seconds)
        self._log(status, seconds)

    async def _answer(self) -> Response:
        path, method = self.path, self.scope["method"]
        prefix, slash, rest = path.removeprefix("/").partition("/")
        self.legacy = prefix == "v2"
        if prefix not in versions.PREFIXES:
            return self._above_versions(path, method)
        self._refuse_large()
        if method == "GET" and not slash:
            return Response(None, 302, [("location", f"{self._mounted_at()}/{prefix}/")])
        if method == "GET" and not rest:
            return versions.document(self._mounted_at(), prefix)
        if method == "GET" and rest.startswith("versions/"):
            return versions.document_of(self._mounted_at(), rest.removeprefix("versions/").removesuffix("/"))
        return await self._operate(prefix, rest, self._authenticated())

    async def _operate(self, prefix: str, rest: str, credentials: Credentials) -> Response:
        method = self.scope["method"]
        project_id, path = self._without_project(rest, credentials)
        matches = self.app.surface.match(method, path)
        if matches is None:
            raise unrouted()
        self.version = version = OLDEST if self.legacy else negotiate(self.headers)
        match, body = await self._operation_and_body(matches, version)
        self.operation = operation = match.operation
        handler = self.app.surface.handler(operation)
        if project_id is not None and project_id != credentials.project_id:
            raise _of_another_project(project_id, credentials.project_id)
        validation = self.app.validation
        query = validation.query(operation, version, Query.parse(self.scope["query_string"]), loose=self.legacy)
        if method in WITH_BODY:
            body = validation.body(operation, version, body, loose=self.legacy)
        if operation.rule is not None:
            self.app.shell.policy.require(operation.rule, credentials, project_id=match.params.get("project_id"))
        mounted_at = self._mounted_at()
        in_project = "" if project_id is None else f"/{project_id}"
        return await handler(
            Request(
                request_id=self.request_id,
                global_request_id=self.global_request_id,
                method=method,
                path=path,
                path_params=match.params,
                action=operation.action,
                version=version,
                legacy_v2=self.legacy,
                credentials=credentials,
                query=query,
                body=body,
                headers=self.headers,
                base_url=f"{mounted_at}/{prefix}{in_project}",
                bookmark_url=f"{mounted_at}{in_project}",
                policy=self.app.shell.policy,
            )
        )

    async def _operation_and_body(self, matches: Matches, version: Version) -> tuple[Match, Any]:
        """Where a path takes actions, the body tells which.

        Raises:
            Fault: 400, 404, 413 or 415
        """
        if _media_type(self.headers) not in MEDIA_TYPES:
            raise Fault(415, "Unsupported Content-Type")
        if self.scope["method"] not in WITH_BODY:
            return matches.at(version), None
        raw = await self._body()
        if matches.take_action:
            body = parse_json(raw)
            return matches.action(action_of(body), version), body
        match = matches.at(version)
        return match, parse_json(raw) if raw else None

    def _above_versions(self, path: str, method: str) -> Response:
        if method != "GET":
            raise unrouted()
        return versions.listing(self._mounted_at()) if path in ("", "/") else versions.choices(self._mounted_at(), path)

    def _refuse_large(self) -> None:
        """Raises:
        Fault: 413, before anything of a body that says it is too large is read; 400, its length is no number.
        """
        length = self.headers.get("content-length")
        if length is None:
            return
        if not (length.isascii() and length.isdigit()):
            raise Fault(400, "Content-Length is not a number.")
        if len(length) > 12 or int(length) > self.app.shell.max_body_bytes:
            raise too_large()

    def _authenticated(self) -> Credentials:
        token = self.headers.get("x-auth-token")
        self.credentials = self.app.shell.identity.validate(token) if token else None
        if self.credentials is None:
            raise Unauthorized
        return self.credentials

    def _without_project(self, rest: str, credentials: Credentials) -> tuple[str | None, str]:
        """The project id where the path has one, and the path after it."""
        first, _, after = rest.partition("/")
        if self.app.surface.starts(first) or not (first == credentials.project_id or _PROJECT.fullmatch(first)):
            return None, "/" + rest
        return first, "/" + after

    async def _body(self) -> bytes:
        """Raises:
        Fault: 413, it is too large after all.
        Disconnected
        """
        message = await self.receive()
        body = message.get("body", b"")
        if message.get("more_body"):
            body = bytearray(body)
            while message.get("more_body"):
                message = await self.receive()
                body += message.get("body", b"")
                if len(body) > self.app.shell.max_body_bytes:
                    raise too_large()
            body = bytes(body)
        if message["type"] == "http.disconnect":
            raise Disconnected
        if len(body) > self.app.shell.max_body_bytes:
            raise too_large()
        return bytes(body)

    def _mounted_at(self) -> str:
        return self.app.shell.links.service(AsgiRequest(self.scope))

    def _finished(self, response: Response) -> tuple[int, RawHeaders, bytes]:
        content = response.content
        if content is None:
            body = b""
        elif isinstance(content, bytes):
            body = content
        else:
            body = orjson.dumps(content)
        headers = self._version_headers()
        if content is not None:
            headers.append((b"content-type", response.content_type.encode()))
        if response.status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        headers.extend((name.lower().encode("ascii"), _header_value(value)) for name, value in response.headers)
        return response.status, headers, body

    def _failed(self, fault: Fault) -> tuple[int, RawHeaders, bytes]:
        content_type, body = fault.body(self.headers.get("accept", ""))
        headers = self._version_headers()
        headers.extend(fault.headers)
        headers.append((b"content-type", content_type.encode()))
        headers.append((b"content-length", b"%d" % len(body)))
        return fault.status, headers, body

    def _unauthorized(self) -> tuple[int, RawHeaders, bytes]:
        url = self.app.shell.identity_url or f"{self.app.shell.links.base(AsgiRequest(self.scope))}/identity"
        body = orjson.dumps(NEEDS_LOGIN)
        return (
            401,
            [
                (b"www-authenticate", b"Keystone uri=" + _header_value(f'"{url}"')),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ],
            body,
        )

    def _version_headers(self) -> RawHeaders:
        return [] if self.version is None or self.legacy else list(response_headers(self.version))

    def _log(self, status: int, seconds: float) -> None:
        credentials = self.credentials
        self.app.shell.access_log(
            {
                "request_id": self.request_id,
                "global_request_id": self.global_request_id,
                "method": self.scope["method"],
                "path": shown_path(self.scope["path"]),
                "action": None if self.operation is None else self.operation.action,
                "version": None if self.version is None else str(self.version),
                "status": status,
                "ms": round(seconds * 1000, 3),
                "user_id": None if credentials is None else credentials.user_id,
                "project_id": None if credentials is None else credentials.project_id,
            }
        )


def _count(method: str, status: int, seconds: float) -> None:
    name = method if method in METHODS else "other"  # a client may make up ever new ones
    HTTP_REQUESTS.labels(name, f"{status // 100}xx").inc()
    HTTP_SECONDS.labels(name).observe(seconds)


def _of_another_project(asked: str, own: str | None) -> Fault:
    return Fault(400, f"Malformed request URL: URL's project_id '{asked}' doesn't match Context's project_id '{own}'")


def _folded(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By name in lower case; one that comes several times is joined by commas."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    return headers


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _header_value(text: str) -> bytes:
    """No character that could end the header."""
    return text.replace("\r", "").replace("\n", "").encode("utf-8")
