"""LockInstance, UnlockInstance: while it is locked, only administrators may act on an instance."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import InstanceLockedByAdmin
from domain.identifiers import InstanceId, ProjectId
from domain.instance.attributes import InstanceLocked, InstanceUnlocked, Locker
from domain.instance.events import InstanceEvent
from domain.instance.state import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInstance:
    instance_id: InstanceId
    project_id: ProjectId | None
    by_project: ProjectId  # of who asks: an owner's lock is another than an administrator's
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockInstance:
    instance_id: InstanceId
    project_id: ProjectId | None
    by_project: ProjectId
    override: bool  # whether who asks may lift a lock of the other kind


def decide_lock(command: LockInstance, instance: Instance) -> list[InstanceEvent]:
    """Lock (Nova API 2.1, lock; a reason from 2.73). What is locked already is locked again by administrators only."""
    by = _locker(command.by_project, instance)
    if instance.locked_by is not None and by == "owner":
        return []
    return [
        InstanceLocked(
            instance_id=instance.id, user_id=instance.request.user_id, locked_by=by, reason=command.reason or None
        )
    ]


def decide_unlock(command: UnlockInstance, instance: Instance) -> list[InstanceEvent]:
    """Unlock (Nova API 2.1, unlock).

    Raises:
        InstanceLockedByAdmin: the lock is of the other kind, without the right to override it; HTTP answers 403.
    """
    if instance.locked_by not in (None, _locker(command.by_project, instance)) and not command.override:
        raise InstanceLockedByAdmin(f"Instance {instance.id} was locked by an administrator")
    return [InstanceUnlocked(instance_id=instance.id)]


def _locker(by_project: ProjectId, instance: Instance) -> Locker:
    return "owner" if by_project == instance.project_id else "admin"
