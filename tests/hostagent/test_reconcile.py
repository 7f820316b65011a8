"""The plan for one guest: pure, and done when it has been carried out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from commands.orders import Act, Order, WantedPower
from domain.instance.state import PowerState
from hostagent.drivers.protocol import ObservedGuest
from hostagent.journal import NOTHING, Entry
from hostagent.reconcile import Action, Enforce, Fail, Observe, Perform, Report, reconcile, refuses
from tests.support.decisions import HOST, INSTANCE
from tests.support.hypervisors import guest_spec

order = Order(
    incarnation="i",
    order_id="o",
    host=HOST,
    epoch=3,
    generation=10,
    task_revision=9,
    act=None,
    wanted=WantedPower.RUNNING,
    power_state=PowerState.RUNNING,
    guest=guest_spec(INSTANCE),
)
settled = Entry(generation=10, epoch=3, begun=Act.POWER_ON, begun_revision=9, settled_revision=9, outcome=b"a report")
ended = Entry(generation=10, epoch=3, ended=datetime(2030, 1, 1, tzinfo=UTC))
earlier = Entry(generation=5, epoch=3, begun=Act.SPAWN, begun_revision=2, settled_revision=2, outcome=b"an old report")


def guest(power: PowerState | None) -> ObservedGuest | None:
    return None if power is None else ObservedGuest(instance_id=INSTANCE, power_state=power)


def wants(act: Act | None, wanted: WantedPower) -> Order:
    return replace(order, act=act, wanted=wanted, power_state=POWER.get(wanted, PowerState.RUNNING))


RUNNING, OFF, PURGED = WantedPower.RUNNING, WantedPower.OFF, WantedPower.PURGED
PAUSED, SUSPENDED = WantedPower.PAUSED, WantedPower.SUSPENDED
POWER = {OFF: PowerState.SHUTDOWN, PAUSED: PowerState.PAUSED, SUSPENDED: PowerState.SUSPENDED}
GONE = "the hypervisor does not hold this guest"
CASES: list[tuple[str, Order, PowerState | None, Entry, Action | None]] = [
    ("a new guest is made", wants(Act.SPAWN, RUNNING), None, NOTHING, Perform(Act.SPAWN)),
    ("one that was begun is gone on with", wants(Act.SPAWN, RUNNING), PowerState.RUNNING, NOTHING, Perform(Act.SPAWN)),
    ("a guest is switched on", wants(Act.POWER_ON, RUNNING), PowerState.SHUTDOWN, earlier, Perform(Act.POWER_ON)),
    ("a guest is switched off", wants(Act.POWER_OFF, OFF), PowerState.RUNNING, earlier, Perform(Act.POWER_OFF)),
    (
        "one that is off is switched off too",
        wants(Act.POWER_OFF, OFF),
        PowerState.SHUTDOWN,
        earlier,
        Perform(Act.POWER_OFF),
    ),
    ("a guest is rebooted", wants(Act.REBOOT, RUNNING), PowerState.RUNNING, earlier, Perform(Act.REBOOT)),
    ("a guest is purged", wants(Act.PURGE, PURGED), PowerState.RUNNING, earlier, Perform(Act.PURGE)),
    ("one that is gone is purged too", wants(Act.PURGE, PURGED), None, earlier, Perform(Act.PURGE)),
    ("one that is gone cannot be switched on", wants(Act.POWER_ON, RUNNING), None, earlier, Fail(Act.POWER_ON, GONE)),
    ("one that is gone cannot be rebooted", wants(Act.REBOOT, RUNNING), None, earlier, Fail(Act.REBOOT, GONE)),
    (
        "what is settled is reported again",
        wants(Act.POWER_ON, RUNNING),
        PowerState.RUNNING,
        settled,
        Report(b"a report"),
    ),
    ("a guest is paused", wants(Act.PAUSE, PAUSED), PowerState.RUNNING, earlier, Perform(Act.PAUSE)),
    ("a guest goes on", wants(Act.UNPAUSE, RUNNING), PowerState.PAUSED, earlier, Perform(Act.UNPAUSE)),
    ("a guest is suspended", wants(Act.SUSPEND, SUSPENDED), PowerState.RUNNING, earlier, Perform(Act.SUSPEND)),
    ("a guest is resumed", wants(Act.RESUME, RUNNING), PowerState.SUSPENDED, earlier, Perform(Act.RESUME)),
    ("one that is gone cannot be resumed", wants(Act.RESUME, RUNNING), None, earlier, Fail(Act.RESUME, GONE)),
    ("a paused guest is left alone", wants(None, PAUSED), PowerState.PAUSED, settled, None),
    ("a suspended guest is left alone", wants(None, SUSPENDED), PowerState.SUSPENDED, settled, None),
    (
        "a paused guest whose host was switched off is told, not started",
        wants(None, PAUSED),
        PowerState.SHUTDOWN,
        settled,
        Observe(PowerState.SHUTDOWN),
    ),
    (
        "one that somebody let go on is told, not paused again",
        wants(None, PAUSED),
        PowerState.RUNNING,
        settled,
        Observe(PowerState.RUNNING),
    ),
    ("what is as it is wanted is left alone", wants(None, RUNNING), PowerState.RUNNING, settled, None),
    ("what is off as wanted is left alone", wants(None, OFF), PowerState.SHUTDOWN, settled, None),
    ("a crashed guest is off, and is told", wants(None, OFF), PowerState.CRASHED, settled, Observe(PowerState.CRASHED)),
    ("an absent guest is off, and is told", wants(None, OFF), None, settled, Observe(PowerState.NO_STATE)),
    (
        "one that runs again is told",
        replace(wants(None, RUNNING), power_state=PowerState.PAUSED),
        PowerState.RUNNING,
        settled,
        Observe(PowerState.RUNNING),
    ),
    ("one that runs though wanted off is cut", wants(None, OFF), PowerState.RUNNING, settled, Enforce()),
    ("one that is paused though wanted off is cut", wants(None, OFF), PowerState.PAUSED, settled, Enforce()),
    (
        "one that shut itself down is not started",
        wants(None, RUNNING),
        PowerState.SHUTDOWN,
        settled,
        Observe(PowerState.SHUTDOWN),
    ),
    ("one that vanished is told", wants(None, RUNNING), None, settled, Observe(PowerState.NO_STATE)),
]


@pytest.mark.parametrize(
    ("wanted", "power", "entry", "action"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_the_one_thing_to_do(wanted: Order, power: PowerState | None, entry: Entry, action: Action | None) -> None:
    assert reconcile(wanted, guest(power), entry) == action


def test_an_order_for_another_agent_of_this_host_is_refused() -> None:
    """Two machines with one credential open the same epoch; each order is for the one whose session was recorded."""
    given = replace(order, session="theirs")

    refused = refuses(given, NOTHING, given.epoch, "mine")

    assert refused is not None
    assert refused.reason == "replaced"
    assert refuses(given, NOTHING, given.epoch, "theirs") is None


@pytest.mark.parametrize(
    ("changes", "entry", "epoch", "reason"),
    [
        ({}, NOTHING, 3, None),
        ({}, settled, 3, None),
        ({"generation": 9}, settled, 3, "generation"),
        ({"epoch": 2}, NOTHING, 3, "epoch"),
        ({"epoch": 2}, settled, 2, "epoch"),
        ({"epoch": 4, "generation": 11}, settled, 3, "replaced"),
        ({"epoch": 4, "generation": 9}, settled, 4, "generation"),
        ({}, ended, 3, "ended"),
        ({"generation": 9}, ended, 3, "ended"),
        ({"epoch": 4}, ended, 4, "ended"),
        ({"generation": 11}, ended, 3, None),
    ],
)
def test_an_older_session_a_lower_generation_and_a_residency_that_ended_are_refused(
    changes: dict[str, Any], entry: Entry, epoch: int, reason: str | None
) -> None:
    refused = refuses(replace(order, **changes), entry, epoch)

    assert (None if refused is None else refused.reason) == reason


entries = st.builds(
    Entry,
    generation=st.integers(0, 12),
    epoch=st.integers(0, 3),
    begun=st.none() | st.sampled_from(Act),
    begun_revision=st.integers(0, 9),
    settled_revision=st.integers(0, 8),
    outcome=st.just(b"an old report"),
)
MATCHES = {
    Act.SPAWN: RUNNING,
    Act.POWER_ON: RUNNING,
    Act.POWER_OFF: OFF,
    Act.REBOOT: RUNNING,
    Act.PAUSE: PAUSED,
    Act.UNPAUSE: RUNNING,
    Act.SUSPEND: SUSPENDED,
    Act.RESUME: RUNNING,
    Act.SET_PASSWORD: RUNNING,
    Act.PURGE: PURGED,
}
wanted_states = st.one_of(
    st.sampled_from(Act).map(lambda act: wants(act, MATCHES[act])),
    st.sampled_from((RUNNING, OFF, PAUSED, SUSPENDED)).map(lambda w: wants(None, w)),
)


def carried_out(
    action: Action, wanted: Order, observed: ObservedGuest | None, entry: Entry
) -> tuple[ObservedGuest | None, Entry]:
    """The guest and the journal after an action went well."""
    match action:
        case Perform(act):
            after = None if act is Act.PURGE else POWER.get(MATCHES[act], PowerState.RUNNING)
            done = replace(entry, begun=act, begun_revision=wanted.task_revision, settled_revision=wanted.task_revision)
            return guest(after), replace(done, outcome=b"new")
        case Fail():
            return observed, replace(entry, settled_revision=wanted.task_revision, outcome=b"new")
        case Enforce():
            return guest(PowerState.SHUTDOWN), entry
        case _:
            return observed, entry


@settings(max_examples=400)
@for_all(wanted=wanted_states, power=st.none() | st.sampled_from(PowerState), entry=entries)
def test_planning_again_after_it_was_done_plans_nothing_more(
    wanted: Order, power: PowerState | None, entry: Entry
) -> None:
    observed = guest(power)
    action = reconcile(wanted, observed, entry)
    if action is None:
        return

    again = reconcile(wanted, *carried_out(action, wanted, observed, entry))

    if action == Report(b"an old report"):
        assert again == action, "a purge that was done is told until the ledger knows"
        assert entry.purged
        assert observed is None
    elif wanted.act is not None:
        assert again == Report(b"new"), "and says so until the ledger knows"
    elif isinstance(action, Observe):
        assert again == action, "what is seen is told until the ledger knows it"
        knowing = replace(wanted, power_state=action.power_state)
        assert reconcile(knowing, observed, entry) is None
    else:
        assert again is None


@settings(max_examples=300)
@for_all(wanted=wanted_states, power=st.none() | st.sampled_from(PowerState), entry=entries)
def test_nothing_but_a_purge_order_destroys_and_nothing_but_a_request_starts(
    wanted: Order, power: PowerState | None, entry: Entry
) -> None:
    action = reconcile(wanted, guest(power), entry)

    if isinstance(action, Perform):
        assert action.act is wanted.act
