"""A delete always wins; what the guest holds is held until its host denies it."""

from __future__ import annotations

from typing import Any

import pytest

from commands.instance.delete import DeleteInstance
from domain.compute_service import ServiceForcedDown
from domain.errors import InstanceNotFound
from domain.instance.events import (
    InstanceDeleteFailed,
    InstanceRebootFailed,
    InstanceScheduleFailed,
    InstanceSpawnFailed,
    InstanceStartFailed,
)
from tests.support.decisions import (
    HOST,
    INSTANCE,
    OTHER_PROJECT,
    PROJECT,
    REASON,
    SERVICE,
    active,
    building,
    delete_requested,
    deleted,
    deleted_with_host_away,
    given,
    hard_reboot_requested,
    host_went_down,
    off,
    reboot_requested,
    released_quota,
    spawning,
    start_requested,
    stop_requested,
)

delete = DeleteInstance(instance_id=INSTANCE, project_id=PROJECT)
failed_start = InstanceStartFailed(instance_id=INSTANCE, message="no")
failed_reboot = InstanceRebootFailed(instance_id=INSTANCE, message="no")
failed_delete = InstanceDeleteFailed(instance_id=INSTANCE, message="no")
unschedulable = InstanceScheduleFailed(instance_id=INSTANCE, message="none", reason=REASON)
refused_by_host = InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="no")

ON_A_HOST = {
    "spawning": spawning,
    "active": active,
    "stopping": (*active, stop_requested),
    "rebooting": (*active, reboot_requested),
    "rebooting hard": (*active, hard_reboot_requested),
    "stopped": off,
    "starting": (*off, start_requested),
    "start failed": (*off, start_requested, failed_start),
    "in error": (*active, reboot_requested, failed_reboot),
    "delete failed": (*active, delete_requested, failed_delete),
}


@pytest.mark.parametrize("events", ON_A_HOST.values(), ids=ON_A_HOST)
def test_a_guest_on_a_host_has_to_go_first_whatever_it_does(events: tuple[Any, ...]) -> None:
    given(*events).when(delete).then(delete_requested)


@pytest.mark.parametrize("events", ON_A_HOST.values(), ids=ON_A_HOST)
def test_with_its_host_away_it_is_gone_for_its_user_and_its_claim_stays(events: tuple[Any, ...]) -> None:
    given(*events, host_went_down).when(delete).then(deleted_with_host_away, released_quota)


def test_a_host_that_an_operator_forced_down_is_away() -> None:
    given(*active, ServiceForcedDown(service_id=SERVICE)).when(delete).then(deleted_with_host_away, released_quota)


def test_a_delete_in_flight_ends_for_its_user_when_its_host_goes_away() -> None:
    given(*active, delete_requested, host_went_down).when(delete).then(deleted_with_host_away, released_quota)


@pytest.mark.parametrize("events", [building, (*building, unschedulable)], ids=["scheduling", "unschedulable"])
def test_an_instance_without_a_host_is_gone_at_once(events: tuple[Any, ...]) -> None:
    given(*events).when(delete).then(deleted, released_quota)


def test_an_instance_between_two_hosts_is_gone_at_once() -> None:
    given(*spawning, refused_by_host).when(delete).then(deleted, released_quota)


def test_a_second_delete_makes_no_new_work() -> None:
    given(*active, delete_requested).when(delete).then_nothing()


@pytest.mark.parametrize("events", [(), (*active, deleted), (*active, deleted_with_host_away)])
def test_what_is_not_there_is_not_found(events: tuple[Any, ...]) -> None:
    given(*events).when(delete).then_refused(InstanceNotFound)


def test_another_projects_instance_is_not_found() -> None:
    given(*active).when(DeleteInstance(instance_id=INSTANCE, project_id=OTHER_PROJECT)).then_refused(InstanceNotFound)
