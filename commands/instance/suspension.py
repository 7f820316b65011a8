"""PauseInstance, SuspendInstance, and back: each asks; the host's report tells what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import InstanceId, ProjectId
from domain.instance.events import InstanceEvent
from domain.instance.lifecycle import PAUSE, RESUME, SUSPEND, UNPAUSE, require
from domain.instance.state import Instance
from domain.instance.suspension import (
    InstancePauseRequested,
    InstanceResumeRequested,
    InstanceSuspendRequested,
    InstanceUnpauseRequested,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseInstance:
    instance_id: InstanceId
    project_id: ProjectId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseInstance:
    instance_id: InstanceId
    project_id: ProjectId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendInstance:
    instance_id: InstanceId
    project_id: ProjectId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeInstance:
    instance_id: InstanceId
    project_id: ProjectId | None


def decide_pause(command: PauseInstance, instance: Instance) -> list[InstanceEvent]:
    """Hold a running guest in memory (Nova API 2.1, pause).

    Raises:
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    require(instance, PAUSE, command.project_id)
    return [InstancePauseRequested(instance_id=instance.id)]


def decide_unpause(command: UnpauseInstance, instance: Instance) -> list[InstanceEvent]:
    """Let a paused guest go on (Nova API 2.1, unpause).

    Raises:
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    require(instance, UNPAUSE, command.project_id)
    return [InstanceUnpauseRequested(instance_id=instance.id)]


def decide_suspend(command: SuspendInstance, instance: Instance) -> list[InstanceEvent]:
    """Put a running guest's memory on disk (Nova API 2.1, suspend).

    Raises:
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    require(instance, SUSPEND, command.project_id)
    return [InstanceSuspendRequested(instance_id=instance.id)]


def decide_resume(command: ResumeInstance, instance: Instance) -> list[InstanceEvent]:
    """Let a suspended guest go on from where it was (Nova API 2.1, resume).

    Raises:
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    require(instance, RESUME, command.project_id)
    return [InstanceResumeRequested(instance_id=instance.id)]
