"""Start, stop and reboot: each asks once, in the caller's own project."""

from __future__ import annotations

from typing import Any

import pytest

from commands.instance.power import RebootInstance, StartInstance, StopInstance
from domain.errors import InstanceNotFound, InstanceNotReady, InstanceWrongState
from domain.instance.events import InstanceRebootRequested
from tests.support.decisions import (
    INSTANCE,
    OTHER_PROJECT,
    PROJECT,
    active,
    building,
    delete_requested,
    deleted,
    given,
    hard_reboot_requested,
    off,
    reboot_requested,
    spawning,
    start_requested,
    stop_requested,
)

start = StartInstance(instance_id=INSTANCE, project_id=PROJECT)
stop = StopInstance(instance_id=INSTANCE, project_id=PROJECT)
reboot = RebootInstance(instance_id=INSTANCE, project_id=PROJECT, hard=False)
hard_reboot = RebootInstance(instance_id=INSTANCE, project_id=PROJECT, hard=True)


def test_a_running_guest_is_asked_to_stop() -> None:
    given(*active).when(stop).then(stop_requested)


def test_a_stopped_guest_is_asked_to_start() -> None:
    given(*off).when(start).then(start_requested)


def test_a_running_guest_is_asked_to_reboot() -> None:
    given(*active).when(reboot).then(reboot_requested)


def test_a_second_stop_is_refused_while_the_first_is_in_flight() -> None:
    given(*active, stop_requested).when(stop).then_refused(InstanceWrongState, "task_state powering-off")


def test_a_stop_of_a_stopped_guest_is_refused() -> None:
    given(*off).when(stop).then_refused(InstanceWrongState, "vm_state stopped")


def test_a_start_of_a_running_guest_is_refused() -> None:
    given(*active).when(start).then_refused(InstanceWrongState, "vm_state active")


def test_a_soft_reboot_of_a_stopped_guest_is_refused_and_a_hard_one_starts_it() -> None:
    given(*off).when(reboot).then_refused(InstanceWrongState)
    given(*off).when(hard_reboot).then(hard_reboot_requested)


def test_a_hard_reboot_overtakes_a_soft_one_that_is_in_flight() -> None:
    given(*active, reboot_requested).when(hard_reboot).then(
        InstanceRebootRequested(instance_id=INSTANCE, hard=True, grace_s=60)
    )


def test_a_soft_reboot_does_not_overtake_one_in_flight() -> None:
    given(*active, reboot_requested).when(reboot).then_refused(InstanceWrongState)


@pytest.mark.parametrize("command", [stop, start], ids=["stop", "start"])
def test_nothing_is_asked_of_a_guest_without_a_host(command: Any) -> None:
    given(*building).when(command).then_refused(InstanceNotReady)


@pytest.mark.parametrize("command", [stop, start, reboot, hard_reboot], ids=["stop", "start", "reboot", "hard reboot"])
def test_nothing_is_asked_of_a_guest_being_started_for_the_first_time(command: Any) -> None:
    given(*spawning).when(command).then_refused(InstanceWrongState)


@pytest.mark.parametrize("command", [stop, start, reboot, hard_reboot], ids=["stop", "start", "reboot", "hard reboot"])
def test_nothing_but_a_delete_is_asked_of_a_guest_that_is_being_deleted(command: Any) -> None:
    given(*active, delete_requested).when(command).then_refused(InstanceWrongState)


@pytest.mark.parametrize("command", [stop, start, reboot], ids=["stop", "start", "reboot"])
def test_an_instance_is_not_found_once_deleted_or_by_another_project(command: Any) -> None:
    given(*active, deleted).when(command).then_refused(InstanceNotFound)
    given().when(command).then_refused(InstanceNotFound)
    elsewhere = type(command)(**{**_fields(command), "project_id": OTHER_PROJECT})
    given(*active).when(elsewhere).then_refused(InstanceNotFound)


def test_an_administrator_stops_anyones() -> None:
    given(*active).when(StopInstance(instance_id=INSTANCE, project_id=None)).then(stop_requested)


def _fields(command: Any) -> dict[str, Any]:
    return {name: getattr(command, name) for name in type(command).__dataclass_fields__}
