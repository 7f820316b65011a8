"""What the command side and its consumers count, for those who measure."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

from commands.command import Unit
from commands.event_store import StoreUnavailable
from commands.log.consumer import Handled
from commands.log.port import REPORTS, Message, orders_topic
from commands.log.runner import Runner
from domain.errors import QuotaExceeded
from tests.support.ledger import Ledger, create_command


class Counted:
    """By how much something has grown since this was made."""

    def __init__(self) -> None:
        self._before = {key(sample): sample.value for family in REGISTRY.collect() for sample in family.samples}

    def __call__(self, name: str, **labels: str) -> float:
        name = f"compute_ledger_{name}"
        now = REGISTRY.get_sample_value(name, labels) or 0.0
        return now - self._before.get((name, frozenset(labels.items())), 0.0)


def key(sample: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


# the appender


def test_commits_and_how_many_commands_each_had(ledger: Ledger) -> None:
    counted = Counted()
    asks = [ledger.as_ask(create_command([])) for _ in range(3)]

    ledger.appender.flush([Unit(asks=asks[:1]), Unit(asks=asks[1:])])

    assert counted("commits_total") == counted("flush_commands_count") == 1
    assert counted("flush_commands_sum") == counted("commands_recorded_total") == 3
    assert counted("flush_commands_bucket", le="2.0") == 0
    assert counted("flush_commands_bucket", le="5.0") == 1


def test_a_command_that_is_asked_again_is_recorded_once(ledger: Ledger) -> None:
    ask = ledger.as_ask(create_command([]))
    counted = Counted()

    for _ in range(3):
        ledger.appender.flush([Unit(asks=[ask])])

    assert (counted("commits_total"), counted("commands_recorded_total")) == (3, 1)


def test_refusals_by_their_codes(ledger: Ledger) -> None:
    ledger.create(10)
    counted = Counted()

    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            ledger.create()

    assert counted("commands_refused_total", code="quota.exceeded") == 2
    assert counted("commands_recorded_total") == 0


def test_a_transaction_that_fails_counts_as_no_commit(ledger: Ledger) -> None:
    counted = Counted()
    ledger.faults.crash("transaction", error=StoreUnavailable("it is away"))

    with pytest.raises(StoreUnavailable):
        ledger.create()

    assert (counted("flushes_unavailable_total"), counted("commits_total")) == (1, 0)


# consumers


@pytest.mark.parametrize("name", ["build", "orders"])
def test_a_step_that_another_process_has_taken(ledger: Ledger, name: str) -> None:
    ledger.running()
    other = ledger.command_side().consumers[name]()
    while other.step():
        pass
    ledger.create()
    ledger.settle_without("orders", name)
    counted = Counted()

    while other.step():
        pass
    ledger.step(name)

    assert counted("step_conflicts_total", consumer=name) == 1


def test_orders_and_their_ends(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    counted = Counted()

    ledger.delete(instance_id)
    ledger.settle()

    assert counted("orders_published_total") == 2


def test_what_does_not_decode_is_parked(ledger: Ledger) -> None:
    counted = Counted()
    ledger.log.publish([Message(REPORTS, "alpha", b"no report")])
    ledger.log.publish([Message(orders_topic(ledger.hosts["alpha"].agent.service_id), "x", orjson.dumps({}))])

    ledger.settle()

    assert counted("parked_records") == 2
    assert counted("reports_refused_total", reason="undecodable") == 1


class Scripted:
    """A consumer of events that handles what it is told."""

    name = "scripted"

    def __init__(self, *batches: Handled) -> None:
        self.handled: Handled | None = None
        self._batches = list(batches)
        self.done = threading.Event()

    def step(self) -> bool:
        if not self._batches:
            return False
        self.handled = self._batches.pop(0)
        return True

    def wait(self, timeout_s: float) -> None:
        self.done.set()
        self.done.wait(0.01)


class NoLog:
    def wake(self) -> None:
        """Nobody waits."""


def test_each_batch_is_counted_once_with_the_age_of_its_last_event() -> None:
    now, counted = datetime.now(UTC), Counted()
    consumer = Scripted(Handled(3, now - timedelta(seconds=40)), Handled(2, now + timedelta(hours=1)), Handled(5))
    runner = Runner(NoLog(), [consumer])  # type: ignore[arg-type]
    runner.start()

    assert consumer.done.wait(20)
    runner.stop()

    of = {"consumer": "scripted"}
    assert counted("events_handled_total", **of) == 10
    assert counted("event_age_seconds_count", **of) == 2
    assert counted("event_age_seconds_bucket", le="30.0", **of) == 1, "another clock may be ahead"
    assert counted("event_age_seconds_bucket", le="60.0", **of) == 2


@pytest.mark.parametrize("name", ["build", "orders", "deadlines", "inbox", "views"])
def test_consumers_tell_what_they_handled_and_how_far_they_have_come(ledger: Ledger, name: str) -> None:
    ledger.views = ledger.open_views()
    consumer: Any = ledger.views if name == "views" else ledger.parts[name]
    before = consumer.handled
    ledger.running(2)

    assert consumer.handled is not before
    assert consumer.handled.count > 0
    if name == "inbox":
        assert consumer.position == ledger.log.end(REPORTS)
    else:
        assert consumer.position == ledger.log.head()
        assert consumer.handled.recorded == ledger.history()[-1].time
