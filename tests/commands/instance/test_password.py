"""Changing the password inside a guest: who could do it there is known before its host is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commands.instance.outcome import RecordOutcome
from commands.instance.password import ChangePassword
from commands.orders import Act
from commands.reports import OutcomeReport
from domain.errors import InstanceWrongState, PasswordNotChangeable, ReportSuperseded
from domain.identifiers import VaultRef
from domain.instance.events import InstancePowerStateObserved
from domain.instance.password import (
    InstancePasswordChanged,
    InstancePasswordChangeFailed,
    InstancePasswordChangeRequested,
)
from domain.instance.state import PowerState
from tests.support.decisions import (
    HOST,
    IMAGE,
    INSTANCE,
    PROJECT,
    SERVICE,
    active,
    create_requested,
    given,
    host_up,
    instance_after,
    off,
    scheduled,
    spawned,
)

REF = VaultRef("a/password")
change = ChangePassword(instance_id=INSTANCE, project_id=PROJECT, password=REF)
requested = InstancePasswordChangeRequested(instance_id=INSTANCE, password=REF)


def report(**changes: object) -> RecordOutcome:
    values: dict[str, object] = {
        "report_id": "r",
        "service_id": SERVICE,
        "host": HOST,
        "order_id": "o",
        "instance_id": INSTANCE,
        "task_revision": 4,
        "act": Act.SET_PASSWORD,
        "succeeded": True,
        "power_state": PowerState.RUNNING,
    }
    return RecordOutcome(report=OutcomeReport(**{**values, **changes}))  # type: ignore[arg-type]


def test_a_running_guest_is_given_another_password() -> None:
    given(*active).when(change).then(requested)
    assert instance_after(create_requested, scheduled, spawned, requested).request.admin_password == REF


def test_the_host_says_what_came_of_it() -> None:
    changed = InstancePasswordChanged(instance_id=INSTANCE, power_state=PowerState.RUNNING)
    failed = InstancePasswordChangeFailed(instance_id=INSTANCE, message="no agent")

    given(*active, requested).when(report()).then(changed)
    given(*active, requested).when(report(succeeded=False, message="no agent")).then(failed)
    given(*active, requested, changed).when(report()).then_refused(ReportSuperseded)


def test_a_guest_that_does_not_run_keeps_its_password() -> None:
    paused_from_outside = InstancePowerStateObserved(instance_id=INSTANCE, power_state=PowerState.PAUSED)

    given(*off).when(change).then_refused(InstanceWrongState, "'changePassword'.*vm_state stopped")
    given(*active, requested).when(change).then_refused(InstanceWrongState, "task_state updating_password")
    given(*active, paused_from_outside).when(change).then_refused(PasswordNotChangeable, "is not running")


@pytest.mark.parametrize(
    ("hypervisor", "agent", "said"),
    [
        ("TEST", "yes", "Set admin password is not supported"),
        ("QEMU", None, "QEMU guest agent is not enabled"),
        ("QEMU", "no", "QEMU guest agent is not enabled"),
        ("QEMU", "yes", None),
        ("fake", None, None),
    ],
)
def test_a_guest_with_nobody_in_it_who_could_is_refused(hypervisor: str, agent: str | None, said: str | None) -> None:
    registered, *others = host_up
    properties = {} if agent is None else {"hw_qemu_guest_agent": agent}
    created = replace(create_requested, image=replace(IMAGE, properties=properties))
    events = (replace(registered, hypervisor_type=hypervisor), *others, created, scheduled, spawned)

    decided = given(*events).when(change)

    if said is None:
        decided.then(requested)
    else:
        decided.then_refused(PasswordNotChangeable, said)
