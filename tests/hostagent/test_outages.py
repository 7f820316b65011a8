"""The log away, orders from the past: the host agent waits, loses nothing, and makes nothing twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from commands.log.port import HEARTBEATS, REPORTS, LogUnavailable, Message, orders_topic
from commands.log.reports import decode_report
from commands.metrics import AGENT_ORDERS_REFUSED
from commands.orders import Act, Order, WantedPower
from commands.reports import HostReport
from domain.identifiers import InstanceId
from domain.instance.state import PowerState, VmState
from domain.serialization import from_plain, to_plain
from hostagent.drivers.protocol import HypervisorUnreachable
from tests.support.ledger import Ledger, require_nothing_leaked


@contextmanager
def log_away(ledger: Ledger) -> Iterator[None]:
    """What hosts say does not get through."""
    publish = ledger.log.publish

    def away(messages: Sequence[Message], step: Any = None) -> bool:
        if any(message.topic in (REPORTS, HEARTBEATS) for message in messages):
            raise LogUnavailable("nobody answers")
        return publish(messages, step)

    ledger.log.publish = away  # type: ignore[method-assign]
    try:
        yield
    finally:
        del ledger.log.publish  # type: ignore[method-assign]


def sessions(ledger: Ledger) -> list[bytes]:
    values = [record.value or b"" for record in ledger.messages(REPORTS)]
    return [value for value in values if isinstance(decode_report(value), HostReport)]


def order_topic(ledger: Ledger) -> str:
    return orders_topic(ledger.hosts["alpha"].agent.service_id)


def newest_order(ledger: Ledger, instance_id: InstanceId) -> Order:
    values = [r.value for r in ledger.messages(order_topic(ledger)) if r.key.startswith(str(instance_id)) and r.value]
    return from_plain(Order, orjson.loads(values[-1]))


def give(ledger: Ledger, *orders: Order | InstanceId) -> None:
    """Orders as they are; an id alone ends what is wanted of that guest. All of them are there when the agent looks."""
    topic = order_topic(ledger)
    for order in orders:  # not compacted yet: each under its key, as the topic may hold them
        if isinstance(order, Order):
            value, instance_id = orjson.dumps(to_plain(order)), order.guest.instance_id
        else:
            value, instance_id = None, order
        with ledger.log._lock:
            ledger.log._db.execute(
                "INSERT INTO messages (topic, key, value, sent) VALUES (?, ?, ?, 0)",
                (topic, f"{instance_id}/alpha", value),
            )


def refused_orders() -> dict[str, float]:
    [family] = AGENT_ORDERS_REFUSED.collect()
    return {s.labels["reason"]: s.value for s in family.samples if s.name.endswith("_total")}


# the log is away


def test_an_outcome_that_could_not_be_sent_is_sent_when_the_log_answers_again(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    with log_away(ledger):
        ledger.pass_time(30)
        assert ledger.hosts["alpha"].guests() == {instance_id: PowerState.SHUTDOWN}, "the work goes on"
        assert ledger.instance(instance_id).vm_state is VmState.ACTIVE
    ledger.pass_time(6)

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED
    assert ledger.history_of(instance_id).count("stopped") == 1


def test_what_was_seen_and_could_not_be_told_is_told_later(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    with log_away(ledger):
        ledger.hosts["alpha"].switch_power(instance_id, PowerState.SHUTDOWN)
        ledger.settle()
    ledger.pass_time(6)

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_purge_that_could_not_be_told_is_told_later(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.delete(instance_id)
    with log_away(ledger):
        ledger.settle()
    ledger.pass_time(6)

    assert ledger.instance(instance_id).deleted
    require_nothing_leaked(ledger)


def test_an_outage_is_said_once_and_so_is_its_end(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    ids = ledger.running(3)
    caplog.set_level(logging.INFO, "hostagent")
    for instance_id in ids:
        ledger.stop(instance_id)
    with log_away(ledger):
        ledger.pass_time(50)
    ledger.pass_time(12)

    said = [record.getMessage() for record in caplog.records if record.name == "hostagent.reports"]
    assert said == ["the log does not answer, reports wait: nobody answers", "the log answers again"]
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_host_that_could_be_heard_of_by_nobody_is_up_again_by_itself(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    with log_away(ledger):
        ledger.pass_time(120)
    ledger.pass_time(20)
    ledger.stop(instance_id)
    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED
    assert [r.type for r in ledger.history() if r.type == "service.went_down"] == ["service.went_down"]


def test_a_start_while_the_log_is_away_is_one_session_however_often_it_is_tried(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.restart()
    with log_away(ledger):
        ledger.pass_time(60)
        assert not host.agent.in_session
    ledger.pass_time(6)

    assert host.agent.in_session
    assert [decode_report(value).epoch for value in sessions(ledger)] == [1, 2]  # type: ignore[union-attr]


def test_while_the_topic_of_orders_cannot_be_read_guests_are_looked_after(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    agent = ledger.hosts["alpha"].agent

    def away(limit: int) -> Any:
        raise LogUnavailable("nobody answers")

    agent._inbox.read = away  # type: ignore[method-assign]
    ledger.hosts["alpha"].driver.changed = None
    ledger.hosts["alpha"].switch_power(instance_id, PowerState.SHUTDOWN)
    ledger.pass_time(70)

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_host_whose_hypervisor_goes_away_while_it_opens_counts_no_session(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.restart()

    def broken(*args: Any) -> None:
        raise HypervisorUnreachable("the connection broke")

    for call in ("open", "facts", "watch"):
        setattr(host.driver, call, broken)
        for _ in range(3):
            with pytest.raises(HypervisorUnreachable):
                host.step()
        delattr(host.driver, call)
    ledger.settle()

    assert [decode_report(value).epoch for value in sessions(ledger)] == [1, 2]  # type: ignore[union-attr]
    assert host.driver.changed is not None, "it hears of changes"


def test_a_host_says_who_it_is_again_so_that_a_lost_topic_heals(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    host.restart()
    host.step()
    with ledger.log._lock:
        ledger.log._db.execute("DELETE FROM messages WHERE topic = 'reports'")
    ledger.pass_time(70)

    assert ledger.folded(f"service:{host.agent.service_id}").state.epoch == 2  # type: ignore[arg-type]
    [instance_id] = ledger.running()
    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE


def test_a_session_that_is_told_again_is_told_in_the_same_words_and_recorded_once(ledger: Ledger) -> None:
    ledger.pass_time(200)

    assert len(sessions(ledger)) == 4
    assert len(set(sessions(ledger))) == 1
    assert [r.type for r in ledger.history() if r.type == "service.came_up"] == ["service.came_up"]


# a clock that is set


def test_a_host_whose_clock_is_set_back_goes_on_beating(ledger: Ledger) -> None:
    ledger.pass_time(20)
    ledger.clock.set_by(-3600)
    ledger.pass_time(180)

    assert [r.type for r in ledger.history() if r.type == "service.went_down"] == []
    assert len(sessions(ledger)) == 4, "and says who it is"


def test_a_host_whose_clock_is_set_back_looks_round_and_tries_again_as_ever(ledger: Ledger) -> None:
    [kept, stopped] = ledger.running(2)
    host = ledger.hosts["alpha"]
    host.faults.crash("power_off", error=HypervisorUnreachable("the connection broke"))
    ledger.stop(stopped)
    ledger.settle()
    host.driver.changed = None
    host.switch_power(kept, PowerState.SHUTDOWN)
    ledger.clock.set_by(-3600)

    ledger.pass_time(6)
    assert ledger.instance(stopped).vm_state is VmState.STOPPED
    ledger.pass_time(60)
    assert ledger.instance(kept).vm_state is VmState.STOPPED


def test_an_end_is_remembered_though_the_clock_is_set_a_month_ahead(ledger: Ledger) -> None:
    _, spawn = spawned_and_gone(ledger)
    ledger.clock.set_by(30 * 86_400)
    ledger.pass_time(120)

    give(ledger, spawn)
    ledger.settle()

    assert ledger.hosts["alpha"].guests() == {}


# orders from the past


def spawned_and_gone(ledger: Ledger) -> tuple[InstanceId, Order]:
    """A guest that was deleted, and the order that once had it made."""
    [instance_id] = ledger.create()
    ledger.settle_without("alpha")
    spawn = newest_order(ledger, instance_id)
    ledger.settle()
    ledger.delete(instance_id)
    ledger.settle()
    assert ledger.hosts["alpha"].guests() == {}
    return instance_id, spawn


def test_an_old_order_that_is_published_after_the_end_makes_no_guest(ledger: Ledger) -> None:
    _, spawn = spawned_and_gone(ledger)
    before = refused_orders().get("ended", 0)

    give(ledger, spawn)
    ledger.settle()

    assert ledger.hosts["alpha"].guests() == {}
    assert refused_orders()["ended"] == before + 1


def said(caplog: pytest.LogCaptureFixture, word: str) -> list[tuple[int, str]]:
    lines = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "hostagent.agent"]
    return [(level, line) for level, line in lines if word in line]


def test_an_order_of_another_ledger_is_refused_by_a_host_that_was_enrolled(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    host = ledger.hosts["alpha"]
    host.incarnation = ledger.store.incarnation
    host.restart()
    ledger.pass_time(10)
    [instance_id] = ledger.running()
    before = refused_orders().get("incarnation", 0)
    purge = replace(
        newest_order(ledger, instance_id),
        incarnation="another",
        act=Act.PURGE,
        wanted=WantedPower.PURGED,
        generation=99,
    )

    give(ledger, replace(purge, task_revision=99))
    ledger.settle()

    assert set(host.guests()) == {instance_id}
    assert refused_orders()["incarnation"] == before + 1
    [(level, line)] = said(caplog, "another")
    assert level == logging.WARNING
    assert line.startswith(f"order {purge.order_id} refused: it is of ledger another, and this host is")


def test_of_many_old_orders_one_line_is_said_and_each_is_counted(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hostagent.agent")
    ids = ledger.running(5)
    before = refused_orders().get("epoch", 0)
    ledger.hosts["alpha"].restart()
    ledger.pass_time(10)

    assert refused_orders()["epoch"] == before + 5
    [(level, line)] = said(caplog, "older")
    assert level == logging.INFO
    assert line.startswith("5 orders of older sessions are passed over, for example order ")
    assert line.endswith("refused: epoch 1 is older than 2")
    assert any(str(instance_id) in line for instance_id in ids)


def test_of_one_old_order_it_is_said_which(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hostagent.agent")
    [instance_id] = ledger.running()
    order = newest_order(ledger, instance_id)
    ledger.hosts["alpha"].restart()
    ledger.pass_time(10)

    assert said(caplog, "older") == [(logging.INFO, f"order {order.order_id} refused: epoch 1 is older than 2")]


def test_it_makes_none_after_a_restart_either_though_it_is_of_the_new_session(ledger: Ledger) -> None:
    _, spawn = spawned_and_gone(ledger)
    host = ledger.hosts["alpha"]
    host.restart()
    ledger.settle()

    give(ledger, replace(spawn, epoch=2))
    ledger.settle()

    assert host.guests() == {}


def test_an_order_of_a_later_generation_is_another_residency(ledger: Ledger) -> None:
    instance_id, spawn = spawned_and_gone(ledger)

    give(ledger, replace(spawn, generation=100, task_revision=100))
    ledger.settle()

    assert set(ledger.hosts["alpha"].guests()) == {instance_id}


def test_orders_of_one_guest_that_come_at_once_are_held_to_each_other(ledger: Ledger) -> None:
    """As a topic holds them that was not compacted yet: the newest, then what an old publisher woke up with."""
    [instance_id] = ledger.running()
    running = newest_order(ledger, instance_id)
    purge = replace(running, generation=90, task_revision=90, act=Act.PURGE, wanted=WantedPower.PURGED)
    spawn = replace(running, act=Act.SPAWN, task_revision=91)

    give(ledger, purge, spawn)
    ledger.settle()
    assert ledger.hosts["alpha"].guests() == {}

    give(ledger, replace(purge, generation=95), instance_id, replace(spawn, generation=95))
    ledger.settle()
    assert ledger.hosts["alpha"].guests() == {}
    assert ledger.hosts["alpha"].creates() == {instance_id: 1}


def test_an_order_that_does_not_decode_is_passed_over(ledger: Ledger) -> None:
    topic = order_topic(ledger)
    ledger.log.publish([Message(topic, "not an id", b"{}"), Message(topic, f"{InstanceId.__name__}", None)])
    ledger.log.publish([Message(topic, "00000000-0000-0000-0000-000000000001/alpha", b'{"incarnation": 1}')])
    [instance_id] = ledger.running()

    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE


def test_a_query_that_cannot_be_answered_is_let_go(ledger: Ledger) -> None:
    from commands.log.port import ANSWERS, queries_topic
    from hostagent.queries import Queries

    service_id = ledger.hosts["alpha"].agent.service_id
    queries = Queries(ledger.log, ledger.hosts["alpha"].driver, service_id)
    queries.step()
    ledger.faults.crash("publish", error=LogUnavailable("nobody answers"), skip=1)
    ledger.log.publish([Message(queries_topic(service_id), "1", b"no JSON")])
    assert queries.step()
    ledger.log.publish([Message(queries_topic(service_id), "2", b'{"what": "weather"}')])
    assert queries.step()

    assert [(r.key, orjson.loads(r.value or b"")) for r in ledger.messages(ANSWERS)] == [
        ("2", {"error": "this host does not know the query weather"})
    ]
