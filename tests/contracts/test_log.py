"""What every log promises (`commands/log/port.py`), held against each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from uuid import UUID

import pytest

from commands.appender import Appender
from commands.command import Ask, Unit
from commands.decisions import decisions
from commands.event_store import EventStore
from commands.flavor import CreateFlavor
from commands.log import recent, store_log
from commands.log.kafka_log import KafkaLog
from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import ANSWERS, HEARTBEATS, REPORTS, Log, Message, Step, orders_topic
from commands.log.relay import TOPICS, Relay
from commands.log.runner import Runner
from commands.log.store_log import StoreLog
from commands.postgresql_store import CommitBell, PostgreSQLEventStore
from commands.sqlite_store import SQLiteEventStore
from commands.vault import Vault
from domain.flavor import FlavorSpec
from domain.identifiers import RequestId, ServiceId
from domain.recorded import Cause, RecordedEvent
from tests.support.kafka import arrived, shared_kafka, topics_made_anew
from tests.support.ledger import Clock
from tests.support.postgresql import database, postgresql

__all__ = ["database", "postgresql"]

SERVICE = ServiceId(UUID(int=7))
ORDERS = orders_topic(SERVICE)
LIMIT_S = 60

Committed = Callable[[int, Sequence[RecordedEvent]], None]


@dataclass
class LogUnderTest:
    """A log with the ledger it belongs to; `reopen` is another process of the same ledger."""

    log: Log
    record: Callable[[], int]  # records one event through this process; its position
    record_elsewhere: Callable[[], int]  # through another process, of which this log hears nothing
    reopen: Callable[[], LogUnderTest]
    close: Callable[[], None]
    opened: list[LogUnderTest] = field(default_factory=list)


def recorder(store: EventStore, vault: Vault, number: list[int], committed: Committed) -> Callable[[], int]:
    """Records one event more at each call; who is told of it is `committed`."""
    appender = Appender(store, vault, decisions(), Clock(), committed)

    def record() -> int:
        number[0] += 1
        flavor = FlavorSpec(flavor_id=str(number[0]), name=f"f{number[0]}", vcpus=1, memory_mib=1, root_gib=1)
        cause = Cause(command_id=UUID(int=number[0]), request_id=RequestId("req"))
        [result] = appender.flush([Unit(asks=(Ask(command=CreateFlavor(flavor=flavor), cause=cause),))])
        return result.head

    return record


def nobody(before: int, events: Sequence[RecordedEvent]) -> None:
    pass


def log_under_test(open_log: Callable[[EventStore, Vault], Log], open_store: Callable[[], EventStore]) -> LogUnderTest:
    number = [0]

    def another() -> LogUnderTest:
        store = open_store()
        vault = Vault(store, b"k" * 32)
        log = open_log(store, vault)

        def close() -> None:
            log.close()
            store.close()

        made = LogUnderTest(
            log, recorder(store, vault, number, log.committed), recorder(store, vault, number, nobody), another, close
        )

        def reopen() -> LogUnderTest:
            made.opened.append(again := another())
            return again

        made.reopen = reopen
        return made

    return another()


def store_log_under_test(directory: Path) -> LogUnderTest:
    return log_under_test(
        lambda store, vault: StoreLog(store, vault, directory / "messages.db"),
        lambda: SQLiteEventStore(directory / "ledger.db"),
    )


@contextmanager
def kafka_log_under_test(url: str) -> Iterator[LogUnderTest]:
    """Over Kafka and PostgreSQL, with a relay at work between them."""
    options = KafkaOptions(bootstrap=shared_kafka().bootstrap)
    topics_made_anew(options, [*TOPICS, ORDERS])
    bells: list[CommitBell] = []

    def open_log(store: EventStore, vault: Vault) -> Log:
        bells.append(bell := CommitBell(url))
        return KafkaLog(store, vault, KafkaMessages(options), Topics(options), bell)

    made = log_under_test(open_log, lambda: PostgreSQLEventStore(url))
    store, bell, outlet, topics = PostgreSQLEventStore(url), CommitBell(url), KafkaMessages(options), Topics(options)
    runner = Runner(outlet, [Relay(store, outlet, topics, bell)])
    runner.start()
    yield made
    bell.wake()
    runner.stop()
    for part in (outlet, topics, bell, store, *bells):
        part.close()


@pytest.fixture(params=["store_log", "kafka_log"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    with ExitStack() as stack:
        if request.param == "store_log":
            made = store_log_under_test(tmp_path)
        else:
            made = stack.enter_context(kafka_log_under_test(request.getfixturevalue("database")))
        yield made
        for other in made.opened:
            other.close()
        made.close()


@pytest.fixture
def log(under_test: LogUnderTest) -> Log:
    return under_test.log


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[LogUnderTest]:
    made = store_log_under_test(tmp_path)
    yield made
    made.close()


def all_events(log: Log, limit: int = 3) -> list[int]:
    """Positions as a reader gets them that starts at the beginning."""
    positions: list[int] = []
    head, deadline = log.head(), monotonic() + LIMIT_S
    while (after := positions[-1] if positions else 0) < head:
        assert monotonic() < deadline, f"nothing came after {after}"
        log.wait_for_events(after, 0.2)
        records = log.events(after, limit)
        assert len(records) <= limit
        positions += [record.position for record in records]
    assert list(log.events(after, limit)) == []
    return positions


def send(log: Log, topic: str, *values: str) -> None:
    assert log.publish([Message(topic, value.partition("=")[0], value.encode()) for value in values])


def values(log: Log, topic: str, after: int = 0, limit: int = 100) -> list[bytes | None]:
    return [record.value for record in log.read(topic, after, limit)]


# events


def test_every_event_is_read_once_and_in_order(under_test: LogUnderTest) -> None:
    recorded = [under_test.record() for _ in range(8)]

    assert all_events(under_test.log) == recorded
    assert under_test.log.head() == recorded[-1]


def test_a_reader_that_has_read_everything_reads_nothing_until_there_is_more(under_test: LogUnderTest) -> None:
    under_test.record()
    head = under_test.log.head()

    assert list(under_test.log.events(head, 10)) == []
    position = under_test.record()
    while not under_test.log.wait_for_events(head, 1):
        pass
    assert [r.position for r in under_test.log.events(head, 10)] == [position]


def test_what_another_process_recorded_is_read_too(under_test: LogUnderTest) -> None:
    recorded = []
    for elsewhere in (False, True, True, False, True):
        recorded.append(under_test.record_elsewhere() if elsewhere else under_test.record())
        assert all_events(under_test.log) == recorded

    assert under_test.log.head() == recorded[-1]


def test_a_process_that_records_nothing_reads_what_others_go_on_recording(under_test: LogUnderTest) -> None:
    recorded = [under_test.record() for _ in range(3)]
    reader = under_test.reopen().log
    assert all_events(reader) == recorded

    recorded += [under_test.record() for _ in range(3)]

    assert all_events(reader) == recorded


def test_events_are_the_same_from_memory_and_from_the_store(under_test: LogUnderTest) -> None:
    for _ in range(4):
        under_test.record()

    assert list(under_test.log.events(0, 10)) == list(under_test.reopen().log.events(0, 10))


@pytest.mark.parametrize("kept", [1, 3, 5])
def test_no_event_is_left_out_however_few_are_kept_in_memory(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "EVENTS_KEPT", kept)
    under_test = store_log_under_test(tmp_path)
    recorded = []
    for _ in range(10):
        recorded.append(under_test.record())
        assert all_events(under_test.log) == recorded
    under_test.close()


def test_a_reader_that_waits_is_woken_by_what_it_waits_for(under_test: LogUnderTest) -> None:
    head = under_test.log.head()
    woken: list[bool] = []
    reader = threading.Thread(target=lambda: woken.append(under_test.log.wait_for_events(head, 30)))
    reader.start()

    under_test.record()
    reader.join(20)

    assert woken == [True]
    assert not under_test.log.wait_for_events(under_test.log.head(), 0)


# messages, where the embedded log promises more than the port does; the rest is in test_messages.py


@pytest.mark.parametrize("topic", [ORDERS, HEARTBEATS])
def test_of_a_compacted_topic_the_newest_of_each_key_is_kept(embedded: LogUnderTest, topic: str) -> None:
    log = embedded.log
    send(log, topic, "a=1", "b=1", "a=2")
    before = log.read(topic, 0, 100)
    send(log, topic, "a=3")

    assert [r.value for r in before] == [b"b=1", b"a=2"]
    assert values(log, topic) == [b"b=1", b"a=3"]
    assert values(log, topic, after=before[-1].offset) == [b"a=3"]


def test_an_offset_is_never_given_twice_even_when_all_messages_are_gone(embedded: LogUnderTest, tmp_path: Path) -> None:
    send(embedded.log, REPORTS, "a=1")
    read = embedded.log.end(REPORTS)
    embedded.close()
    for path in tmp_path.glob("messages.db*"):
        path.unlink()

    again = store_log_under_test(tmp_path)
    send(again.log, REPORTS, "a=2")

    assert values(again.log, REPORTS, after=read) == [b"a=2"]
    embedded.close = again.close


def test_a_step_is_kept_with_what_it_published_and_taken_only_from_where_it_stood(log: Log) -> None:
    assert log.position("a-publisher") == 0

    assert log.publish([Message(ORDERS, "a", b"1")], Step("a-publisher", 0, 5))
    assert not log.publish([Message(ORDERS, "a", b"2")], Step("a-publisher", 0, 6))
    assert not log.publish([Message(ORDERS, "a", b"3")], Step("a-publisher", 4, 6))
    assert log.publish([], Step("a-publisher", 5, 7))

    assert log.position("a-publisher") == 7
    assert [record.value for record in arrived(log, ORDERS, 1)] == [b"1"]


def test_what_nobody_reads_any_more_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_log, "_SWEEP_EVERY", 2)
    made = store_log_under_test(tmp_path)
    send(made.log, ANSWERS, "old=1")
    monkeypatch.setattr(store_log.time, "time", lambda: 4_000_000_000.0)  # decades later

    send(made.log, ANSWERS, "new=1")

    assert values(made.log, ANSWERS) == [b"new=1"]
    made.close()
