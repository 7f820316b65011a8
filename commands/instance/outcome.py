"""What host agents report, decided into events. A report about anything but the pending request changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commands.instance.delete import gone
from commands.orders import Act
from commands.reports import ObservationReport, OutcomeReport
from commands.states import Decision, States
from domain.errors import ReportNotYours, ReportSuperseded
from domain.identifiers import InstanceId, instance_stream, provider_stream
from domain.instance.events import (
    InstanceDeleteFailed,
    InstanceEvent,
    InstanceOutcomeUnknown,
    InstancePowerStateObserved,
    InstancePurged,
    InstanceRebooted,
    InstanceRebootFailed,
    InstanceSpawned,
    InstanceSpawnFailed,
    InstanceStarted,
    InstanceStartFailed,
    InstanceStopFailed,
    InstanceStopped,
)
from domain.instance.password import InstancePasswordChanged, InstancePasswordChangeFailed
from domain.instance.state import Instance, TaskState
from domain.instance.suspension import (
    InstancePaused,
    InstancePauseFailed,
    InstanceResumed,
    InstanceResumeFailed,
    InstanceSuspended,
    InstanceSuspendFailed,
    InstanceUnpaused,
    InstanceUnpauseFailed,
)
from domain.resource_provider import ProviderReleased

# The pending request that an act settles, and the events of its two ends.
_SETTLES: dict[Act, tuple[tuple[TaskState, ...], Any, Any]] = {
    Act.POWER_ON: ((TaskState.POWERING_ON,), InstanceStarted, InstanceStartFailed),
    Act.POWER_OFF: ((TaskState.POWERING_OFF,), InstanceStopped, InstanceStopFailed),
    Act.REBOOT: ((TaskState.REBOOTING, TaskState.REBOOTING_HARD), InstanceRebooted, InstanceRebootFailed),
    Act.PAUSE: ((TaskState.PAUSING,), InstancePaused, InstancePauseFailed),
    Act.UNPAUSE: ((TaskState.UNPAUSING,), InstanceUnpaused, InstanceUnpauseFailed),
    Act.SUSPEND: ((TaskState.SUSPENDING,), InstanceSuspended, InstanceSuspendFailed),
    Act.SET_PASSWORD: ((TaskState.UPDATING_PASSWORD,), InstancePasswordChanged, InstancePasswordChangeFailed),
    Act.RESUME: ((TaskState.RESUMING,), InstanceResumed, InstanceResumeFailed),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOutcome:
    report: OutcomeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordObservation:
    report: ObservationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkOverdue:
    instance_id: InstanceId
    task_revision: int
    waited_s: int


def decide_outcome(command: RecordOutcome, states: States) -> Decision:
    """Settle the pending request of an instance.

    Raises:
        ReportNotYours: the host neither holds nor held it.
        ReportSuperseded: the request is settled, or another one is pending by now.
    """
    report = command.report
    instance = _of_host(report.instance_id, report, states)
    if report.act is Act.PURGE:
        return _purged(instance, report)
    if instance.task_revision != report.task_revision or _host_of(instance) != report.host:
        raise ReportSuperseded(f"instance {instance.id} waits for something else by now")
    if report.act is Act.SPAWN:
        return _spawned(instance, report)
    tasks, done, failed = _SETTLES[report.act]
    if instance.task_state not in tasks:
        raise ReportSuperseded(f"instance {instance.id} does not wait for {report.act}")
    event: InstanceEvent = (
        done(instance_id=instance.id, power_state=report.power_state)
        if report.succeeded
        else failed(instance_id=instance.id, message=report.message)
    )
    return [(instance_stream(instance.id), event)]


def decide_observation(command: RecordObservation, states: States) -> Decision:
    """A guest's power changed on its own. Moot while a request is pending, or when it is older than the last one.

    Raises:
        ReportNotYours, ReportSuperseded.
    """
    report = command.report
    instance = _of_host(report.instance_id, report, states)
    if (
        instance.deleted
        or instance.task_state is not None
        or _host_of(instance) != report.host
        or report.generation < instance.task_revision
    ):
        raise ReportSuperseded(f"instance {instance.id} has moved on")
    if instance.power_state == report.power_state:
        return []
    event = InstancePowerStateObserved(instance_id=instance.id, power_state=report.power_state)
    return [(instance_stream(instance.id), event)]


def decide_overdue(command: MarkOverdue, states: States) -> Decision:
    """A request missed its deadline: say so, and assume nothing."""
    instance = states.instance(command.instance_id)
    if (
        instance is None
        or instance.task_state is None
        or instance.task_revision != command.task_revision
        or instance.overdue
    ):
        return []
    event = InstanceOutcomeUnknown(instance_id=instance.id, task_state=instance.task_state, waited_s=command.waited_s)
    return [(instance_stream(instance.id), event)]


def _spawned(instance: Instance, report: OutcomeReport) -> Decision:
    if instance.task_state is not TaskState.SPAWNING or instance.residence is None:
        raise ReportSuperseded(f"instance {instance.id} is not being spawned")
    stream = instance_stream(instance.id)
    if report.succeeded:
        return [(stream, InstanceSpawned(instance_id=instance.id, power_state=report.power_state))]
    failed = InstanceSpawnFailed(instance_id=instance.id, host=instance.residence.host, message=report.message)
    return [(stream, failed), *_released(instance)]


def _purged(instance: Instance, report: OutcomeReport) -> Decision:
    """A purge that failed may have been tried again before its host heard that the failure was recorded: once a delete was
    asked, a host that says that the guest is gone is believed, whatever the instance waits for by now."""
    stream = instance_stream(instance.id)
    if _host_of(instance) != report.host:
        return []  # a former host has cleaned up; nothing of the instance depends on it
    if instance.purge_pending:
        if not report.succeeded:
            raise ReportSuperseded(f"instance {instance.id} is gone for its user; its host will try again")
        return [(stream, InstancePurged(instance_id=instance.id)), *_released(instance)]
    if report.succeeded and instance.delete_asked and not instance.deleted:
        return [*gone(instance, purge_pending=False), *_released(instance)]
    if (
        report.succeeded
        or instance.task_state is not TaskState.DELETING
        or instance.task_revision != report.task_revision
    ):
        raise ReportSuperseded(f"instance {instance.id} is not being deleted")
    return [(stream, InstanceDeleteFailed(instance_id=instance.id, message=report.message))]


def _released(instance: Instance) -> Decision:
    assert instance.residence is not None
    node_id = instance.residence.node_id
    return [(provider_stream(node_id), ProviderReleased(node_id=node_id, consumer_id=instance.id))]


def _host_of(instance: Instance) -> str | None:
    return None if instance.residence is None else instance.residence.host


def _of_host(instance_id: InstanceId, report: OutcomeReport | ObservationReport, states: States) -> Instance:
    """The instance, if the reporting host holds it or did: named as it was chosen, by the service it was chosen with."""
    instance = states.instance(instance_id)
    residence = None if instance is None else instance.residence
    if instance is None or report.host not in (_host_of(instance), *instance.former_hosts):
        raise ReportNotYours(f"host {report.host} neither holds nor held instance {instance_id}")
    if residence is not None and residence.host == report.host and residence.service_id != report.service_id:
        raise ReportNotYours(f"service {report.service_id} is not the host {report.host} that holds {instance_id}")
    return instance
