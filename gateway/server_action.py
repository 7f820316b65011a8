"""POST /servers/{id}/action: one action body → one command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from commands.instance.delete import DeleteInstance
from commands.instance.lock import LockInstance, UnlockInstance
from commands.instance.power import RebootInstance, StartInstance, StopInstance
from commands.instance.reset import ResetInstanceState
from commands.instance.suspension import PauseInstance, ResumeInstance, SuspendInstance, UnpauseInstance
from domain.errors import InstanceIsLocked, InstanceLockedByAdmin
from domain.identifiers import ProjectId
from gateway.backend import Backend, QueryFailed, QueryUnanswered
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_host import host_of, unanswered_by_host
from gateway.server_view import ADMINISTRATOR
from gateway.servers import find_server, server_in_scope

ACTION = "/servers/{server_id}/action"
OVERRIDE_LOCK = "os_compute_api:os-lock-server:unlock:unlock_override"

# Actions that say nothing but which server: each is one command.
_PLAIN: Mapping[str, Callable[..., Any]] = {
    "os-start": StartInstance,
    "pause": PauseInstance,
    "unpause": UnpauseInstance,
    "suspend": SuspendInstance,
    "resume": ResumeInstance,
    "forceDelete": DeleteInstance,
}


class ServerActions:
    def __init__(self, backend: Backend, shutdown_timeout_s: int) -> None:
        self._backend = backend
        self._grace_s = shutdown_timeout_s

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        plain: dict[HandlerKey, Handler] = {("POST", ACTION, action): self.plain for action in _PLAIN}
        return plain | {
            ("POST", ACTION, "os-stop"): self.stop,
            ("POST", ACTION, "reboot"): self.reboot,
            ("POST", ACTION, "lock"): self.lock,
            ("POST", ACTION, "unlock"): self.unlock,
            ("POST", ACTION, "os-resetState"): self.reset_state,
            ("POST", ACTION, "injectNetworkInfo"): self.inject_network_info,
            ("POST", ACTION, "os-getConsoleOutput"): self.console_output,
        }

    async def plain(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        assert request.action is not None
        await self._backend.ask(request, _PLAIN[request.action](instance_id=instance_id, project_id=project_id))
        return Response(status=202)

    async def stop(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        command = StopInstance(instance_id=instance_id, project_id=project_id, grace_s=self._grace_s)
        await self._backend.ask(request, command)
        return Response(status=202)

    async def reboot(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        hard = request.body["reboot"]["type"].upper() == "HARD"
        command = RebootInstance(instance_id=instance_id, project_id=project_id, hard=hard, grace_s=self._grace_s)
        await self._backend.ask(request, command)
        return Response(status=202)

    async def lock(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        asked = request.body["lock"]
        reason = asked.get("locked_reason") if request.version >= V(2, 73) and asked else None
        command = LockInstance(
            instance_id=instance_id,
            project_id=project_id,
            by_project=ProjectId(request.project_id),
            reason=reason,
        )
        await self._backend.ask(request, command)
        return Response(status=202)

    async def unlock(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        command = UnlockInstance(
            instance_id=instance_id,
            project_id=project_id,
            by_project=ProjectId(request.project_id),
            override=request.allows(OVERRIDE_LOCK),
        )
        try:
            await self._backend.ask(request, command)
        except InstanceLockedByAdmin:
            request.require(OVERRIDE_LOCK)
            raise
        return Response(status=202)

    async def reset_state(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        state = request.body["os-resetState"]["state"]
        command = ResetInstanceState(instance_id=instance_id, project_id=project_id, vm_state=state)
        await self._backend.ask(request, command)
        return Response(status=202)

    async def inject_network_info(self, request: Request) -> Response:
        """A guest learns its addresses by itself; as under Nova's libvirt driver, nothing is put into it."""
        server_id, locked = await find_server(self._backend, request, "id, is_locked")
        if locked and not request.allows(ADMINISTRATOR):
            raise InstanceIsLocked(server_id)
        return Response(status=202)

    async def console_output(self, request: Request) -> Response:
        """The last lines of the serial console. A length of −1 or null is all that the host keeps (100 KiB)."""
        server_id, service_id = await host_of(self._backend, request)
        try:
            console = await self._backend.console(service_id, server_id)
        except QueryFailed as failed:
            raise Fault(404, f"Guest does not have a console available: {failed}") from None
        except QueryUnanswered as unanswered:
            raise unanswered_by_host(unanswered) from None
        text = console.decode("utf-8", "replace")
        length = request.body["os-getConsoleOutput"].get("length")
        if length is not None and int(length) >= 0:
            lines = text.split("\n")
            text = "\n".join(lines[-int(length) :] if int(length) else [])
        # XML 1.0 has no way to say some control characters, and old clients parse this as XML: Nova drops them too.
        return Response({"output": "".join(c for c in text if c >= " " or c in "\t\n\r")})
