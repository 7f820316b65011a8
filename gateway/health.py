"""How a process is: /healthz (it runs), /readyz (it can do its work), /metrics (Prometheus, `metrics.py`).

A gateway answers the first two beside its API. Metrics, and both for processes without an API, are served at an address of
their own, so that they are nobody's business but the operator's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

import orjson

from gateway.bounded import Bounded
from gateway.listening import listen, url_of
from gateway.site import App, Receive, Scope, Send

log = logging.getLogger(__name__)

CHECK_LIMIT_S = 2.0
GLANCE_S = 0.1  # what does not count is not waited for any longer
REQUEST_LIMIT_S = 10.0

Check = Callable[[], str | None]  # what is wrong, if anything
Answer = tuple[int, str, bytes]  # status, content type, body


class Health:
    def __init__(
        self,
        alive: Mapping[str, Check],
        ready: Mapping[str, Check],
        shown: Mapping[str, Check] | None = None,
        *,
        limit_s: float = CHECK_LIMIT_S,
    ) -> None:
        """What is `shown` is told by /readyz and makes nothing unready; it may be a little old."""
        self._alive = {name: Bounded(check) for name, check in alive.items()}
        self._ready = self._alive | {name: Bounded(check) for name, check in ready.items()}
        self._shown = {name: Bounded(check) for name, check in (shown or {}).items()}
        self._limit_s = limit_s

    def healthz(self) -> Answer:
        return self._answer(self._alive, {})

    def readyz(self) -> Answer:
        return self._answer(self._ready, self._shown)

    def _answer(self, counted: Mapping[str, Bounded[str | None]], shown: Mapping[str, Bounded[str | None]]) -> Answer:
        """All checks at once, within one limit."""
        began = monotonic()
        asked = {name: check.ask() for name, check in counted.items()}
        beside = {name: (check, check.ask()) for name, check in shown.items()}
        found = {name: _said(answer, began + self._limit_s) for name, answer in asked.items()}
        wrong = {name: said or f"no answer within {self._limit_s:g} s" for name, said in found.items() if said != "ok"}
        for name, (check, answer) in beside.items():
            said = _said(answer, began + GLANCE_S)
            if said is None and check.last is not None:
                said = _said(check.last, began)
            found[name] = said or "not known yet"
        body = {"ok": not wrong, "checks": found | wrong}
        return (503 if wrong else 200), "application/json", orjson.dumps(body)


def _said(answer: Future[str | None], until: float) -> str | None:
    """What a check found, on one line; none: it has not answered."""
    wait([answer], max(0.0, until - monotonic()))
    if not answer.done():
        return None
    try:
        return answer.result() or "ok"
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())


def asgi(answer: Callable[[], Answer]) -> App:
    """On threads of its own: those of the API may all be waiting for something."""
    threads = ThreadPoolExecutor(2, thread_name_prefix="health")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status, content_type, body = await asyncio.get_running_loop().run_in_executor(threads, answer)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


class Operators:
    """The operators' address: all three paths, on threads of its own."""

    def __init__(self, address: str, health: Health, metrics: Callable[[], bytes]) -> None:
        """Raises:
        CannotListen
        """
        from gateway.metrics import CONTENT_TYPE

        paths: dict[str, Callable[[], Answer]] = {
            "/healthz": health.healthz,
            "/readyz": health.readyz,
            "/metrics": lambda: (200, CONTENT_TYPE, metrics()),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_LIMIT_S

            def do_GET(self) -> None:
                answer = paths.get(self.path.partition("?")[0])
                status, content_type, body = (404, "text/plain", b"") if answer is None else answer()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        sock = listen(address)
        self._server = _Server(sock.getsockname()[:2], Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = sock
        self._thread = threading.Thread(target=self._server.serve_forever, name="operators", daemon=True)

    @property
    def url(self) -> str:
        return url_of(self._server.socket)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("an operator's request failed", exc_info=True)
