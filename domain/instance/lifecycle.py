"""Which request is allowed from which state: one table, checked by every decision.

Source: Nova 34's checks ("Cannot 'ACTION' instance UUID while it is in ATTRIBUTE VALUE"), HTTP 409.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import InstanceIsLocked, InstanceNotReady, InstanceWrongState
from domain.identifiers import ProjectId
from domain.instance.state import Instance, TaskState, VmState

IDLE: frozenset[TaskState | None] = frozenset({None})
SETTLED = frozenset({VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    action: str  # the word in Nova's message
    vm_states: frozenset[VmState] | None = None  # none: any
    task_states: frozenset[TaskState | None] | None = IDLE  # none: any
    needs_host: bool = False
    needs_launched: bool = False
    heeds_lock: bool = True


START = Request(action="start", vm_states=frozenset({VmState.STOPPED}), needs_host=True, needs_launched=True)
STOP = Request(
    action="stop", vm_states=frozenset({VmState.ACTIVE, VmState.ERROR}), needs_host=True, needs_launched=True
)
REBOOT_SOFT = Request(action="reboot", vm_states=frozenset({VmState.ACTIVE}), needs_launched=True)
REBOOT_HARD = Request(
    action="reboot",
    vm_states=SETTLED | {VmState.ERROR},
    task_states=frozenset(
        {
            None,
            TaskState.REBOOTING,
            TaskState.REBOOTING_HARD,
            TaskState.PAUSING,
            TaskState.UNPAUSING,
            TaskState.SUSPENDING,
            TaskState.RESUMING,
        }
    ),
    needs_launched=True,
)
PAUSE = Request(action="pause", vm_states=frozenset({VmState.ACTIVE}), needs_launched=True)
UNPAUSE = Request(action="unpause", vm_states=frozenset({VmState.PAUSED}), needs_launched=True)
SUSPEND = Request(action="suspend", vm_states=frozenset({VmState.ACTIVE}), needs_launched=True)
RESUME = Request(action="resume", vm_states=frozenset({VmState.SUSPENDED}), needs_launched=True)
CHANGE_PASSWORD = Request(action="changePassword", vm_states=frozenset({VmState.ACTIVE}), needs_launched=True)
DELETE = Request(action="delete", task_states=None)
CONSOLE_OUTPUT = Request(action="get console output", task_states=None, needs_host=True, heeds_lock=False)
UPDATE_METADATA = Request(action="update metadata", vm_states=SETTLED, task_states=None, needs_launched=True)
DELETE_METADATA = Request(action="delete metadata", vm_states=SETTLED, task_states=None, needs_launched=True)
UPDATE_TAG = Request(action="update tag", vm_states=SETTLED, task_states=None, heeds_lock=False)
UPDATE_TAGS = Request(action="update tags", vm_states=SETTLED, task_states=None, heeds_lock=False)
DELETE_TAG = Request(action="delete tag", vm_states=SETTLED, task_states=None, heeds_lock=False)
DELETE_TAGS = Request(action="delete tags", vm_states=SETTLED, task_states=None, heeds_lock=False)


def require(instance: Instance, request: Request, project_id: ProjectId | None) -> None:
    """Check a request against its row. `project_id`: whose request it is; none: an administrator's, whom no lock stops.

    Raises:
        InstanceIsLocked: HTTP answers 409.
        InstanceNotReady: it is not on a host yet; HTTP answers 409.
        InstanceWrongState: its vm_state, task_state or launched_at forbids it; HTTP answers 409.
    """
    if request.heeds_lock and instance.locked_by is not None and project_id is not None:
        raise InstanceIsLocked(instance.id)
    if request.needs_host and instance.residence is None:
        raise InstanceNotReady(instance.id)
    if request.vm_states is not None and instance.vm_state not in request.vm_states:
        raise InstanceWrongState(request.action, instance.id, "vm_state", instance.vm_state)
    if request.task_states is not None and instance.task_state not in request.task_states:
        raise InstanceWrongState(request.action, instance.id, "task_state", str(instance.task_state))
    if request.needs_launched and not instance.launched:
        raise InstanceWrongState(request.action, instance.id, "launched_at", "None")
