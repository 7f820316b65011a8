"""Which request is allowed from which state: one table, checked by every decision.

Source: Nova 34's checks ("Cannot 'ACTION' instance UUID while it is in ATTRIBUTE VALUE"), HTTP 409.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import InstanceNotReady, InstanceWrongState
from domain.instance.state import Instance, TaskState, VmState


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    action: str  # the word in Nova's message
    vm_states: frozenset[VmState] | None = None  # none: any
    task_states: frozenset[TaskState | None] | None = frozenset({None})  # none: any
    needs_host: bool = False
    needs_launched: bool = False


START = Request(action="start", vm_states=frozenset({VmState.STOPPED}), needs_host=True, needs_launched=True)
STOP = Request(
    action="stop", vm_states=frozenset({VmState.ACTIVE, VmState.ERROR}), needs_host=True, needs_launched=True
)
REBOOT_SOFT = Request(action="reboot", vm_states=frozenset({VmState.ACTIVE}), needs_launched=True)
REBOOT_HARD = Request(
    action="reboot",
    vm_states=frozenset({VmState.ACTIVE, VmState.STOPPED, VmState.ERROR}),
    task_states=frozenset({None, TaskState.REBOOTING, TaskState.REBOOTING_HARD}),
    needs_launched=True,
)
DELETE = Request(action="delete", task_states=None)
CONSOLE_OUTPUT = Request(action="get console output", task_states=None, needs_host=True)


def require(instance: Instance, request: Request) -> None:
    """Check a request against its row.

    Raises:
        InstanceNotReady: it is not on a host yet; HTTP answers 409.
        InstanceWrongState: its vm_state, task_state or launched_at forbids it; HTTP answers 409.
    """
    if request.needs_host and instance.residence is None:
        raise InstanceNotReady(instance.id)
    if request.vm_states is not None and instance.vm_state not in request.vm_states:
        raise InstanceWrongState(request.action, instance.id, "vm_state", instance.vm_state)
    if request.task_states is not None and instance.task_state not in request.task_states:
        raise InstanceWrongState(request.action, instance.id, "task_state", str(instance.task_state))
    if request.needs_launched and not instance.launched:
        raise InstanceWrongState(request.action, instance.id, "launched_at", "None")
