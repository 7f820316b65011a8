"""Kafka delivers, the store is the record: whatever is late, lost, repeated or deleted, a reader misses nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from commands.log import kafka_log
from commands.log.kafka_log import KafkaLog
from commands.log.port import ALLOCATIONS, INSTANCES, LEDGER, LogUnavailable, Message, Step, orders_topic, queries_topic
from commands.log.relay import EVENT_TOPICS, Relay
from domain.identifiers import ServiceId
from tests.support.fake_bell import FakeBell
from tests.support.fake_kafka import FakeKafka
from tests.support.ledger import Ledger
from tests.support.recording import Recording

LIMIT_S = 30
HOST = ServiceId(UUID(int=9))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.002)


class Region:
    """A store, a broker and a relay; logs as different processes have them."""

    def __init__(self, directory: Path) -> None:
        self.recording = Recording(directory)
        self.store = self.recording.store
        self.kafka = FakeKafka()
        self.logs: list[KafkaLog] = []

    def log(self) -> KafkaLog:
        self.logs.append(
            log := KafkaLog(self.store, self.recording.vault, self.kafka, self.kafka, FakeBell(self.store))
        )
        return log

    def relay(self) -> Relay:
        return Relay(self.store, self.kafka, self.kafka, FakeBell(self.store))

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.store.close()


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = Region(tmp_path)
    made.kafka.ensure(EVENT_TOPICS)
    yield made
    made.close()


class Reader:
    """Takes in events as a consumer does."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.seen: list[int] = []

    def step(self, limit: int = 3) -> None:
        self._log.wait_for_events(self.position, 0.001)
        self.seen += [event.position for event in self._log.events(self.position, limit)]

    @property
    def position(self) -> int:
        return self.seen[-1] if self.seen else 0

    def until(self, positions: list[int]) -> None:
        def all_seen() -> bool:
            self.step()
            return len(self.seen) >= len(positions)

        until(all_seen)
        assert self.seen == positions


def test_events_arrive_through_the_topic(region: Region) -> None:
    reader, relay = Reader(region.log()), region.relay()
    recorded = []
    for _ in range(5):
        recorded.append(region.recording.record())
        relay.step()
        reader.until(recorded)


def test_a_reader_that_starts_late_reads_the_past_from_the_store(region: Region) -> None:
    recorded = [region.recording.record() for _ in range(7)]

    Reader(region.log()).until(recorded)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "commands.log.kafka_log"]


def ready(log: KafkaLog) -> None:
    """It knows where the topic ended."""
    log._follow()
    until(lambda: log._offset is not None)


