"""An instance as its events have made it. `lifecycle.py` says which request is allowed from which state.

`task_state` is a request still waiting for its outcome. Nothing here has a clock: times are the recorded events'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import assert_never

from domain.errors import InstanceNotFound
from domain.identifiers import HostName, InstanceId, NodeId, ProjectId, ServiceId, UserId
from domain.instance.attributes import (
    AttributeEvent,
    InstanceAccessAddressesChanged,
    InstanceDescribed,
    InstanceDiskConfigChanged,
    InstanceHostnameChanged,
    InstanceLocked,
    InstanceMetadataRemoved,
    InstanceMetadataSet,
    InstanceRenamed,
    InstanceTagsAdded,
    InstanceTagsRemoved,
    InstanceUnlocked,
    InstanceZonePinned,
    InstanceZoneUnpinned,
    Locker,
)
from domain.instance.events import (
    AttachedInterface,
    InstanceCreateRequested,
    InstanceDeleted,
    InstanceDeleteFailed,
    InstanceDeleteRequested,
    InstanceEvent,
    InstanceOutcomeUnknown,
    InstancePowerStateObserved,
    InstancePurged,
    InstanceRebooted,
    InstanceRebootFailed,
    InstanceRebootRequested,
    InstanceScheduled,
    InstanceScheduleFailed,
    InstanceSpawned,
    InstanceSpawnFailed,
    InstanceStarted,
    InstanceStartFailed,
    InstanceStartRequested,
    InstanceStateReset,
    InstanceStopFailed,
    InstanceStopped,
    InstanceStopRequested,
)
from domain.instance.password import (
    InstancePasswordChanged,
    InstancePasswordChangeFailed,
    InstancePasswordChangeRequested,
)
from domain.instance.suspension import (
    InstancePaused,
    InstancePauseFailed,
    InstancePauseRequested,
    InstanceResumed,
    InstanceResumeFailed,
    InstanceResumeRequested,
    InstanceSuspended,
    InstanceSuspendFailed,
    InstanceSuspendRequested,
    InstanceUnpaused,
    InstanceUnpauseFailed,
    InstanceUnpauseRequested,
)


class VmState(StrEnum):
    BUILDING = "building"
    ACTIVE = "active"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    ERROR = "error"
    DELETED = "deleted"


class TaskState(StrEnum):
    SCHEDULING = "scheduling"
    SPAWNING = "spawning"
    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"
    PAUSING = "pausing"
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    RESUMING = "resuming"
    UPDATING_PASSWORD = "updating_password"
    DELETING = "deleting"


class PowerState(IntEnum):
    """As Nova shows it (OS-EXT-STS:power_state)."""

    NO_STATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """Where an instance is, or is being built."""

    host: HostName
    node_id: NodeId
    service_id: ServiceId
    availability_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    request: InstanceCreateRequested  # as it was asked for, with what was changed of it since
    vm_state: VmState
    task_state: TaskState | None
    power_state: int = PowerState.NO_STATE
    revision: int = 1  # events folded so far: the stream's version
    task_revision: int = 1  # the revision that the pending request made
    residence: Residence | None = None
    former_hosts: tuple[HostName, ...] = ()  # tried, or lived on; they may report late
    attempts: int = 0
    launched: bool = False
    interfaces: tuple[AttachedInterface, ...] = ()
    fault: str | None = None
    reboot_hard: bool = False
    grace_s: int = 60
    overdue: bool = False
    delete_asked: bool = False  # of its host, whatever came of it
    purge_pending: bool = False  # deleted for its user; its host may still hold it
    locked_by: Locker | None = None
    locked_reason: str | None = None

    @property
    def id(self) -> InstanceId:
        return self.request.instance_id

    @property
    def project_id(self) -> ProjectId:
        return self.request.project_id

    @property
    def subject(self) -> UserId:
        """Whose key seals a snapshot of this state."""
        return self.request.user_id

    @property
    def deleted(self) -> bool:
        return self.vm_state is VmState.DELETED


def known(instance: Instance | None) -> Instance:
    if instance is None:
        raise InstanceNotFound("(none)")
    return instance


def evolve(instance: Instance | None, event: InstanceEvent) -> Instance:
    if isinstance(event, InstanceCreateRequested):
        return Instance(request=event, vm_state=VmState.BUILDING, task_state=TaskState.SCHEDULING)
    instance = known(instance)
    match event:
        case InstanceScheduled():
            residence = Residence(
                host=event.host,
                node_id=event.node_id,
                service_id=event.service_id,
                availability_zone=event.availability_zone,
            )
            return _task(
                instance,
                TaskState.SPAWNING,
                residence=residence,
                attempts=event.attempt,
                interfaces=event.interfaces,
            )
        case InstanceScheduleFailed():
            return _idle(instance, vm_state=VmState.ERROR, fault=event.message)
        case InstanceSpawned():
            return _idle(instance, vm_state=VmState.ACTIVE, power_state=event.power_state, launched=True)
        case InstanceSpawnFailed():
            former = (*instance.former_hosts, event.host)
            return _task(instance, TaskState.SCHEDULING, residence=None, former_hosts=former)
        case InstanceStartRequested():
            return _task(instance, TaskState.POWERING_ON)
        case InstanceStarted():
            return _idle(instance, vm_state=VmState.ACTIVE, power_state=event.power_state)
        case InstanceStopRequested():
            return _task(instance, TaskState.POWERING_OFF, grace_s=event.grace_s)
        case InstanceStopped():
            return _idle(instance, vm_state=VmState.STOPPED, power_state=event.power_state)
        case InstanceRebootRequested():
            task = TaskState.REBOOTING_HARD if event.hard else TaskState.REBOOTING
            return _task(instance, task, reboot_hard=event.hard, grace_s=event.grace_s)
        case InstanceRebooted():
            return _idle(instance, vm_state=VmState.ACTIVE, power_state=event.power_state, fault=None)
        case InstanceStartFailed() | InstanceStopFailed():
            return _idle(instance, fault=event.message)
        case InstanceRebootFailed():
            return _idle(instance, vm_state=VmState.ERROR, fault=event.message)
        case InstanceDeleteRequested():
            return _task(instance, TaskState.DELETING, delete_asked=True)
        case InstanceDeleteFailed():
            return _idle(instance, vm_state=VmState.ERROR, fault=event.message)
        case InstanceDeleted():
            return _idle(
                instance,
                vm_state=VmState.DELETED,
                power_state=PowerState.NO_STATE,
                purge_pending=event.purge_pending,
                # A purge still to come is a request of its own: its host has settled the last one.
                task_revision=instance.revision + 1 if event.purge_pending else instance.task_revision,
            )
        case InstancePurged():
            return _next(instance, purge_pending=False)
        case InstancePowerStateObserved():
            return _observed(instance, event.power_state)
        case InstanceOutcomeUnknown():
            return _next(instance, overdue=True)
        case InstanceStateReset():  # whether it runs, its host will say
            return _idle(instance, vm_state=VmState(event.vm_state), power_state=PowerState.NO_STATE)
        case InstancePauseRequested():
            return _task(instance, TaskState.PAUSING)
        case InstancePaused():
            return _idle(instance, vm_state=VmState.PAUSED, power_state=event.power_state)
        case InstanceUnpauseRequested():
            return _task(instance, TaskState.UNPAUSING)
        case InstanceSuspendRequested():
            return _task(instance, TaskState.SUSPENDING)
        case InstanceSuspended():
            return _idle(instance, vm_state=VmState.SUSPENDED, power_state=event.power_state)
        case InstanceResumeRequested():
            return _task(instance, TaskState.RESUMING)
        case InstanceUnpaused() | InstanceResumed():
            return _idle(instance, vm_state=VmState.ACTIVE, power_state=event.power_state)
        case InstancePasswordChangeRequested():
            request = replace(instance.request, admin_password=event.password)
            return _task(instance, TaskState.UPDATING_PASSWORD, request=request)
        case InstancePasswordChanged():
            return _idle(instance, power_state=event.power_state)
        case InstancePauseFailed() | InstanceUnpauseFailed() | InstancePasswordChangeFailed():
            return _idle(instance, fault=event.message)
        case InstanceSuspendFailed() | InstanceResumeFailed():
            return _idle(instance, vm_state=VmState.ERROR, fault=event.message)
        case _:
            return _changed(instance, event)


def _changed(instance: Instance, event: AttributeEvent) -> Instance:
    request = instance.request
    match event:
        case InstanceRenamed():
            return _asked(instance, name=event.name)
        case InstanceDescribed():
            return _asked(instance, description=event.description)
        case InstanceHostnameChanged():
            return _asked(instance, hostname=event.hostname)
        case InstanceAccessAddressesChanged():
            return _asked(instance, access_ipv4=event.access_ipv4, access_ipv6=event.access_ipv6)
        case InstanceDiskConfigChanged():
            return _asked(instance, disk_config=event.disk_config)
        case InstanceZonePinned():
            return _asked(instance, pinned_availability_zone=event.availability_zone)
        case InstanceZoneUnpinned():
            return _asked(instance, pinned_availability_zone=None)
        case InstanceMetadataSet():
            return _asked(instance, metadata={**request.metadata, **event.metadata})
        case InstanceMetadataRemoved():
            return _asked(instance, metadata={k: v for k, v in request.metadata.items() if k not in event.keys})
        case InstanceTagsAdded():
            return _asked(instance, tags=(*request.tags, *event.tags))
        case InstanceTagsRemoved():
            return _asked(instance, tags=tuple(tag for tag in request.tags if tag not in event.tags))
        case InstanceLocked():
            reason = event.reason or instance.locked_reason
            return _next(instance, locked_by=event.locked_by, locked_reason=reason)
        case InstanceUnlocked():
            return _next(instance, locked_by=None, locked_reason=None)
        case _:
            assert_never(event)


def _next(instance: Instance, **changes: object) -> Instance:
    return replace(instance, revision=instance.revision + 1, **changes)  # type: ignore[arg-type]


def _asked(instance: Instance, **changes: object) -> Instance:
    return _next(instance, request=replace(instance.request, **changes))  # type: ignore[arg-type]


def _task(instance: Instance, task: TaskState, **changes: object) -> Instance:
    return _next(instance, task_state=task, task_revision=instance.revision + 1, overdue=False, **changes)


def _idle(instance: Instance, **changes: object) -> Instance:
    return _next(instance, task_state=None, overdue=False, **changes)


def _observed(instance: Instance, power_state: int) -> Instance:
    """Power seen without a request: an active or paused instance found off is stopped (Nova's power state sync)."""
    if (
        instance.vm_state in (VmState.ACTIVE, VmState.PAUSED)
        and instance.task_state is None
        and power_state in (PowerState.SHUTDOWN, PowerState.CRASHED)
    ):
        return _next(instance, vm_state=VmState.STOPPED, power_state=power_state)
    return _next(instance, power_state=power_state)
