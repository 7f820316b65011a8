"""A guest that is held and let go on: paused, where it stays in memory, and suspended, where its memory lies on the host's
disk. `state.py` folds these.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePauseRequested:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePaused:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePauseFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUnpauseRequested:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUnpaused:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUnpauseFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSuspendRequested:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSuspended:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSuspendFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResumeRequested:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResumed:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResumeFailed:
    instance_id: InstanceId
    message: str


SuspensionEvent = (
    InstancePauseRequested
    | InstancePaused
    | InstancePauseFailed
    | InstanceUnpauseRequested
    | InstanceUnpaused
    | InstanceUnpauseFailed
    | InstanceSuspendRequested
    | InstanceSuspended
    | InstanceSuspendFailed
    | InstanceResumeRequested
    | InstanceResumed
    | InstanceResumeFailed
)

SUSPENSION_EVENTS = {
    "instance.pause_requested": InstancePauseRequested,
    "instance.paused": InstancePaused,
    "instance.pause_failed": InstancePauseFailed,
    "instance.unpause_requested": InstanceUnpauseRequested,
    "instance.unpaused": InstanceUnpaused,
    "instance.unpause_failed": InstanceUnpauseFailed,
    "instance.suspend_requested": InstanceSuspendRequested,
    "instance.suspended": InstanceSuspended,
    "instance.suspend_failed": InstanceSuspendFailed,
    "instance.resume_requested": InstanceResumeRequested,
    "instance.resumed": InstanceResumed,
    "instance.resume_failed": InstanceResumeFailed,
}
