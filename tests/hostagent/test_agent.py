"""The host agent, killed anywhere: one outcome for each request, and one guest for each instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from commands.log.port import REPORTS, Message, orders_topic
from commands.log.reports import decode_report
from commands.orders import Act, Order
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.identifiers import HostName, InstanceId
from domain.instance.state import PowerState, TaskState, VmState
from domain.serialization import from_plain, to_plain
from hostagent.agent import Agent, HostIdentityChanged, HostSettings
from hostagent.drivers.fake_controls import history, lose_guest
from hostagent.drivers.protocol import DriverError, HypervisorUnreachable
from hostagent.reports import outcome
from tests.support.ledger import Crash, InlineExecutor, Ledger, TestHost, require_nothing_leaked


def reports(ledger: Ledger) -> list[Any]:
    return [decode_report(record.value or b"") for record in ledger.messages(REPORTS)]


def outcomes(ledger: Ledger, instance_id: InstanceId) -> list[OutcomeReport]:
    return [r for r in reports(ledger) if isinstance(r, OutcomeReport) and r.instance_id == instance_id]


def newest_order(ledger: Ledger, instance_id: InstanceId) -> Order:
    topic = orders_topic(ledger.hosts["alpha"].agent.service_id)
    values = [r.value for r in ledger.messages(topic) if r.key.startswith(str(instance_id)) and r.value is not None]
    return from_plain(Order, orjson.loads(values[-1]))


def give(ledger: Ledger, order: Order) -> None:
    topic = orders_topic(ledger.hosts["alpha"].agent.service_id)
    key = f"{order.guest.instance_id}/{order.host}"
    ledger.log.publish([Message(topic, key, orjson.dumps(to_plain(order)))])


def did(host: TestHost, instance_id: InstanceId) -> list[str]:
    return [entry.did for entry in history(host.hypervisor) if entry.instance_id == instance_id]


# killed at work

STEPS = ("begin", "the driver", "settle", "publish")
MOMENTS = [(step, when) for step in STEPS for when in ("before", "after")]


def being_stopped(ledger: Ledger, instance_id: InstanceId) -> None:
    ledger.stop(instance_id)


def being_started(ledger: Ledger, instance_id: InstanceId) -> None:
    ledger.stop(instance_id)
    ledger.settle()
    ledger.start(instance_id)


def being_rebooted(ledger: Ledger, instance_id: InstanceId) -> None:
    ledger.reboot(instance_id)


def being_rebooted_hard(ledger: Ledger, instance_id: InstanceId) -> None:
    ledger.reboot(instance_id, hard=True)


def being_deleted(ledger: Ledger, instance_id: InstanceId) -> None:
    ledger.delete(instance_id)


ACTS: list[tuple[Callable[[Ledger, InstanceId], None], str, str, VmState]] = [
    (being_stopped, "power_off", "stopped", VmState.STOPPED),
    (being_started, "power_on", "started", VmState.ACTIVE),
    (being_rebooted, "reboot", "rebooted", VmState.ACTIVE),
    (being_rebooted_hard, "reboot", "rebooted", VmState.ACTIVE),
    (being_deleted, "destroy", "deleted", VmState.DELETED),
]


def killed_at(ledger: Ledger, step: str, when: str, call: str) -> None:
    """Let the host work until it dies there, and start another agent on what it left."""
    host = ledger.hosts["alpha"]
    for part in ("build", "orders"):
        while ledger.step(part):
            pass
    if step == "publish":
        ledger.faults.crash("publish", when)
    else:
        host.faults.crash(call if step == "the driver" else step, when)
    with pytest.raises(Crash):
        host.step()
    ledger.faults.heal()
    host.restart()
    ledger.settle()


@pytest.mark.parametrize(("step", "when"), MOMENTS)
@pytest.mark.parametrize(("ask", "call", "event", "vm_state"), ACTS, ids=[ask.__name__ for ask, *_ in ACTS])
def test_an_agent_killed_while_a_guest_is_acted_on_is_taken_over(
    ledger: Ledger, ask: Any, call: str, event: str, vm_state: VmState, step: str, when: str
) -> None:
    [instance_id] = ledger.running()
    ask(ledger, instance_id)

    killed_at(ledger, step, when, call)

    instance = ledger.instance(instance_id)
    assert (instance.vm_state, instance.task_state) == (vm_state, None)
    assert ledger.history_of(instance_id).count(event) == 1, "one outcome"
    assert ledger.hosts["alpha"].creates() == {instance_id: 1}
    assert (instance_id in ledger.hosts["alpha"].guests()) is (vm_state is not VmState.DELETED)
    require_nothing_leaked(ledger)


@pytest.mark.parametrize(("step", "when"), MOMENTS)
def test_an_agent_killed_while_a_guest_is_made_is_taken_over(ledger: Ledger, step: str, when: str) -> None:
    [instance_id] = ledger.create()

    killed_at(ledger, step, when, "create")

    assert ledger.history_of(instance_id) == ["create_requested", "scheduled", "spawned"]
    assert ledger.hosts["alpha"].creates() == {instance_id: 1}
    assert ledger.hosts["alpha"].guests() == {instance_id: PowerState.RUNNING}
    require_nothing_leaked(ledger)


@pytest.mark.parametrize(("step", "when"), MOMENTS)
def test_a_guest_deleted_while_its_agent_was_dead_is_not_made_again(ledger: Ledger, step: str, when: str) -> None:
    [instance_id] = ledger.create()
    host = ledger.hosts["alpha"]
    for part in ("build", "orders"):
        ledger.step(part)
    if step == "publish":
        ledger.faults.crash("publish", when)
    else:
        host.faults.crash("create" if step == "the driver" else step, when)
    with pytest.raises(Crash):
        host.step()
    ledger.faults.heal()
    host.paused = True
    ledger.delete(instance_id)
    ledger.settle()
    host.paused = False
    host.restart()
    ledger.settle()

    assert ledger.instance(instance_id).deleted
    assert host.guests() == {}
    assert host.creates().get(instance_id, 0) <= 1
    require_nothing_leaked(ledger)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("ask", "call", "event", "vm_state"), ACTS, ids=[ask.__name__ for ask, *_ in ACTS])
def test_while_the_hypervisor_cannot_be_asked_nothing_is_said(
    ledger: Ledger, ask: Any, call: str, event: str, vm_state: VmState, when: str
) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].faults.crash(call, when, error=HypervisorUnreachable("the connection broke"))
    ask(ledger, instance_id)
    ledger.settle()
    waiting = ledger.instance(instance_id)
    assert waiting.task_state is not None

    ledger.pass_time(70)

    assert ledger.instance(instance_id).vm_state is vm_state
    assert ledger.history_of(instance_id).count(event) == 1


# what fails


def test_a_guest_that_could_not_be_made_leaves_nothing_behind(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.faults.crash("create", "after", error=DriverError("the network is on fire"))

    [instance_id] = ledger.running()

    assert did(host, instance_id) == ["create", "destroy"]
    assert host.guests() == {}
    [report] = outcomes(ledger, instance_id)
    assert (report.act, report.succeeded, report.message) == (Act.SPAWN, False, "the network is on fire")


def test_a_guest_that_could_neither_be_made_nor_removed_is_not_said_to_have_failed(two_hosts: Ledger) -> None:
    """Or it would be made on another host too."""
    host = two_hosts.hosts["alpha"]
    host.faults.crash("create", "after", error=DriverError("the network is on fire"))
    host.faults.crash("destroy", error=DriverError("busy"))
    [instance_id] = two_hosts.running(requested_host="alpha")
    assert two_hosts.instance(instance_id).task_state is TaskState.SPAWNING

    two_hosts.pass_time(70)

    assert two_hosts.history_of(instance_id) == ["create_requested", "scheduled", "spawned"]
    assert host.guests() == {instance_id: PowerState.RUNNING}
    assert two_hosts.hosts["beta"].guests() == {}


def test_files_that_cannot_be_had_for_a_guest_that_is_there_take_it_down(ledger: Ledger) -> None:
    """Otherwise "failed" would be said of a guest that runs, and it would be made a second time elsewhere."""
    host = ledger.hosts["alpha"]
    [instance_id] = ledger.create()
    for part in ("build", "orders"):
        ledger.step(part)
    host.faults.crash("create", "after")
    with pytest.raises(Crash):
        host.step()
    host.restart()
    host.driver.boots_images = True

    def no_image(guest: Any) -> Any:
        raise DriverError("the image cannot be had")

    host.agent._files.prepare = no_image  # type: ignore[method-assign]
    ledger.settle()

    assert "spawn_failed" in ledger.history_of(instance_id)
    assert host.guests() == {}
    require_nothing_leaked(ledger)


def test_a_purge_that_failed_and_its_later_success_are_two_reports(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    order, service_id = newest_order(ledger, instance_id), ledger.hosts["alpha"].agent.service_id
    failed, done, again = (
        outcome(order, service_id, Act.PURGE, succeeded=succeeded, power_state=0) for succeeded in (False, True, True)
    )

    assert failed.report_id != done.report_id == again.report_id


def test_a_fault_of_our_own_is_an_outcome_too(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.faults.crash("create", error=ZeroDivisionError("oops"))

    [instance_id] = ledger.running()

    assert "oops" in (ledger.instance(instance_id).fault or "")
    assert host.guests() == {}


@pytest.mark.parametrize(
    ("ask", "call", "event", "vm_state"),
    [
        (being_stopped, "power_off", "stop_failed", VmState.ACTIVE),
        (being_started, "power_on", "start_failed", VmState.STOPPED),
        (being_rebooted, "reboot", "reboot_failed", VmState.ERROR),
        (being_deleted, "destroy", "delete_failed", VmState.ERROR),
    ],
    ids=["stop", "start", "reboot", "delete"],
)
def test_what_the_hypervisor_refuses_is_told_once_and_may_be_asked_again(
    ledger: Ledger, ask: Any, call: str, event: str, vm_state: VmState
) -> None:
    [instance_id] = ledger.running()
    ask(ledger, instance_id)
    ledger.hosts["alpha"].faults.crash(call, error=DriverError("busy"))
    ledger.settle()

    instance = ledger.instance(instance_id)
    assert (instance.vm_state, instance.task_state, instance.fault) == (vm_state, None, "busy")
    assert ledger.history_of(instance_id).count(event) == 1

    ledger.delete(instance_id)
    ledger.settle()
    assert ledger.instance(instance_id).deleted
    assert ledger.hosts["alpha"].guests() == {}
    require_nothing_leaked(ledger)


def test_a_guest_that_vanished_cannot_be_started(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()
    lose_guest(ledger.hosts["alpha"].hypervisor, instance_id)

    ledger.start(instance_id)
    ledger.settle()

    assert ledger.history_of(instance_id)[-2:] == ["start_failed", "power_state_observed"]
    assert "does not hold this guest" in (ledger.instance(instance_id).fault or "")


# orders that are not taken


def test_an_order_of_an_older_session_is_refused(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].restart()
    ledger.settle()
    current = newest_order(ledger, instance_id)

    give(ledger, replace(current, epoch=current.epoch - 1, generation=99, act=Act.PURGE, task_revision=99))
    ledger.settle()

    assert set(ledger.hosts["alpha"].guests()) == {instance_id}


def test_an_order_of_a_lower_generation_is_refused(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    spawn = newest_order(ledger, instance_id)
    ledger.stop(instance_id)
    ledger.settle()
    before = did(ledger.hosts["alpha"], instance_id)

    give(ledger, replace(spawn, act=Act.REBOOT, task_revision=99))
    ledger.settle()

    assert did(ledger.hosts["alpha"], instance_id) == before


def test_the_same_order_again_is_done_once_and_reported_again(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.reboot(instance_id)
    ledger.step("orders")
    order = newest_order(ledger, instance_id)
    ledger.step("alpha")
    before = did(ledger.hosts["alpha"], instance_id)

    give(ledger, order)
    ledger.settle()

    assert did(ledger.hosts["alpha"], instance_id) == before
    reports_of_it = [r for r in outcomes(ledger, instance_id) if r.act is Act.REBOOT]
    assert len(reports_of_it) == 2
    assert len({r.report_id for r in reports_of_it}) == 1
    assert ledger.history_of(instance_id).count("rebooted") == 1


def test_a_report_that_was_lost_is_sent_again(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    for name in ("orders", "alpha"):
        ledger.step(name)
    with ledger.log._lock:
        ledger.log._db.execute("DELETE FROM messages WHERE topic = 'reports'")

    ledger.pass_time(70)

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED
    assert did(ledger.hosts["alpha"], instance_id) == ["create", "cut"]


def test_a_guest_no_order_speaks_of_is_left_alone(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].restart()  # it knows of no order yet
    ledger.step("alpha")
    ledger.clock.advance(120)
    ledger.step("alpha")

    assert ledger.hosts["alpha"].guests() == {instance_id: PowerState.RUNNING}


def test_an_image_is_kept_while_a_guest_is_there_whose_order_is_not(ledger: Ledger) -> None:
    ledger.running()
    host = ledger.hosts["alpha"]
    host.restart()
    host.driver.boots_images = True
    trimmed: list[Any] = []
    host.agent._files.trim = lambda guests: trimmed.append(list(guests))  # type: ignore[method-assign]
    ledger.step("alpha")
    ledger.clock.advance(120)
    ledger.step("alpha")
    assert trimmed == []

    ledger.settle()
    ledger.clock.advance(120)
    ledger.step("alpha")
    assert [len(guests) for guests in trimmed] == [1]


# what is seen


def observations(ledger: Ledger) -> list[ObservationReport]:
    return [r for r in reports(ledger) if isinstance(r, ObservationReport)]


@pytest.mark.parametrize("power", [PowerState.SHUTDOWN, PowerState.CRASHED])
def test_a_guest_that_went_off_by_itself_is_seen_at_once_and_not_started(ledger: Ledger, power: PowerState) -> None:
    [instance_id] = ledger.running()

    ledger.hosts["alpha"].switch_power(instance_id, power)
    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED
    assert ledger.instance(instance_id).power_state == power
    ledger.pass_time(200)
    assert ledger.hosts["alpha"].guests() == {instance_id: power}
    assert ledger.history_of(instance_id).count("power_state_observed") == 1


def test_a_change_that_was_not_heard_of_is_seen_on_the_next_round(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].driver.changed = None
    ledger.hosts["alpha"].switch_power(instance_id, PowerState.SHUTDOWN)
    ledger.settle()
    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE

    ledger.pass_time(70)

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_change_while_the_agent_was_dead_is_seen_when_it_is_back(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    host = ledger.hosts["alpha"]
    host.paused = True
    host.switch_power(instance_id, PowerState.SHUTDOWN)
    host.paused = False
    host.restart()
    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_stopped_guest_that_was_started_from_outside_is_stopped_again(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()

    ledger.hosts["alpha"].switch_power(instance_id, PowerState.RUNNING)
    ledger.settle()

    assert ledger.hosts["alpha"].guests() == {instance_id: PowerState.SHUTDOWN}
    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_each_observation_is_its_own_report_even_after_a_restart(ledger: Ledger) -> None:
    ids = ledger.running(3)
    host = ledger.hosts["alpha"]
    for instance_id in ids[:2]:
        host.switch_power(instance_id, PowerState.SHUTDOWN)
    ledger.settle()
    host.restart()
    ledger.settle()
    host.switch_power(ids[2], PowerState.SHUTDOWN)
    ledger.settle()

    assert len({o.report_id for o in observations(ledger)}) == len(observations(ledger)) == 3
    assert all(ledger.instance(i).vm_state is VmState.STOPPED for i in ids)


# sessions and identity


def test_a_session_says_what_the_host_is_and_counts_on(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    first = host.agent
    host.restart()
    ledger.settle()

    sessions = [r for r in reports(ledger) if isinstance(r, HostReport)]

    assert [s.epoch for s in sessions] == [1, 2]
    assert {s.service_id for s in sessions} == {first.service_id} == {host.agent.service_id}
    assert {s.node_id for s in sessions} == {first.node_id} == {host.agent.node_id}
    assert sessions[0].facts.inventories["VCPU"].total == 8


def test_a_host_that_cannot_reach_its_hypervisor_opens_no_session(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.restart()

    def nobody_answers() -> None:
        raise HypervisorUnreachable("nobody answers")

    host.driver.open = nobody_answers  # type: ignore[method-assign]
    with pytest.raises(HypervisorUnreachable):
        host.step()
    assert [r.epoch for r in reports(ledger) if isinstance(r, HostReport)] == [1]

    del host.driver.open  # type: ignore[method-assign]
    ledger.settle()
    assert [r.epoch for r in reports(ledger) if isinstance(r, HostReport)] == [1, 2]


def test_a_host_does_not_start_under_another_name(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]

    with pytest.raises(HostIdentityChanged):
        Agent(
            HostSettings(host=HostName("beta")),
            ledger.log,
            host.driver,
            host._journal,
            host.agent._files,
            lambda facts: facts,
            InlineExecutor(),
            ledger.clock,
        )


def test_an_order_that_came_while_its_guest_is_worked_on_is_done_after(ledger: Ledger) -> None:
    """A delete that arrives during a long stop: one after the other, and each on its own."""
    [instance_id] = ledger.running()
    host = ledger.hosts["alpha"]
    slow = host.driver.power_off

    def power_off(guest_id: InstanceId, grace_s: int) -> None:
        slow(guest_id, grace_s)
        ledger.delete(instance_id)
        ledger.step("orders")
        host.step()  # the agent hears of it while its worker is busy
        assert instance_id in host.guests()

    host.driver.power_off = power_off  # type: ignore[method-assign]
    ledger.stop(instance_id)
    ledger.settle()

    assert did(host, instance_id) == ["create", "cut", "destroy"]
    assert ledger.instance(instance_id).deleted
    assert ledger.instance(instance_id).task_state is not TaskState.DELETING
    require_nothing_leaked(ledger)


def test_a_guest_that_runs_again_after_it_was_paused_from_outside_is_told(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    for power in (PowerState.PAUSED, PowerState.RUNNING, PowerState.PAUSED):
        ledger.hosts["alpha"].switch_power(instance_id, power)
        ledger.pass_time(70, step_s=10)

        assert ledger.instance(instance_id).power_state == power
