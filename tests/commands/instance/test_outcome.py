"""What hosts report is recorded only if it settles the pending request of one of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from commands.instance.outcome import MarkOverdue, RecordObservation, RecordOutcome
from commands.orders import Act
from commands.reports import ObservationReport, OutcomeReport
from domain.errors import ReportNotYours, ReportSuperseded
from domain.instance.events import (
    InstanceDeleteFailed,
    InstanceOutcomeUnknown,
    InstancePowerStateObserved,
    InstancePurged,
    InstanceRebooted,
    InstanceRebootFailed,
    InstanceScheduled,
    InstanceSpawnFailed,
    InstanceStarted,
    InstanceStartFailed,
    InstanceStopFailed,
    InstanceStopped,
)
from domain.instance.state import PowerState
from domain.resource_provider import ProviderReleased
from tests.support.decisions import (
    BETA,
    BETA_NODE,
    BETA_SERVICE,
    HOST,
    INSTANCE,
    NODE,
    REASON,
    SERVICE,
    USER,
    active,
    building,
    claimed,
    delete_requested,
    deleted,
    deleted_with_host_away,
    given,
    hard_reboot_requested,
    host_events,
    host_went_down,
    off,
    reboot_requested,
    released_quota,
    spawned,
    spawning,
    start_requested,
    stop_requested,
)

released_claim = ProviderReleased(node_id=NODE, consumer_id=INSTANCE)


def outcome(act: Act, revision: int, *, succeeded: bool = True, power: int = 1, **changes: Any) -> RecordOutcome:
    report = OutcomeReport(
        report_id="a-report",
        service_id=SERVICE,
        host=HOST,
        order_id=f"{INSTANCE}/{revision}",
        instance_id=INSTANCE,
        task_revision=revision,
        act=act,
        succeeded=succeeded,
        power_state=power,
        message="" if succeeded else "it broke",
    )
    return RecordOutcome(report=replace(report, **changes))


def observation(power: PowerState, generation: int = 3, **changes: Any) -> RecordObservation:
    report = ObservationReport(
        report_id="a-report",
        service_id=SERVICE,
        host=HOST,
        sequence=1,
        instance_id=INSTANCE,
        generation=generation,
        power_state=power,
    )
    return RecordObservation(report=replace(report, **changes))


# A guest on its host has had three events when it is active, five when it is off.
SETTLED: list[tuple[str, tuple[Any, ...], RecordOutcome, tuple[Any, ...]]] = [
    ("spawned", spawning, outcome(Act.SPAWN, 2), (spawned,)),
    (
        "not spawned",
        spawning,
        outcome(Act.SPAWN, 2, succeeded=False),
        (InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="it broke"), released_claim),
    ),
    (
        "stopped",
        (*active, stop_requested),
        outcome(Act.POWER_OFF, 4, power=4),
        (InstanceStopped(instance_id=INSTANCE, power_state=4),),
    ),
    (
        "not stopped",
        (*active, stop_requested),
        outcome(Act.POWER_OFF, 4, succeeded=False),
        (InstanceStopFailed(instance_id=INSTANCE, message="it broke"),),
    ),
    (
        "started",
        (*off, start_requested),
        outcome(Act.POWER_ON, 6),
        (InstanceStarted(instance_id=INSTANCE, power_state=1),),
    ),
    (
        "not started",
        (*off, start_requested),
        outcome(Act.POWER_ON, 6, succeeded=False),
        (InstanceStartFailed(instance_id=INSTANCE, message="it broke"),),
    ),
    (
        "rebooted",
        (*active, reboot_requested),
        outcome(Act.REBOOT, 4),
        (InstanceRebooted(instance_id=INSTANCE, power_state=1),),
    ),
    (
        "rebooted hard",
        (*active, hard_reboot_requested),
        outcome(Act.REBOOT, 4),
        (InstanceRebooted(instance_id=INSTANCE, power_state=1),),
    ),
    (
        "not rebooted",
        (*active, reboot_requested),
        outcome(Act.REBOOT, 4, succeeded=False),
        (InstanceRebootFailed(instance_id=INSTANCE, message="it broke"),),
    ),
    (
        "purged",
        (*active, delete_requested),
        outcome(Act.PURGE, 4, power=0),
        (deleted, released_quota, released_claim),
    ),
    (
        "not purged",
        (*active, delete_requested),
        outcome(Act.PURGE, 4, succeeded=False),
        (InstanceDeleteFailed(instance_id=INSTANCE, message="it broke"),),
    ),
    (
        "purged late",
        (*active, deleted_with_host_away, released_quota),
        outcome(Act.PURGE, 2, power=0),
        (InstancePurged(instance_id=INSTANCE), released_claim),
    ),
]


@pytest.mark.parametrize(
    ("events", "report", "expected"), [row[1:] for row in SETTLED], ids=[row[0] for row in SETTLED]
)
def test_a_report_settles_what_it_is_about(
    events: tuple[Any, ...], report: RecordOutcome, expected: tuple[Any, ...]
) -> None:
    given(*events).when(report).then(*expected)


@pytest.mark.parametrize(
    ("events", "report", "expected"), [row[1:] for row in SETTLED], ids=[row[0] for row in SETTLED]
)
def test_the_same_report_under_another_name_is_superseded(
    events: tuple[Any, ...], report: RecordOutcome, expected: tuple[Any, ...]
) -> None:
    again = given(*events).when(report).and_then().when(report)

    if report.report.act is Act.SPAWN and not report.report.succeeded:
        again.then_refused(ReportSuperseded)  # the host is a former one by now
    else:
        again.then_refused(ReportSuperseded)


@pytest.mark.parametrize(
    ("events", "report", "expected"), [row[1:] for row in SETTLED], ids=[row[0] for row in SETTLED]
)
def test_a_host_that_has_nothing_to_do_with_it_is_not_believed(
    events: tuple[Any, ...], report: RecordOutcome, expected: tuple[Any, ...]
) -> None:
    forged = RecordOutcome(report=replace(report.report, host=BETA))

    given(*events).when(forged).then_refused(ReportNotYours)


def test_a_report_about_an_instance_that_never_was_is_not_believed() -> None:
    given().when(outcome(Act.SPAWN, 2)).then_refused(ReportNotYours)
    given(*building).when(outcome(Act.SPAWN, 2)).then_refused(ReportNotYours)


def test_a_report_about_an_earlier_request_is_superseded() -> None:
    given(*active, reboot_requested, hard_reboot_requested).when(outcome(Act.REBOOT, 4)).then_refused(ReportSuperseded)


def test_a_spawn_that_ends_after_its_delete_was_asked_is_superseded() -> None:
    given(*spawning, delete_requested).when(outcome(Act.SPAWN, 2)).then_refused(ReportSuperseded)


def test_a_report_about_another_act_settles_nothing() -> None:
    given(*active, stop_requested).when(outcome(Act.REBOOT, 4)).then_refused(ReportSuperseded)


def test_a_late_report_settles_a_request_of_unknown_outcome() -> None:
    unknown = InstanceOutcomeUnknown(instance_id=INSTANCE, task_state="powering-off", waited_s=300)

    given(*active, stop_requested, unknown).when(outcome(Act.POWER_OFF, 4, power=4)).then(
        InstanceStopped(instance_id=INSTANCE, power_state=4)
    )


def test_a_report_counts_though_its_host_is_thought_to_be_down() -> None:
    given(*active, stop_requested, host_went_down).when(outcome(Act.POWER_OFF, 4, power=4)).then(
        InstanceStopped(instance_id=INSTANCE, power_state=4)
    )


def test_a_former_host_that_has_cleaned_up_changes_nothing() -> None:
    moved_on = (
        *spawning,
        InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="no"),
        released_claim,
        *host_events(BETA, BETA_NODE, BETA_SERVICE),
        replace(claimed, node_id=BETA_NODE, amounts={BETA_NODE: claimed.amounts[NODE]}),
        InstanceScheduled(
            instance_id=INSTANCE,
            user_id=USER,
            host=BETA,
            node_id=BETA_NODE,
            service_id=BETA_SERVICE,
            availability_zone="nova",
            attempt=2,
            reason=REASON,
        ),
    )

    given(*moved_on).when(outcome(Act.PURGE, 2)).then_nothing()
    given(*moved_on).when(outcome(Act.SPAWN, 2)).then_refused(ReportSuperseded)
    given(*moved_on).when(outcome(Act.SPAWN, 4)).then_refused(ReportSuperseded)


def test_a_purge_that_fails_while_its_user_is_gone_is_left_to_be_tried_again() -> None:
    given(*active, deleted_with_host_away, released_quota).when(outcome(Act.PURGE, 2, succeeded=False)).then_refused(
        ReportSuperseded
    )


delete_failed = InstanceDeleteFailed(instance_id=INSTANCE, message="it broke")


@pytest.mark.parametrize(
    "since",
    [(), (stop_requested,), (hard_reboot_requested,), (delete_requested,)],
    ids=["", "stop", "reboot", "delete"],
)
def test_a_purge_that_succeeds_after_one_that_failed_ends_the_delete(since: tuple[Any, ...]) -> None:
    given(*active, delete_requested, delete_failed, *since).when(outcome(Act.PURGE, 4, power=0)).then(
        deleted, released_quota, released_claim
    )


def test_a_failed_purge_is_recorded_once() -> None:
    given(*active, delete_requested, delete_failed).when(outcome(Act.PURGE, 4, succeeded=False)).then_refused(
        ReportSuperseded
    )


def test_a_purge_that_nobody_asked_for_is_not_believed() -> None:
    given(*active).when(outcome(Act.PURGE, 3, power=0)).then_refused(ReportSuperseded)


def test_power_that_changed_by_itself_is_recorded_once() -> None:
    seen = InstancePowerStateObserved(instance_id=INSTANCE, power_state=PowerState.SHUTDOWN)

    given(*active).when(observation(PowerState.SHUTDOWN)).then(seen)
    given(*active, seen).when(observation(PowerState.SHUTDOWN, generation=4)).then_nothing()


def test_what_is_seen_while_a_request_is_pending_is_moot() -> None:
    given(*active, stop_requested).when(observation(PowerState.SHUTDOWN)).then_refused(ReportSuperseded)


def test_what_was_seen_before_the_last_request_is_moot() -> None:
    given(*off).when(observation(PowerState.RUNNING, generation=3)).then_refused(ReportSuperseded)


def test_what_is_seen_of_a_deleted_instance_is_moot() -> None:
    given(*active, deleted).when(observation(PowerState.RUNNING, generation=9)).then_refused(ReportSuperseded)


def test_only_its_host_sees_it() -> None:
    given(*active).when(observation(PowerState.SHUTDOWN, host=BETA)).then_refused(ReportNotYours)


def test_a_missed_deadline_says_what_was_waited_for_once() -> None:
    overdue = MarkOverdue(instance_id=INSTANCE, task_revision=4, waited_s=301)
    unknown = InstanceOutcomeUnknown(instance_id=INSTANCE, task_state="powering-off", waited_s=301)

    given(*active, stop_requested).when(overdue).then(unknown)
    given(*active, stop_requested, unknown).when(overdue).then_nothing()
    given(*off).when(overdue).then_nothing()
    given().when(overdue).then_nothing()
