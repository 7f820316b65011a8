"""What the standalone faces share: a body read strictly, and a disk that is full."""

from __future__ import annotations

import asyncio
import errno

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.standalone.exchange import MAX_DEPTH, answer, application, json_body


async def echo(request: Request) -> Response:
    return answer(await json_body(request))


async def full(request: Request) -> Response:
    raise OSError(errno.ENOSPC, "No space left on device")


def ask(method: str, path: str, body: bytes = b"") -> httpx.Response:
    routes = [Route("/echo", echo, methods=["POST"]), Route("/full", full)]
    app = application(routes, lambda refusal: {"error": {"code": refusal.status, "message": refusal.message}})

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ledger") as client:
            return await client.request(method, path, content=body)

    return asyncio.run(send())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2)])
def test_what_is_not_json_or_has_no_end_is_refused(body: bytes) -> None:
    answered = ask("POST", "/echo", body)

    assert answered.status_code == 400
    assert len(answered.content) < 4000


def test_a_full_disk_is_a_503_in_the_faces_own_shape() -> None:
    answered = ask("GET", "/full")

    assert answered.status_code == 503
    assert answered.json()["error"]["code"] == 503
