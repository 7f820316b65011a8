"""How a process is: /healthz (it runs), /readyz (it can do its work), /metrics (Prometheus).

A gateway answers the first two beside its API. Metrics, and both for processes without an API, are served at an address of
their own, so that they are nobody's business but the operator's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

from gateway.listening import listen, url_of
from gateway.site import App, Receive, Scope, Send

log = logging.getLogger(__name__)

Check = Callable[[], str | None]  # what is wrong, if anything
Answer = tuple[int, str, bytes]  # status, content type, body


class Health:
    def __init__(self, alive: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        self._alive = alive
        self._ready = ready

    def healthz(self) -> Answer:
        return _answer(self._alive)

    def readyz(self) -> Answer:
        return _answer({**self._alive, **self._ready})


def _answer(checks: Mapping[str, Check]) -> Answer:
    found: dict[str, str] = {}
    for name, check in checks.items():
        try:
            wrong = check()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        found[name] = wrong or "ok"
    well = all(said == "ok" for said in found.values())
    return (200 if well else 503), "application/json", orjson.dumps({"ok": well, "checks": found})


def asgi(answer: Callable[[], Answer]) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        status, content_type, body = await asyncio.to_thread(answer)
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


class Operators:
    """The operators' address: all three paths, on a thread of its own."""

    def __init__(self, address: str, health: Health) -> None:
        """Raises:
        CannotListen
        """
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        paths: dict[str, Callable[[], Answer]] = {
            "/healthz": health.healthz,
            "/readyz": health.readyz,
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest()),
        }

        class Handler(BaseHTTPRequestHandler):
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
        self._server = ThreadingHTTPServer(sock.getsockname()[:2], Handler, bind_and_activate=False)
        self._server.daemon_threads = True
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
