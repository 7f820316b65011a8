"""StartInstance, StopInstance, RebootInstance: each asks; the host's report tells what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from commands.states import Decision, States
from domain.identifiers import InstanceId, ProjectId, instance_stream
from domain.instance.events import (
    InstanceEvent,
    InstanceRebootRequested,
    InstanceStartRequested,
    InstanceStopRequested,
)
from domain.instance.lifecycle import REBOOT_HARD, REBOOT_SOFT, START, STOP, require
from domain.instance.state import Instance

SHUTDOWN_GRACE_S = 60  # Nova's [DEFAULT] shutdown_timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInstance:
    instance_id: InstanceId
    project_id: ProjectId | None  # whose it must be; none: anyone's


@dataclass(frozen=True, slots=True, kw_only=True)
class StopInstance:
    instance_id: InstanceId
    project_id: ProjectId | None
    grace_s: int = SHUTDOWN_GRACE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootInstance:
    instance_id: InstanceId
    project_id: ProjectId | None
    hard: bool
    grace_s: int = SHUTDOWN_GRACE_S


def decide_start(command: StartInstance, instance: Instance) -> list[InstanceEvent]:
    """Start a stopped guest (Nova API 2.1, os-start).

    Raises:
        InstanceIsLocked, InstanceWrongState, InstanceNotReady: HTTP answers 409.
    """
    require(instance, START, command.project_id)
    return [InstanceStartRequested(instance_id=instance.id)]


def decide_stop(command: StopInstance, instance: Instance) -> list[InstanceEvent]:
    """Ask the guest to shut down (Nova API 2.1, os-stop).

    Raises:
        InstanceIsLocked, InstanceWrongState, InstanceNotReady: HTTP answers 409.
    """
    require(instance, STOP, command.project_id)
    return [InstanceStopRequested(instance_id=instance.id, grace_s=command.grace_s)]


def decide_reboot(command: RebootInstance, instance: Instance) -> list[InstanceEvent]:
    """Reboot, softly or by cutting its power (Nova API 2.1, reboot).

    Raises:
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    require(instance, REBOOT_HARD if command.hard else REBOOT_SOFT, command.project_id)
    return [InstanceRebootRequested(instance_id=instance.id, hard=command.hard, grace_s=command.grace_s)]


class OnInstance(Protocol):
    """A command that is about one instance only."""

    @property
    def instance_id(self) -> InstanceId: ...
    @property
    def project_id(self) -> ProjectId | None: ...


def on_instance(decide: Callable[[Any, Instance], list[InstanceEvent]]) -> Callable[[Any, States], Decision]:
    """A decision about one instance, as one over all states: finds the instance, in the caller's scope.

    Raises:
        InstanceNotFound: there is none, it is deleted, or it is another project's; HTTP answers 404.
    """

    def decide_over(command: OnInstance, states: States) -> Decision:
        instance = states.live_instance(command.instance_id, command.project_id)
        stream = instance_stream(command.instance_id)
        return [(stream, event) for event in decide(command, instance)]

    return decide_over
