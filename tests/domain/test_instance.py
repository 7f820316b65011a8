"""An instance's life: which request is allowed from which state, as Nova has it, and what its events make of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from domain.errors import InstanceNotReady, InstanceWrongState
from domain.instance.events import (
    INSTANCE_EVENTS,
    InstanceCreateRequested,
    InstanceDeleteFailed,
    InstanceOutcomeUnknown,
    InstancePowerStateObserved,
    InstancePurged,
    InstanceRebooted,
    InstanceRebootFailed,
    InstanceScheduleFailed,
    InstanceSpawnFailed,
    InstanceStarted,
    InstanceStartFailed,
    InstanceStopFailed,
)
from domain.instance.lifecycle import (
    CONSOLE_OUTPUT,
    DELETE,
    DELETE_METADATA,
    DELETE_TAG,
    DELETE_TAGS,
    PAUSE,
    REBOOT_HARD,
    REBOOT_SOFT,
    RESUME,
    START,
    STOP,
    SUSPEND,
    UNPAUSE,
    UPDATE_METADATA,
    UPDATE_TAG,
    UPDATE_TAGS,
    Request,
    require,
)
from domain.instance.state import Instance, PowerState, TaskState, VmState, evolve
from domain.instance.status import KNOWN_STATUSES, states_of, status_of
from domain.recorded import fold
from tests.support.decisions import (
    HOST,
    INSTANCE,
    INTERFACE,
    PROJECT,
    REASON,
    create_requested,
    delete_requested,
    deleted,
    deleted_with_host_away,
    hard_reboot_requested,
    instance_after,
    reboot_requested,
    scheduled,
    spawned,
    start_requested,
    stop_requested,
    stopped,
)
from tests.support.samples import anything

V, T = VmState, TaskState
ANY_VM, ANY_TASK = frozenset(VmState), frozenset({None, *TaskState})
IDLE: frozenset[TaskState | None] = frozenset({None})
SETTLED = frozenset({V.ACTIVE, V.PAUSED, V.SUSPENDED, V.STOPPED})

# Nova 34: the action, the vm_states and task_states it is allowed in, whether it needs a host and a launch. States that
# this release has no way into (rescued, resized, …) are left out.
NOVA: list[tuple[Request, frozenset[VmState], frozenset[TaskState | None], bool, bool]] = [
    (START, frozenset({V.STOPPED}), IDLE, True, True),
    (STOP, frozenset({V.ACTIVE, V.ERROR}), IDLE, True, True),
    (REBOOT_SOFT, frozenset({V.ACTIVE}), IDLE, False, True),
    (
        REBOOT_HARD,
        frozenset({V.ACTIVE, V.STOPPED, V.PAUSED, V.SUSPENDED, V.ERROR}),
        frozenset({None, T.REBOOTING, T.REBOOTING_HARD, T.PAUSING, T.UNPAUSING, T.SUSPENDING, T.RESUMING}),
        False,
        True,
    ),
    (PAUSE, frozenset({V.ACTIVE}), IDLE, False, True),
    (UNPAUSE, frozenset({V.PAUSED}), IDLE, False, True),
    (SUSPEND, frozenset({V.ACTIVE}), IDLE, False, True),
    (RESUME, frozenset({V.SUSPENDED}), IDLE, False, True),
    (UPDATE_METADATA, SETTLED, ANY_TASK, False, True),
    (DELETE_METADATA, SETTLED, ANY_TASK, False, True),
    (UPDATE_TAG, SETTLED, ANY_TASK, False, False),
    (UPDATE_TAGS, SETTLED, ANY_TASK, False, False),
    (DELETE_TAG, SETTLED, ANY_TASK, False, False),
    (DELETE_TAGS, SETTLED, ANY_TASK, False, False),
    (DELETE, ANY_VM, ANY_TASK, False, False),
    (CONSOLE_OUTPUT, ANY_VM, ANY_TASK, True, False),
]

running = (create_requested, scheduled, spawned)
off = (*running, stop_requested, stopped)


@pytest.mark.parametrize(
    ("request_row", "vm_states", "task_states", "needs_host", "needs_launched"),
    NOVA,
    ids=lambda v: getattr(v, "action", ""),
)
def test_a_request_is_allowed_where_nova_allows_it(
    request_row: Request,
    vm_states: frozenset[VmState],
    task_states: frozenset[TaskState | None],
    needs_host: bool,
    needs_launched: bool,
) -> None:
    placed = instance_after(*running)
    for vm_state, task_state, has_host, launched in product(VmState, (None, *TaskState), (True, False), (True, False)):
        instance = replace(
            placed,
            vm_state=vm_state,
            task_state=task_state,
            residence=placed.residence if has_host else None,
            launched=launched,
        )
        allowed = (
            vm_state in vm_states
            and task_state in task_states
            and (has_host or not needs_host)
            and (launched or not needs_launched)
        )
        assert is_allowed(instance, request_row) is allowed, (vm_state, task_state, has_host, launched)


def is_allowed(instance: Instance, request: Request) -> bool:
    try:
        require(instance, request, PROJECT)
    except (InstanceWrongState, InstanceNotReady):
        return False
    return True


def test_a_refusal_says_what_it_is_in_novas_words() -> None:
    stopping = instance_after(*running, stop_requested)

    with pytest.raises(InstanceWrongState) as refused:
        require(stopping, STOP, PROJECT)

    assert str(refused.value) == f"Cannot 'stop' instance {INSTANCE} while it is in task_state powering-off"


def test_an_instance_without_a_host_is_not_ready() -> None:
    with pytest.raises(InstanceNotReady):
        require(instance_after(create_requested), STOP, PROJECT)


LIFE: list[tuple[str, tuple[Any, ...], VmState, TaskState | None]] = [
    ("a create asks for a host", (create_requested,), V.BUILDING, T.SCHEDULING),
    ("a chosen host is to start it", (create_requested, scheduled), V.BUILDING, T.SPAWNING),
    ("it runs", running, V.ACTIVE, None),
    ("a stop is asked", (*running, stop_requested), V.ACTIVE, T.POWERING_OFF),
    ("it stopped", off, V.STOPPED, None),
    ("a start is asked", (*off, start_requested), V.STOPPED, T.POWERING_ON),
    ("it started", (*off, start_requested, InstanceStarted(instance_id=INSTANCE, power_state=1)), V.ACTIVE, None),
    ("a reboot is asked", (*running, reboot_requested), V.ACTIVE, T.REBOOTING),
    ("a hard reboot is asked", (*running, hard_reboot_requested), V.ACTIVE, T.REBOOTING_HARD),
    (
        "it rebooted",
        (*off, hard_reboot_requested, InstanceRebooted(instance_id=INSTANCE, power_state=1)),
        V.ACTIVE,
        None,
    ),
    (
        "no host was found",
        (create_requested, InstanceScheduleFailed(instance_id=INSTANCE, message="none", reason=REASON)),
        V.ERROR,
        None,
    ),
    (
        "its host failed",
        (create_requested, scheduled, InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="no")),
        V.BUILDING,
        T.SCHEDULING,
    ),
    (
        "its start failed",
        (*off, start_requested, InstanceStartFailed(instance_id=INSTANCE, message="no")),
        V.STOPPED,
        None,
    ),
    (
        "its stop failed",
        (*running, stop_requested, InstanceStopFailed(instance_id=INSTANCE, message="no")),
        V.ACTIVE,
        None,
    ),
    (
        "its reboot failed",
        (*running, reboot_requested, InstanceRebootFailed(instance_id=INSTANCE, message="no")),
        V.ERROR,
        None,
    ),
    ("its delete is asked", (*running, delete_requested), V.ACTIVE, T.DELETING),
    (
        "its delete failed",
        (*running, delete_requested, InstanceDeleteFailed(instance_id=INSTANCE, message="no")),
        V.ERROR,
        None,
    ),
    ("it is deleted", (*running, delete_requested, deleted), V.DELETED, None),
    (
        "it shut itself down",
        (*running, InstancePowerStateObserved(instance_id=INSTANCE, power_state=4)),
        V.STOPPED,
        None,
    ),
    ("it crashed", (*running, InstancePowerStateObserved(instance_id=INSTANCE, power_state=6)), V.STOPPED, None),
    (
        "it was paused from outside",
        (*running, InstancePowerStateObserved(instance_id=INSTANCE, power_state=3)),
        V.ACTIVE,
        None,
    ),
    ("it vanished", (*running, InstancePowerStateObserved(instance_id=INSTANCE, power_state=0)), V.ACTIVE, None),
]


@pytest.mark.parametrize(("events", "vm_state", "task_state"), [row[1:] for row in LIFE], ids=[row[0] for row in LIFE])
def test_a_life_so_far_is_this_state(events: tuple[Any, ...], vm_state: VmState, task_state: TaskState | None) -> None:
    instance = instance_after(*events)

    assert (instance.vm_state, instance.task_state) == (vm_state, task_state)


def test_every_event_counts_as_one_revision() -> None:
    assert instance_after(create_requested).revision == 1
    assert instance_after(*off).revision == len(off)


def test_a_pending_request_is_named_by_the_revision_that_made_it() -> None:
    waiting = instance_after(
        *running, stop_requested, InstanceOutcomeUnknown(instance_id=INSTANCE, task_state="powering-off", waited_s=300)
    )

    assert (waiting.task_revision, waiting.revision) == (4, 5)
    assert waiting.overdue
    assert waiting.task_state is T.POWERING_OFF


def test_an_outcome_ends_being_overdue() -> None:
    unknown = InstanceOutcomeUnknown(instance_id=INSTANCE, task_state="powering-off", waited_s=300)

    assert not instance_after(*running, stop_requested, unknown, stopped).overdue


def test_a_host_that_failed_to_start_it_is_remembered_and_left() -> None:
    failed = InstanceSpawnFailed(instance_id=INSTANCE, host=HOST, message="no")

    instance = instance_after(create_requested, scheduled, failed)

    assert instance.residence is None
    assert instance.former_hosts == (HOST,)
    assert instance.attempts == 1


def test_a_guest_keeps_the_interfaces_it_was_scheduled_with() -> None:
    assert instance_after(*off).interfaces == (INTERFACE,)


def test_the_last_reboot_tells_how() -> None:
    done = InstanceRebooted(instance_id=INSTANCE, power_state=1)

    instance = instance_after(*running, reboot_requested, done, hard_reboot_requested, done)

    assert instance.reboot_hard


def test_a_purge_still_pending_ends_with_the_hosts_word() -> None:
    gone = instance_after(*running, deleted_with_host_away)
    purged = evolve(gone, InstancePurged(instance_id=INSTANCE))

    assert gone.purge_pending
    assert not purged.purge_pending
    assert purged.deleted


@settings(max_examples=300)
@for_all(
    st.lists(
        st.sampled_from([cls for cls in INSTANCE_EVENTS.values() if cls is not InstanceCreateRequested]).flatmap(
            anything
        ),
        max_size=6,
    )
)
def test_whatever_happened_is_folded_and_never_refused(events: list[Any]) -> None:
    instance = fold(evolve, None, [create_requested, *events])

    assert instance is not None
    assert instance.revision == 1 + len(events)
    assert status_of(instance) in KNOWN_STATUSES


STATUSES = [
    (V.BUILDING, None, "BUILD"),
    (V.BUILDING, T.SPAWNING, "BUILD"),
    (V.ACTIVE, None, "ACTIVE"),
    (V.ACTIVE, T.POWERING_OFF, "ACTIVE"),
    (V.ACTIVE, T.REBOOTING, "REBOOT"),
    (V.ACTIVE, T.REBOOTING_HARD, "HARD_REBOOT"),
    (V.STOPPED, None, "SHUTOFF"),
    (V.STOPPED, T.REBOOTING_HARD, "SHUTOFF"),
    (V.ERROR, None, "ERROR"),
    (V.DELETED, None, "DELETED"),
]


@pytest.mark.parametrize(("vm_state", "task_state", "status"), STATUSES)
def test_a_status_is_derived_as_nova_derives_it(vm_state: VmState, task_state: TaskState | None, status: str) -> None:
    instance = replace(instance_after(*running), vm_state=vm_state, task_state=task_state)

    assert status_of(instance) == status


def test_a_status_filter_knows_its_states_and_unknown_words() -> None:
    assert (V.STOPPED, None) in (states_of("shutoff") or [])
    assert states_of("HARD_REBOOT") == [(V.ACTIVE, T.REBOOTING_HARD)]
    assert states_of("RESCUE") == []
    assert states_of("FLYING") is None


def test_power_is_what_was_last_reported() -> None:
    assert instance_after(*running).power_state == PowerState.RUNNING
    assert instance_after(*off).power_state == PowerState.SHUTDOWN
    assert instance_after(*running, deleted).power_state == PowerState.NO_STATE
