"""The scheduler's answer: the claim is checked again where it is made, and placed in the same append."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from commands.instance.schedule import Choice, FailScheduling, ScheduleInstance, amounts_of
from domain.compute_service import ServiceDisabled
from domain.errors import ClaimDoesNotFit, InstanceNotFound, ReportSuperseded
from domain.instance.events import BlockDevice, InstanceScheduleFailed, InstanceSpawnFailed
from domain.resource_provider import ProviderReleased
from domain.resources import DISK_GB, MEMORY_MB, VCPU
from tests.support.decisions import (
    BETA,
    BETA_NODE,
    BETA_SERVICE,
    HOST,
    INSTANCE,
    INTERFACE,
    NODE,
    OTHER,
    REASON,
    SERVICE,
    active,
    building,
    claimed,
    create_requested,
    deleted,
    given,
    host_events,
    host_went_down,
    instance_after,
    scheduled,
    spawning,
)

alpha = Choice(host=HOST, node_id=NODE, service_id=SERVICE, availability_zone="nova")
beta = Choice(host=BETA, node_id=BETA_NODE, service_id=BETA_SERVICE, availability_zone="nova")
beta_up = host_events(BETA, BETA_NODE, BETA_SERVICE)
schedule = ScheduleInstance(
    instance_id=INSTANCE, attempt=1, choices=(alpha, beta), reason=REASON, interfaces=(INTERFACE,)
)
on_beta = (
    replace(claimed, node_id=BETA_NODE, amounts={BETA_NODE: claimed.amounts[NODE]}),
    replace(scheduled, host=BETA, node_id=BETA_NODE, service_id=BETA_SERVICE),
)
others_claim = replace(claimed, consumer_id=OTHER, amounts={NODE: {VCPU: 7}})


def test_the_best_choice_is_claimed_and_placed_in_one_append() -> None:
    given(*building, *beta_up).when(schedule).then(claimed, scheduled)


def test_an_alternate_is_taken_when_the_best_is_full() -> None:
    given(*building, *beta_up, others_claim).when(schedule).then(*on_beta)


def test_an_alternate_is_taken_when_the_best_has_gone_down() -> None:
    given(*building, *beta_up, host_went_down).when(schedule).then(*on_beta)


def test_an_alternate_is_taken_when_the_best_was_disabled() -> None:
    given(*building, *beta_up, ServiceDisabled(service_id=SERVICE)).when(schedule).then(*on_beta)


def test_a_forced_host_is_taken_though_disabled_but_not_though_full() -> None:
    forced = replace(schedule, choices=(alpha,), forced=True)
    disabled = ServiceDisabled(service_id=SERVICE)

    given(*building, disabled).when(forced).then(claimed, scheduled)
    given(*building, disabled, others_claim).when(forced).then_refused(ClaimDoesNotFit)


def test_nothing_is_claimed_when_no_choice_fits() -> None:
    given(*building, others_claim).when(schedule).then_refused(ClaimDoesNotFit)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((), InstanceNotFound),
        ((*building, deleted), InstanceNotFound),
        (spawning, ReportSuperseded),
        (active, ReportSuperseded),
    ],
    ids=["unknown", "deleted", "placed already", "running"],
)
def test_an_instance_that_waits_for_no_host_gets_none(events: tuple[Any, ...], error: type[Any]) -> None:
    given(*events).when(schedule).then_refused(error)
    given(*events).when(FailScheduling(instance_id=INSTANCE, attempt=1, message="none", reason=REASON)).then_refused(
        error
    )


def test_the_next_attempt_is_made_only_after_the_last_one_failed() -> None:
    failed = (
        *spawning,
        InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="no"),
        ProviderReleased(node_id=NODE, consumer_id=INSTANCE),
        *beta_up,
    )
    again = replace(schedule, attempt=2, choices=(beta,))

    given(*failed).when(schedule).then_refused(ReportSuperseded)
    given(*failed).when(again).then(on_beta[0], replace(on_beta[1], attempt=2))


def test_giving_up_leaves_a_reason() -> None:
    given(*building).when(FailScheduling(instance_id=INSTANCE, attempt=1, message="none", reason=REASON)).then(
        InstanceScheduleFailed(instance_id=INSTANCE, message="none", reason=REASON)
    )


def test_an_instance_on_a_volume_claims_no_disk_for_its_root() -> None:
    root = BlockDevice(device_id="d", source_type="volume", destination_type="volume", boot_index=0)
    local = replace(root, source_type="image", destination_type="local")

    on_volume = instance_after(replace(create_requested, block_devices=(root,)))
    on_disk = instance_after(replace(create_requested, block_devices=(local,)))

    assert amounts_of(on_volume) == {VCPU: 2, MEMORY_MB: 512}
    assert amounts_of(on_disk) == {VCPU: 2, MEMORY_MB: 512, DISK_GB: 1}