def test_what_was_recorded_before_a_process_follows_the_topic_is_not_late(
    region: Region, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was published before the end that is followed from, and never arrives."""
    monkeypatch.setattr(kafka_log, "LASTS_S", 0.0)
    log, relay = region.log(), region.relay()
    recorded = [region.recording.record() for _ in range(3)]
    while relay.step():
        pass
    reader = Reader(log)
    reader.until(recorded)
    ready(log)

    monkeypatch.setattr(kafka_log, "PATIENCE_S", LIMIT_S)
    recorded.append(region.recording.record())
    relay.step()
    reader.until(recorded)

    assert not log._alone
    assert told(caplog) == []


@pytest.mark.parametrize("lasts", [False, True])
def test_that_events_do_not_arrive_is_said_where_it_lasts(
    region: Region, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(kafka_log, "LASTS_S", 0.0 if lasts else LIMIT_S * 2)
    log = region.log()
    ready(log)
    reader, recorded = Reader(log), [region.recording.record()]  # and no relay
    reader.until(recorded)
    until(lambda: log._alone and log._said == lasts)
    region.relay().step()
    until(lambda: not log._alone)

    said = ["events are recorded and do not arrive; they are read from the store", "events arrive again"]
    assert told(caplog) == (said if lasts else [])


def test_known_events_that_come_before_the_next_one_are_no_alarm(
    region: Region, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "PATIENCE_S", LIMIT_S)
    log = region.log()
    reader, relay, own = Reader(log), region.relay(), region.recording.appender(log.committed)
    recorded: list[int] = []
    for _ in range(5):
        region.kafka.held_back = True
        recorded.append(region.recording.record(own))
        relay.step()
        recorded.append(region.recording.record())
        reader.until(recorded[:-1])
        region.kafka.held_back = False
        region.kafka.wake()
        until(lambda: log._offset == region.kafka.end(LEDGER))
        relay.step()
        reader.until(recorded)

    assert told(caplog) == []


def test_events_that_never_come_though_others_do_are_read_from_the_store(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is filled again from its beginning for minutes."""
    reader, relay = Reader(region.log()), region.relay()
    recorded = [region.recording.record()]
    relay.step()
    reader.until(recorded)
    [known] = region.kafka.records(LEDGER)
    monkeypatch.setattr(region.kafka, "read", lambda topic, after, limit: [replace(known, offset=after + 1)])

    for _ in range(3):
        recorded.append(region.recording.record())
        reader.until(recorded)


def test_a_ledger_that_is_never_at_rest_is_followed_through_the_topic_again(
    region: Region, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives never is the newest event, but comes soon after it."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(kafka_log, "PATIENCE_S", 0.05)
    monkeypatch.setattr(kafka_log, "LASTS_S", 0.0)
    log = region.log()
    reader, relay = Reader(log), region.relay()
    ready(log)
    region.kafka.held_back = True
    recorded = [region.recording.record()]
    relay.step()
    reader.until(recorded)
    until(lambda: log._alone)

    monkeypatch.setattr(kafka_log, "PATIENCE_S", LIMIT_S)
    region.kafka.held_back = False
    read = region.kafka.read
    monkeypatch.setattr(region.kafka, "read", lambda topic, after, limit: read(topic, after, limit)[:-3])

    def arrive_again() -> bool:
        recorded.append(region.recording.record())
        relay.step()
        until(lambda: log._recent.head == recorded[-1] or not log._alone)
        return not log._alone

    until(arrive_again)
    monkeypatch.undo()
    region.kafka.wake()
    reader.until(recorded)
    assert "events arrive again" in told(caplog)


@pytest.mark.parametrize("fault", ["down", "held_back"])
def test_with_nothing_delivered_readers_go_on(region: Region, fault: str) -> None:
    reader, relay = Reader(region.log()), region.relay()
    recorded = [region.recording.record()]
    relay.step()
    reader.until(recorded)

    setattr(region.kafka, fault, True)
    for _ in range(10):
        recorded.append(region.recording.record())
        reader.until(recorded)

    setattr(region.kafka, fault, False)
    for _ in range(10):
        recorded.append(region.recording.record())
        relay.step()
        reader.until(recorded)


def test_records_missing_in_the_topic_are_read_from_the_store(region: Region) -> None:
    reader, relay = Reader(region.log()), region.relay()
    recorded = [region.recording.record()]
    relay.step()
    reader.until(recorded)
    recorded += [region.recording.record() for _ in range(3)]
    lossy = region.relay()
    region.kafka.publish, publish = lambda messages: publish(messages[-1:]), region.kafka.publish  # type: ignore[method-assign]

    lossy.step()

    reader.until(recorded)


def test_what_this_process_recorded_is_read_at_once_and_once(region: Region) -> None:
    log = region.log()
    reader, relay, own = Reader(log), region.relay(), region.recording.appender(log.committed)
    recorded = []
    for elsewhere in (False, True, False, True, True, False, False):
        recorded.append(region.recording.record(None if elsewhere else own))
        if elsewhere:
            relay.step()
    relay.step()

    reader.until(recorded)


def test_topics_that_are_deleted_are_filled_again_and_nothing_is_read_twice(region: Region) -> None:
    reader, relay = Reader(region.log()), region.relay()
    recorded = [region.recording.record() for _ in range(3)]
    relay.step()
    reader.until(recorded)

    region.kafka.delete()
    recorded.append(region.recording.record())
    with pytest.raises(LogUnavailable):
        relay.step()
    assert relay.step()
    assert [int(dict(r.headers)["position"]) for r in region.kafka.records(LEDGER)] == recorded
    recorded.append(region.recording.record())
    relay.step()

    reader.until(recorded)


def test_an_idle_relay_notices_that_a_topic_is_gone(region: Region) -> None:
    relay = region.relay()
    region.recording.record()
    relay.step()
    assert not relay.step()

    region.kafka.delete([INSTANCES])
    relay.wait(0)
    while relay.step():
        pass

    assert region.kafka.incarnation(INSTANCES)
    assert len(region.kafka.records(LEDGER)) == 1


def test_a_relay_that_starts_beside_another_repeats_what_was_not_kept(region: Region) -> None:
    first = region.relay()
    for _ in range(3):
        region.recording.record()
        first.step()
    reader = Reader(region.log())
    second = region.relay()
    region.recording.record()

    second.step()

    reader.until([1, 2, 3, 4])
    assert [int(dict(r.headers)["position"]) for r in region.kafka.records(LEDGER)] == [1, 2, 3, 1, 2, 3, 4]


def test_what_a_woken_relay_publishes_again_is_read_once(region: Region) -> None:
    reader, first, second = Reader(region.log()), region.relay(), region.relay()
    recorded = [region.recording.record()]
    first.step()
    second.step()
    recorded += [region.recording.record() for _ in range(2)]
    first.step()
    reader.until(recorded)

    second.step()  # knows nothing of the first one's step
    recorded.append(region.recording.record())
    first.step()

    reader.until(recorded)
    assert len(region.kafka.records(LEDGER)) == 7


def test_each_partition_tells_what_came_before(tmp_path: Path) -> None:
    """Of instances and allocations each stream is in one partition, in order, with the position before it there."""
    ledger = Ledger(tmp_path, hosts=("alpha", "beta")).with_flavors()
    for _ in range(6):
        ledger.create()
    ledger.settle()
    kafka = FakeKafka()
    relay = Relay(ledger.store, kafka, kafka, FakeBell(ledger.store))
    while relay.step():
        pass

    for topic, category in ((INSTANCES, "instance:"), (ALLOCATIONS, "provider:")):
        expected = {stored.position for stored in ledger.store.read(0, 10_000) if stored.stream.startswith(category)}
        found: set[int] = set()
        places: dict[str, int] = {}
        for number in range(3):
            before = 0
            for record in (r for key, rs in kafka._records.items() if key == (topic, number) for r in rs):
                headers = dict(record.headers)
                assert int(headers["prev"]) == before
                before = int(headers["position"])
                found.add(before)
                assert places.setdefault(record.key, number) == number
                assert headers["ce_type"]
                assert headers["ce_time"]
                assert headers["ce_subject"].decode() == record.key
        assert found == expected
    ledger.close()


def test_a_step_is_taken_only_from_where_it_stood(region: Region) -> None:
    log = region.log()
    region.kafka.ensure(["orders"])

    assert log.publish([Message("orders", "a", b"1")], Step("a-publisher", 0, 5))
    assert not log.publish([Message("orders", "a", b"2")], Step("a-publisher", 0, 6))
    assert not log.publish([Message("orders", "a", b"3")], Step("a-publisher", 4, 6))

    assert log.position("a-publisher") == 5
    assert [r.value for r in region.kafka.records("orders")] == [b"1"]


def test_a_host_s_topics_are_made_and_want_its_orders_until_they_have_them(region: Region) -> None:
    assert list(region.log().hosts([HOST])) == [HOST]
    log = region.log()
    assert list(log.hosts([HOST])) == [HOST]
    assert region.kafka.incarnations([orders_topic(HOST), queries_topic(HOST)]).keys() == {
        orders_topic(HOST),
        queries_topic(HOST),
    }

    log.filled(HOST)
    assert list(region.log().hosts([HOST])) == []

    region.kafka.delete()
    assert list(region.log().hosts([HOST])) == [HOST]


def test_a_waiting_reader_ends_at_once_when_its_process_stops(region: Region) -> None:
    log = region.log()
    waiting = threading.Thread(target=lambda: log.wait_for_events(0, LIMIT_S))
    waiting.start()
    until(lambda: log._thread is not None)

    while waiting.is_alive():
        log.wake()
        waiting.join(0.01)
