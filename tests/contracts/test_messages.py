"""What every log promises of messages on topics (`commands/log/port.py`), held against each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.port import ANSWERS, HEARTBEATS, REPORTS, Message, Messages, orders_topic, queries_topic
from commands.log.reader import TopicReader
from commands.log.store_log import StoreLog
from commands.sqlite_store import SQLiteEventStore
from commands.vault import Vault
from domain.identifiers import ServiceId
from tests.support.kafka import arrived, shared_kafka, topics_made_anew

SERVICE = ServiceId(UUID(int=7))
ORDERS, QUERIES = orders_topic(SERVICE), queries_topic(SERVICE)
TOPICS = (REPORTS, ANSWERS, HEARTBEATS, ORDERS, QUERIES)


@dataclass
class UnderTest:
    """Messages of one process; `reopen` gives another process's."""

    open: Callable[[], Messages]
    opened: list[Messages] = field(default_factory=list)

    def reopen(self) -> Messages:
        self.opened.append(messages := self.open())
        return messages


@pytest.fixture(params=["store_log", "kafka"])
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnderTest]:
    match request.param:
        case "store_log":
            store = SQLiteEventStore(tmp_path / "ledger.db")
            vault = Vault(store, b"k" * 32)
            made = UnderTest(lambda: StoreLog(store, vault, tmp_path / "messages.db"))
        case "kafka":
            options = KafkaOptions(bootstrap=shared_kafka().bootstrap)
            topics_made_anew(options, TOPICS)
            made = UnderTest(lambda: KafkaMessages(options))
    yield made
    for messages in made.opened:
        messages.close()
    if request.param == "store_log":
        store.close()


@pytest.fixture
def messages(under_test: UnderTest) -> Messages:
    return under_test.reopen()


def send(messages: Messages, topic: str, *values: str) -> None:
    assert messages.publish([Message(topic, value.partition("=")[0], value.encode()) for value in values])


def values(messages: Messages, topic: str, count: int, after: int = 0) -> list[bytes | None]:
    return [record.value for record in arrived(messages, topic, count, after)]


def test_messages_of_a_topic_are_read_in_order_and_from_any_place(messages: Messages) -> None:
    send(messages, REPORTS, "a=1", "b=1")
    send(messages, ANSWERS, "x=1")
    send(messages, REPORTS, "a=2")

    records = arrived(messages, REPORTS, 3)

    assert [(r.key, r.value) for r in records] == [("a", b"a=1"), ("b", b"b=1"), ("a", b"a=2")]
    assert [r.offset for r in records] == sorted({r.offset for r in records})
    assert [r.value for r in messages.read(REPORTS, records[0].offset, 1)] == [b"b=1"]
    assert list(messages.read(REPORTS, records[-1].offset, 10)) == []
    assert messages.end(REPORTS) == records[-1].offset
    assert values(messages, ANSWERS, 1) == [b"x=1"]


def test_a_reader_may_begin_anywhere_and_go_back(under_test: UnderTest, messages: Messages) -> None:
    send(messages, REPORTS, "a=1", "a=2", "a=3")
    offsets = [record.offset for record in arrived(messages, REPORTS, 3)]
    later = under_test.reopen()

    assert values(later, REPORTS, 1, after=offsets[1]) == [b"a=3"]
    assert values(later, REPORTS, 2, after=offsets[0]) == [b"a=2", b"a=3"]
    assert values(later, REPORTS, 3) == [b"a=1", b"a=2", b"a=3"]


def test_readers_of_a_topic_stand_at_different_places_of_it(messages: Messages) -> None:
    send(messages, REPORTS, *(f"a={number}" for number in range(6)))
    slow, fast = TopicReader(messages, REPORTS), TopicReader(messages, REPORTS)
    arrived(messages, REPORTS, 6)
    seen: dict[TopicReader, list[bytes | None]] = {slow: [], fast: []}

    for _ in range(6):
        for reader, limit in ((slow, 1), (fast, 4)):
            records = reader.read(limit)
            reader.took(records)
            seen[reader] += [record.value for record in records]

    assert seen[slow] == seen[fast] == [f"a={number}".encode() for number in range(6)]


