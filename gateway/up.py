"""`compute-ledger up`: a ledger, or some of its roles, from the first line of its log to a clean stop.

Once all is there one line goes to standard output: `ready` with the URL, or with the roles of a process that serves none;
then, where metrics are served, `metrics` with theirs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from gateway.health import Health, Operators, asgi
from gateway.options import Options, RoleOptions, TlsOptions
from gateway.site import App, Site

if TYPE_CHECKING:
    import uvicorn

READY_POLL_S = 0.01


def serve(options: Options, sock: socket.socket, operators: str | None) -> None:
    """The embedded ledger, until SIGTERM or SIGINT."""
    from gateway.embedded import Embedded
    from gateway.faces import services

    tune()
    ledger = Embedded(options)
    health = Health(ledger.alive(), ledger.readiness())
    told = None if operators is None else Operators(operators, health, ledger.metrics())
    ledger.start()
    try:
        if told is not None:
            told.start()
        site = Site({**services(ledger), "healthz": asgi(health.healthz), "readyz": asgi(health.readyz)})
        _serve_http(site, sock, options.tls, ledger.hosts_up, _ready(options.url, told))
    finally:
        _stop(ledger.stop, told)


def serve_roles(options: RoleOptions, sock: socket.socket | None, operators: str | None) -> None:
    """Some roles of a distributed ledger, until SIGTERM or SIGINT; `sock` where one of them is the gateway."""
    from gateway.distributed import Distributed

    tune()
    process = Distributed(options)
    health = Health(process.alive(), process.readiness(), process.shown())
    told = None if operators is None else Operators(operators, health, process.metrics())
    process.start()
    try:
        if told is not None:
            told.start()
        gateway = process.gateway
        if gateway is None or sock is None:
            _wait_for_signal(_ready(",".join(sorted(options.roles)), told))
            return
        from gateway.agent_api import agent_api
        from gateway.faces import services

        site: dict[str, App] = {
            **services(gateway),
            "agent": agent_api(gateway.storage, gateway.host_keys, gateway.images),
            "healthz": asgi(health.healthz),
            "readyz": asgi(health.readyz),
        }
        _serve_http(Site(site), sock, options.common.tls, lambda: True, _ready(options.common.url, told))
    finally:
        _stop(process.stop, told)


def tune() -> None:
    """Many short steps on many threads in one interpreter: let them take turns more often than every 5 ms."""
    sys.setswitchinterval(0.0005)


def _ready(what: str, told: Operators | None) -> str:
    return f"ready {what}" if told is None else f"ready {what} metrics {told.url}"


def _stop(stop: Callable[[], bool], told: Operators | None) -> None:
    if told is not None:
        told.stop()
    if not stop():
        os._exit(0)  # threads that wait for a hypervisor would keep the process


def _wait_for_signal(ready: str) -> None:
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    _say(ready)
    told.wait()


def _serve_http(
    site: App, sock: socket.socket, tls: TlsOptions | None, is_ready: Callable[[], bool], ready: str
) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Stop serving, and no more: uvicorn's own has the signal end the process, before the ledger is stopped."""
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    config = uvicorn.Config(
        site,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `gateway/standalone/links.py` honours them, where an operator says so
        timeout_graceful_shutdown=10,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    server = Server(config)

    async def serving() -> None:
        announcing = asyncio.create_task(_announce(server, is_ready, ready))
        await server.serve(sockets=[sock])
        announcing.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serving())


async def _announce(server: uvicorn.Server, is_ready: Callable[[], bool], ready: str) -> None:
    while not (server.started and is_ready()):
        await asyncio.sleep(READY_POLL_S)
    _say(ready)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
