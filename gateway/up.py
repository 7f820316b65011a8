"""`compute-ledger up`: the embedded ledger behind HTTP, from the first line of its log to a clean stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from types import FrameType

import uvicorn

from gateway.app import Shell, compute_app
from gateway.embedded import Embedded, EmbeddedOptions, tune
from gateway.flavors import Flavors
from gateway.hypervisors import Hypervisors
from gateway.instance_actions import InstanceActions
from gateway.keypairs import Keypairs
from gateway.policy import Policy
from gateway.quota_sets import QuotaSets
from gateway.request import Handler, HandlerKey
from gateway.server_action import ServerActions
from gateway.server_create import CreateSettings, ServerCreate
from gateway.servers import Servers
from gateway.services import Services
from gateway.site import App, Site
from gateway.standalone.glance import glance
from gateway.standalone.keystone import keystone
from gateway.standalone.links import Links
from gateway.standalone.neutron import neutron

READY_POLL_S = 0.01


class CannotListen(Exception):
    """The address is taken, or is not this machine's."""


def listen(address: str) -> socket.socket:
    """A listening socket on HOST:PORT; port 0 takes a free one.

    Raises:
        CannotListen: with one line that says why.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CannotListen(f"{address!r} is not HOST:PORT")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), int(port)))
    except OSError as error:
        sock.close()
        raise CannotListen(f"cannot listen on {address}: {error.strerror or error}") from None
    sock.listen(512)
    return sock


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def handlers(ledger: Embedded) -> Mapping[HandlerKey, Handler]:
    """Every operation that is built."""
    backend, options = ledger.backend, ledger.options
    max_limit = options.max_limit
    create = CreateSettings(
        force_config_drive=options.force_config_drive,
        default_zone=options.default_schedule_zone,
        metadata_items=options.quota_defaults["metadata_items"],
    )
    rooms = (
        Servers(backend, max_limit),
        ServerCreate(backend, ledger.images, ledger.networks, create),
        ServerActions(backend, options.shutdown_timeout_s),
        Flavors(backend, max_limit),
        Keypairs(backend, max_limit),
        QuotaSets(backend, ledger.identity, options.quota_defaults),
        Services(backend),
        Hypervisors(backend, max_limit),
        InstanceActions(backend, max_limit),
    )
    return {key: handler for room in rooms for key, handler in room.handlers().items()}


def site(ledger: Embedded) -> Site:
    options = ledger.options
    links = Links(trust_proxy=options.trust_proxy)
    shell = Shell(
        identity=ledger.identity,
        policy=Policy(options.directory),
        links=links,
        max_body_bytes=options.max_body_bytes,
    )
    services: dict[str, App] = {
        "identity": keystone(ledger.identity, links),
        "image": glance(ledger.images, ledger.identity, links),
        "network": neutron(ledger.networks, ledger.identity, links),
        "compute": compute_app(shell, handlers(ledger)),
    }
    return Site(services)


class Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop serving, and no more: uvicorn's own has the signal end the process, before the ledger is stopped."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def serve(options: EmbeddedOptions, sock: socket.socket) -> None:
    """Run until SIGTERM or SIGINT; prints one line, `ready URL`, once everything answers."""
    tune()
    ledger = Embedded(options)
    ledger.start()
    try:
        config = uvicorn.Config(
            site(ledger),
            http="httptools",
            loop="uvloop",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `gateway/standalone/links.py` honours them, where an operator says so
            timeout_graceful_shutdown=10,
        )
        server = Server(config)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(server, sock, ledger, options.url))
    finally:
        if not ledger.stop():
            os._exit(0)  # threads that wait for a hypervisor would keep the process


async def _serve(server: uvicorn.Server, sock: socket.socket, ledger: Embedded, url: str) -> None:
    ready = asyncio.create_task(_announce(server, ledger, url))
    await server.serve(sockets=[sock])
    ready.cancel()


async def _announce(server: uvicorn.Server, ledger: Embedded, url: str) -> None:
    while not (server.started and ledger.hosts_up()):
        await asyncio.sleep(READY_POLL_S)
    sys.stdout.write(f"ready {url}\n")
    sys.stdout.flush()
