"""The `status` a user sees, derived from vm_state and task_state, never stored as a fact. Source: Nova 34's status table."""

from __future__ import annotations

from domain.instance.state import Instance, TaskState, VmState

_STATUS: dict[VmState, str] = {
    VmState.BUILDING: "BUILD",
    VmState.ACTIVE: "ACTIVE",
    VmState.PAUSED: "PAUSED",
    VmState.SUSPENDED: "SUSPENDED",
    VmState.STOPPED: "SHUTOFF",
    VmState.ERROR: "ERROR",
    VmState.DELETED: "DELETED",
}
_BY_TASK: dict[tuple[VmState, TaskState | None], str] = {
    (VmState.ACTIVE, TaskState.REBOOTING): "REBOOT",
    (VmState.ACTIVE, TaskState.REBOOTING_HARD): "HARD_REBOOT",
    (VmState.ACTIVE, TaskState.UPDATING_PASSWORD): "PASSWORD",
}

STATUSES_WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})
STATUSES_WITH_FAULT = frozenset({"ERROR", "DELETED"})


def status_of(instance: Instance) -> str:
    return _BY_TASK.get((instance.vm_state, instance.task_state)) or _STATUS[instance.vm_state]


def states_of(status: str) -> list[tuple[VmState, TaskState | None]] | None:
    """What a status filter means: vm_states, each with the task_state it needs (None: any other). None: no such status."""
    wanted = status.upper()
    by_task = [key for key, name in _BY_TASK.items() if name == wanted]
    by_state: list[tuple[VmState, TaskState | None]] = [(s, None) for s, name in _STATUS.items() if name == wanted]
    if by_task or by_state:
        return [*by_task, *by_state]
    return [] if wanted in KNOWN_STATUSES else None


KNOWN_STATUSES = frozenset(
    {
        "ACTIVE",
        "BUILD",
        "DELETED",
        "ERROR",
        "HARD_REBOOT",
        "MIGRATING",
        "PASSWORD",
        "PAUSED",
        "REBOOT",
        "REBUILD",
        "RESCUE",
        "RESIZE",
        "REVERT_RESIZE",
        "SHELVED",
        "SHELVED_OFFLOADED",
        "SHUTOFF",
        "SOFT_DELETED",
        "SUSPENDED",
        "UNKNOWN",
        "VERIFY_RESIZE",
    }
)
