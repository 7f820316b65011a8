"""The newest order of each residency says the whole wanted state, whatever was missed, repeated or done by two."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest

from commands.log.port import orders_topic
from commands.orders import Act, Order, WantedPower
from commands.process_managers.orders import order_of
from domain.identifiers import InstanceId
from domain.serialization import from_plain
from gateway import enrollment
from tests.support.decisions import (
    HOST,
    active,
    create_requested,
    delete_requested,
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
from tests.support.enrolled import Enrolled, enroll
from tests.support.ledger import Crash, Ledger

running = (create_requested, scheduled, spawned)


def orders(ledger: Ledger, host: str = "alpha") -> dict[InstanceId, Order | None]:
    """The newest of each residency; None where the host is wanted to know nothing any more."""
    newest: dict[InstanceId, Order | None] = {}
    for record in ledger.messages(orders_topic(ledger.hosts[host].agent.service_id)):
        instance_id = InstanceId(UUID(record.key.partition("/")[0]))
        newest[instance_id] = None if record.value is None else from_plain(Order, orjson.loads(record.value))
    return newest


def order(ledger: Ledger, instance_id: InstanceId, host: str = "alpha") -> Order:
    found = orders(ledger, host)[instance_id]
    assert found is not None
    return found


WANTED: list[tuple[str, tuple[Any, ...], Act | None, WantedPower, int]] = [
    ("to be started", (create_requested, scheduled), Act.SPAWN, WantedPower.RUNNING, 2),
    ("running", running, None, WantedPower.RUNNING, 2),
    ("to be stopped", (*running, stop_requested), Act.POWER_OFF, WantedPower.OFF, 4),
    ("stopped", (*running, stop_requested, stopped), None, WantedPower.OFF, 4),
    ("to be started again", (*running, stop_requested, stopped, start_requested), Act.POWER_ON, WantedPower.RUNNING, 6),
    ("to be rebooted", (*running, reboot_requested), Act.REBOOT, WantedPower.RUNNING, 4),
    (
        "to be rebooted from off",
        (*running, stop_requested, stopped, hard_reboot_requested),
        Act.REBOOT,
        WantedPower.RUNNING,
        6,
    ),
    ("to be deleted", (*running, delete_requested), Act.PURGE, WantedPower.PURGED, 4),
    ("deleted while its host was away", (*running, deleted_with_host_away), Act.PURGE, WantedPower.PURGED, 4),
]


@pytest.mark.parametrize(
    ("events", "act", "wanted", "task_revision"), [row[1:] for row in WANTED], ids=[row[0] for row in WANTED]
)
def test_an_order_is_the_whole_wanted_state(
    events: tuple[Any, ...], act: Act | None, wanted: WantedPower, task_revision: int
) -> None:
    instance = instance_after(*events)

    made = order_of(instance, HOST, "an-incarnation", 7)

    assert (made.act, made.wanted, made.task_revision) == (act, wanted, task_revision)
    assert (made.generation, made.epoch) == (instance.revision, 7)
    assert made.guest.instance_id == instance.id


def test_a_host_is_ordered_what_the_instance_asked_for(ledger: Ledger) -> None:
    [instance_id] = ledger.create(name="Agatha's", metadata={"role": "web"}, config_drive=True)
    ledger.step("build")
    ledger.step("orders")

    guest = order(ledger, instance_id).guest

    assert (guest.name, guest.metadata, guest.config_drive, guest.vcpus) == ("Agatha's", {"role": "web"}, True, 1)
    assert len(guest.interfaces) == 1, "planned before it is started"


def test_a_guest_keeps_the_interfaces_it_was_started_with(ledger: Ledger) -> None:
    [instance_id] = ledger.running()

    assert order(ledger, instance_id).guest.interfaces == ledger.instance(instance_id).interfaces != ()


def test_each_step_of_a_life_is_the_newest_order(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    assert order(ledger, instance_id).wanted is WantedPower.RUNNING

    ledger.stop(instance_id)
    ledger.step("orders")
    assert order(ledger, instance_id).act is Act.POWER_OFF
    ledger.settle()
    assert order(ledger, instance_id).wanted is WantedPower.OFF

    ledger.delete(instance_id)
    ledger.step("orders")
    assert order(ledger, instance_id).act is Act.PURGE
    ledger.settle()
    assert orders(ledger)[instance_id] is None


def test_a_residency_that_failed_to_start_ends_there_and_goes_on_elsewhere(two_hosts: Ledger) -> None:
    from hostagent.drivers.protocol import DriverError

    two_hosts.hosts["alpha"].faults.crash("create", error=DriverError("no"))
    ids = two_hosts.running(2)

    tried = next(i for i in ids if "spawn_failed" in two_hosts.history_of(i))
    assert orders(two_hosts, "alpha")[tried] is None
    assert order(two_hosts, tried, "beta").wanted is WantedPower.RUNNING


def test_a_host_that_comes_back_is_ordered_everything_again_under_its_new_session(ledger: Ledger) -> None:
    ids = ledger.running(3)
    ledger.stop(ids[0])
    ledger.settle()
    ledger.hosts["alpha"].restart()
    ledger.step("alpha")
    ledger.step("inbox")
    ledger.step("orders")

    assert [order(ledger, i).epoch for i in ids] == [2, 2, 2]
    assert [order(ledger, i).wanted for i in ids] == [WantedPower.OFF, WantedPower.RUNNING, WantedPower.RUNNING]


def test_orders_are_published_again_from_a_place_that_was_lost_and_come_out_the_same(ledger: Ledger) -> None:
    ids = ledger.running(3)
    ledger.stop(ids[0])
    ledger.delete(ids[1])
    ledger.settle()
    before = orders(ledger)

    with ledger.log._lock:
        ledger.log._db.execute("DELETE FROM steps")
    ledger.restart("orders")
    while ledger.step("orders"):
        pass

    assert orders(ledger) == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_manager_whose_publishing_failed_goes_on_with_the_right_generations(ledger: Ledger, when: str) -> None:
    [instance_id] = ledger.create()
    ledger.step("build")
    ledger.faults.crash("publish", when, error=OSError("the disk is full"))
    with pytest.raises(OSError, match="full"):
        ledger.step("orders")  # and it is not started anew: its next step begins where this one did
    ledger.settle()

    for ask in (ledger.stop, ledger.start, ledger.stop):
        ask(instance_id)
        ledger.settle()

    assert order(ledger, instance_id).generation == ledger.instance(instance_id).revision == 9
    assert order(ledger, instance_id).wanted is WantedPower.OFF


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_manager_that_dies_at_publishing_is_taken_over(ledger: Ledger, when: str) -> None:
    [instance_id] = ledger.create()
    ledger.step("build")
    ledger.faults.crash("publish", when)
    with pytest.raises(Crash):
        ledger.step("orders")
    ledger.restart("orders")
    ledger.settle()

    assert ledger.history_of(instance_id) == ["create_requested", "scheduled", "spawned"]
    assert ledger.hosts["alpha"].creates() == {instance_id: 1}


def test_two_managers_active_at_once_leave_the_right_orders(ledger: Ledger) -> None:
    one, other = (ledger.command_side().consumers["orders"]() for _ in range(2))
    [instance_id] = ledger.running()
    for number, ask in enumerate((ledger.stop, ledger.start, ledger.stop, ledger.start, ledger.stop)):
        ask(instance_id)
        (one, other)[number % 2].step()
        if number == 2:
            other.step()
        ledger.settle_without("orders")
        while one.step() or other.step():
            ledger.settle_without("orders")

    newest = order(ledger, instance_id)
    assert newest.generation == ledger.instance(instance_id).revision
    assert newest.wanted is WantedPower.OFF
    assert ledger.history_of(instance_id).count("stopped") == 3


def test_a_manager_that_takes_over_again_knows_the_sessions_it_has_not_seen(ledger: Ledger) -> None:
    one, other = (ledger.command_side().consumers["orders"]() for _ in range(2))
    one.step()
    [instance_id] = ledger.create()
    ledger.step("build")
    other.step()
    one.step()  # too late, with an order under the first session; the other goes on to the second
    ledger.hosts["alpha"].restart()
    ledger.settle_without("orders")
    other.step()
    ledger.settle_without("orders")
    other.step()
    ledger.stop(instance_id)
    while one.step():
        pass

    assert order(ledger, instance_id).epoch == 2
    ledger.settle_without("orders")
    assert ledger.history_of(instance_id)[-1] == "stopped"


@pytest.mark.parametrize("at_most", [1, 2, 5])
def test_it_makes_no_difference_how_many_events_are_read_at_once(ledger: Ledger, at_most: int) -> None:
    ledger.log.at_most = at_most
    ids = ledger.running(3)
    ledger.stop(ids[0])
    ledger.delete(ids[1])
    ledger.settle()

    assert order(ledger, ids[0]).wanted is WantedPower.OFF
    assert orders(ledger)[ids[1]] is None
    assert order(ledger, ids[2]).generation == ledger.instance(ids[2]).revision


def test_an_order_says_nothing_to_other_hosts(two_hosts: Ledger) -> None:
    [instance_id] = two_hosts.running()
    residence = two_hosts.instance(instance_id).residence
    assert residence is not None
    [other] = [name for name in two_hosts.hosts if name != residence.host]

    assert instance_id not in orders(two_hosts, other)


def test_what_was_active_before_is_in_the_events_of_these_tests() -> None:
    assert instance_after(*[e for e in active if type(e).__name__.startswith("Instance")]) == instance_after(*running)


def test_nothing_is_ordered_of_a_host_whose_key_is_revoked_and_all_of_it_once_it_is_enrolled_again(
    two_hosts: Ledger,
) -> None:
    enrolled = Enrolled(two_hosts)
    first, second = two_hosts.running(2)
    on_alpha = first if two_hosts.instance(first).residence.host == "alpha" else second  # type: ignore[union-attr]
    before = order(two_hosts, on_alpha)
    enrollment.revoke(two_hosts.storage, "alpha")

    two_hosts.stop(on_alpha)
    two_hosts.settle()
    two_hosts.restart("orders")
    two_hosts.settle()

    assert order(two_hosts, on_alpha) == before
    assert two_hosts.history_of(on_alpha)[-1] == "stop_requested"

    host = two_hosts.hosts["alpha"]
    host.signer = enrolled.credentials["alpha"] = enroll(two_hosts, "alpha")
    host.restart()
    two_hosts.pass_time(120)  # it says again what it is, until the new key is known

    assert two_hosts.history_of(on_alpha)[-1] == "stopped"