def test_an_empty_topic_ends_where_it_begins(messages: Messages) -> None:
    assert messages.end(REPORTS) == 0
    assert list(messages.read(REPORTS, 0, 10)) == []
    assert not messages.wait(REPORTS, 0, 0)


def test_one_who_begins_at_the_end_gets_only_what_comes_then(messages: Messages) -> None:
    send(messages, REPORTS, "a=1", "a=2")
    end = messages.end(REPORTS)
    assert list(messages.read(REPORTS, end, 10)) == []

    send(messages, REPORTS, "a=3")

    assert values(messages, REPORTS, 1, after=end) == [b"a=3"]


@pytest.mark.parametrize("topic", [ORDERS, HEARTBEATS])
def test_of_a_compacted_topic_every_key_is_read_with_its_newest_value_last(messages: Messages, topic: str) -> None:
    send(messages, topic, "a=1", "b=1", "a=2")
    send(messages, topic, "a=3", "c=1")
    end = messages.end(topic)
    newest: dict[str, bytes | None] = {}
    after = 0

    while after < end:
        records = arrived(messages, topic, 1, after)
        after = records[-1].offset
        newest |= {record.key: record.value for record in records}

    assert newest == {"a": b"a=3", "b": b"b=1", "c": b"c=1"}


def test_a_key_that_is_gone_reads_as_gone(messages: Messages) -> None:
    send(messages, ORDERS, "a=1")
    before = arrived(messages, ORDERS, 1)[-1].offset
    messages.publish([Message(ORDERS, "a", None)])

    assert [(r.key, r.value) for r in arrived(messages, ORDERS, 1, before)] == [("a", None)]


@pytest.mark.parametrize("topic", [REPORTS, QUERIES])
def test_reports_and_queries_are_all_kept(messages: Messages, topic: str) -> None:
    send(messages, topic, "a=1", "a=2")

    assert values(messages, topic, 2) == [b"a=1", b"a=2"]


def test_messages_outlive_the_process_that_sent_them(under_test: UnderTest) -> None:
    first = under_test.reopen()
    send(first, REPORTS, "a=1")
    end = first.end(REPORTS)
    name = first.incarnation(REPORTS)

    again = under_test.reopen()

    assert again.incarnation(REPORTS) == name
    assert values(again, REPORTS, 1) == [b"a=1"]
    assert again.end(REPORTS) == end
    send(again, REPORTS, "a=2")
    assert again.end(REPORTS) > end


def test_a_reader_that_waits_is_woken_by_what_it_waits_for(messages: Messages) -> None:
    after = messages.end(REPORTS)
    woken: list[bool] = []
    reader = threading.Thread(target=lambda: woken.append(messages.wait(REPORTS, after, 30)))
    reader.start()

    send(messages, REPORTS, "a=1")
    reader.join(20)

    assert woken == [True]
    assert not messages.wait(REPORTS, messages.end(REPORTS), 0)


def test_a_reader_that_waits_can_be_woken_for_nothing(messages: Messages) -> None:
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(messages.wait(REPORTS, messages.end(REPORTS), 30)))
    waiting.start()
    while not woken and waiting.is_alive():
        messages.wake()
        waiting.join(0.01)

    assert woken == [False]


def test_many_senders_lose_nothing(messages: Messages) -> None:
    def work(name: str) -> None:
        for number in range(40):
            send(messages, REPORTS, f"{name}={number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = values(messages, REPORTS, 160)

    for name in "abcd":
        assert [v for v in read if v and v.startswith(name.encode())] == [f"{name}={n}".encode() for n in range(40)]


def test_nothing_is_published_when_there_is_nothing_to_publish(messages: Messages) -> None:
    assert messages.publish([])
    assert messages.end(REPORTS) == 0
