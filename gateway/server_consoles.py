"""Consoles that open in a browser. There is no proxy for any of them here: each is answered as a Nova without them does."""

from __future__ import annotations

from collections.abc import Mapping

from domain.errors import InstanceWrongState
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_action import ACTION
from gateway.server_host import host_of
from gateway.servers import find_server

OLD_ACTIONS = {
    "os-getVNCConsole": "get_vnc_console",
    "os-getSPICEConsole": "get_spice_console",
    "os-getSerialConsole": "get_serial_console",
}


class ServerConsoles:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        old: dict[HandlerKey, Handler] = {("POST", ACTION, action): self.old for action in OLD_ACTIONS}
        return old | {("POST", "/servers/{server_id}/remote-consoles"): self.create}

    async def create(self, request: Request) -> Response:
        asked = request.body["remote_console"]
        protocol = asked["protocol"]
        if protocol == "rdp":
            await find_server(self._backend, request, "id")
            raise Fault(400, "Unavailable console type rdp.")
        return await self._unavailable(request, f"get_{protocol}_console", asked["type"])

    async def old(self, request: Request) -> Response:
        assert request.action is not None
        return await self._unavailable(request, OLD_ACTIONS[request.action], request.body[request.action]["type"])

    async def _unavailable(self, request: Request, what: str, console_type: str) -> Response:
        """Raises:
        Fault: 400, always; InstanceNotReady, InstanceWrongState: 409, when the server could not have one at all.
        """
        server_id, _ = await host_of(self._backend, request)
        [task_state] = await find_server(self._backend, request, "task_state")
        if task_state == "deleting":
            raise InstanceWrongState(what, server_id, "task_state", task_state)
        raise Fault(400, f"Unavailable console type {console_type}.")
