"""What every log promises (`commands/log/port.py`), held against each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from commands.appender import Appender
from commands.command import Ask, Unit
from commands.decisions import decisions
from commands.flavor import CreateFlavor
from commands.log import recent, store_log
from commands.log.port import ANSWERS, HEARTBEATS, REPORTS, Log, Message, Step, orders_topic
from commands.log.store_log import StoreLog
from commands.sqlite_store import SQLiteEventStore
from commands.vault import Vault
from domain.flavor import FlavorSpec
from domain.identifiers import RequestId, ServiceId
from domain.recorded import Cause
from tests.support.ledger import Clock

SERVICE = ServiceId(UUID(int=7))
ORDERS = orders_topic(SERVICE)


@dataclass
class LogUnderTest:
    """A log with the ledger it belongs to; `reopen` is another process of the same ledger."""

    log: Log
    record: Callable[[], int]  # records one event through this process; its position
    record_elsewhere: Callable[[], int]  # through another process, of which this log hears nothing
    reopen: Callable[[], LogUnderTest]
    close: Callable[[], None]
    opened: list[LogUnderTest] = field(default_factory=list)


def store_log_under_test(directory: Path, number: list[int]) -> LogUnderTest:
    store = SQLiteEventStore(directory / "ledger.db")
    vault = Vault(store, b"k" * 32)
    log = StoreLog(store, vault, directory / "messages.db")

    def recorder(told: bool) -> Callable[[], int]:
        clock = Clock()
        appender = Appender(store, vault, decisions(), clock, log.committed if told else lambda before, events: None)

        def record() -> int:
            number[0] += 1
            flavor = FlavorSpec(flavor_id=str(number[0]), name=f"f{number[0]}", vcpus=1, memory_mib=1, root_gib=1)
            cause = Cause(command_id=UUID(int=number[0]), request_id=RequestId("req"))
            [result] = appender.flush([Unit(asks=(Ask(command=CreateFlavor(flavor=flavor), cause=cause),))])
            return result.head

        return record

    def close() -> None:
        log.close()
        store.close()

    made = LogUnderTest(log, recorder(True), recorder(False), lambda: store_log_under_test(directory, number), close)

    def reopen() -> LogUnderTest:
        made.opened.append(again := store_log_under_test(directory, number))
        return again

    made.reopen = reopen
    return made


@pytest.fixture(params=["store_log"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogUnderTest]:
    match request.param:
        case "store_log":
            made = store_log_under_test(tmp_path, [0])
    yield made
    for other in made.opened:
        other.close()
    made.close()


@pytest.fixture
def log(under_test: LogUnderTest) -> Log:
    return under_test.log


def all_events(log: Log, limit: int = 3) -> list[int]:
    """Positions as a reader gets them that starts at the beginning."""
    positions: list[int] = []
    while records := log.events(positions[-1] if positions else 0, limit):
        assert len(records) <= limit
        positions += [record.position for record in records]
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
    under_test = store_log_under_test(tmp_path, [0])
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
def test_of_a_compacted_topic_the_newest_of_each_key_is_kept(log: Log, topic: str) -> None:
    send(log, topic, "a=1", "b=1", "a=2")
    before = log.read(topic, 0, 100)
    send(log, topic, "a=3")

    assert [r.value for r in before] == [b"b=1", b"a=2"]
    assert values(log, topic) == [b"b=1", b"a=3"]
    assert values(log, topic, after=before[-1].offset) == [b"a=3"]


def test_an_offset_is_never_given_twice_even_when_all_messages_are_gone(
    under_test: LogUnderTest, tmp_path: Path
) -> None:
    send(under_test.log, REPORTS, "a=1")
    read = under_test.log.end(REPORTS)
    under_test.close()
    for path in tmp_path.glob("messages.db*"):
        path.unlink()

    again = store_log_under_test(tmp_path, [100])
    send(again.log, REPORTS, "a=2")

    assert values(again.log, REPORTS, after=read) == [b"a=2"]
    under_test.close = again.close


def test_a_step_is_kept_with_what_it_published_and_taken_only_from_where_it_stood(log: Log) -> None:
    assert log.position("a-publisher") == 0

    assert log.publish([Message(ORDERS, "a", b"1")], Step("a-publisher", 0, 5))
    assert not log.publish([Message(ORDERS, "a", b"2")], Step("a-publisher", 0, 6))
    assert not log.publish([Message(ORDERS, "a", b"3")], Step("a-publisher", 4, 6))
    assert log.publish([], Step("a-publisher", 5, 7))

    assert log.position("a-publisher") == 7
    assert values(log, ORDERS) == [b"1"]


def test_what_nobody_reads_any_more_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_log, "_SWEEP_EVERY", 2)
    made = store_log_under_test(tmp_path, [0])
    send(made.log, ANSWERS, "old=1")
    monkeypatch.setattr(store_log.time, "time", lambda: 4_000_000_000.0)  # decades later

    send(made.log, ANSWERS, "new=1")

    assert values(made.log, ANSWERS) == [b"new=1"]
    made.close()
