"""Kafka's messages where Kafka misbehaves: away, frozen, emptied, topics gone and made anew, readers that stall."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import LogTruncationError
from kafka.structs import OffsetAndMetadata

from commands.log import kafka_options, kafka_tail, kafka_tails
from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import ANSWERS, REPORTS, LogUnavailable, Message, orders_topic
from commands.log.reader import TopicReader
from deploy.private_kafka import PrivateKafka
from domain.identifiers import ServiceId
from tests.support.hypervisors import eventually
from tests.support.kafka import arrived, private_kafka, published, shared_kafka, topics_made_anew

ORDERS = orders_topic(ServiceId(UUID(int=7)))
TOPICS = (REPORTS, ANSWERS, ORDERS)


@pytest.fixture
def options() -> KafkaOptions:
    made = KafkaOptions(bootstrap=shared_kafka().bootstrap)
    topics_made_anew(made, TOPICS)
    return made


@pytest.fixture
def messages(options: KafkaOptions) -> Iterator[KafkaMessages]:
    yield from opened(options)


@pytest.fixture
def topics(options: KafkaOptions) -> Iterator[Topics]:
    made = Topics(options)
    yield made
    made.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PrivateKafka]:
    """One to break."""
    with private_kafka(tmp_path) as made:
        topics_made_anew(KafkaOptions(bootstrap=made.bootstrap), TOPICS)
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be given up after seconds is given up in a moment."""
    monkeypatch.setattr(kafka_options, "REQUEST_TIMEOUT_MS", 800)
    monkeypatch.setattr(kafka_options, "FETCH_WAIT_MS", 500)
    monkeypatch.setattr(kafka_options, "TOPIC_TIMEOUT_MS", 800)
    monkeypatch.setattr(kafka_options, "DELIVERY_TIMEOUT_MS", 1000)
    monkeypatch.setattr(kafka_tails, "SILENT_S", 3.0)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What an operator reads in the log."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    listener, root = Listener(), logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(listener)
    root.setLevel(level)


def opened(options: KafkaOptions, **settings: Any) -> Iterator[KafkaMessages]:
    made = KafkaMessages(options, **settings)
    yield made
    made.close()


a_process = contextmanager(opened)


def values(reader: TopicReader) -> list[bytes | None]:
    records = reader.read(100)
    reader.took(records)
    return [record.value for record in records]


def read_until(reader: TopicReader, last: bytes) -> list[bytes | None]:
    """All that comes up to this one."""
    seen: list[bytes | None] = []

    def come() -> bool:
        seen.extend(values(reader))
        return last in seen

    eventually(come, f"{last!r} is read; so far {seen}", within_s=60)
    return seen


# outages


@pytest.mark.parametrize("outage", ["killed", "frozen"])
def test_readers_and_senders_go_on_after_an_outage(
    node: PrivateKafka, outage: str, impatient: None, told: list[str]
) -> None:
    with a_process(KafkaOptions(bootstrap=node.bootstrap)) as messages:
        reader = TopicReader(messages, REPORTS)
        published(messages, REPORTS, "a=1")
        read_until(reader, b"a=1")

        node.kill() if outage == "killed" else node.pause()
        with pytest.raises(LogUnavailable):
            messages.publish([Message(REPORTS, "b", b"b=1")])
        with pytest.raises(LogUnavailable):
            messages.end(REPORTS)
        assert values(reader) == []
        assert not messages.wait(REPORTS, reader.offset, 0.01)
        eventually(lambda: told, "the outage is told", within_s=60)
        node.start() if outage == "killed" else node.resume()

        published(messages, REPORTS, "c=1")
        assert {value for value in read_until(reader, b"c=1") if value != b"b=1"} == {b"c=1"}
        eventually(lambda: len(told) > 1, "its end is told", within_s=60)
        outage, end = told
        assert outage.startswith("nothing is read: Kafka: no broker answers")
        assert end == "Kafka is read again"


def test_a_process_starts_without_kafka_and_works_once_it_is_there(node: PrivateKafka, impatient: None) -> None:
    node.stop()
    with a_process(KafkaOptions(bootstrap=node.bootstrap)) as messages:
        reader = TopicReader(messages, REPORTS)
        with pytest.raises(LogUnavailable):
            messages.publish([Message(REPORTS, "a", b"a=1")])
        with pytest.raises(LogUnavailable):
            reader.read(10)  # which topic this is cannot be known
        assert list(messages.read(REPORTS, 0, 10)) == []

        node.start()

        published(messages, REPORTS, "a=2")
        assert [record.value for record in arrived(messages, REPORTS, 1)] == [b"a=2"]
        assert read_until(reader, b"a=2") == [b"a=2"]


def test_a_broker_that_comes_back_empty_is_read_from_the_beginning(node: PrivateKafka, impatient: None) -> None:
    options = KafkaOptions(bootstrap=node.bootstrap)
    with a_process(options) as messages:
        reader = TopicReader(messages, REPORTS)
        published(messages, REPORTS, "a=1", "a=2", "a=3")
        read_until(reader, b"a=3")

        node.restart(empty=True)
        topics_made_anew(options, TOPICS)

        published(messages, REPORTS, "b=1", "b=2")
        assert read_until(reader, b"b=2") == [b"b=1", b"b=2"]


def test_closing_ends_everything_while_the_broker_is_away(node: PrivateKafka, impatient: None) -> None:
    before = set(threading.enumerate())
    messages = KafkaMessages(KafkaOptions(bootstrap=node.bootstrap))
    published(messages, REPORTS, "a=1")
    arrived(messages, REPORTS, 1)
    node.kill()

    messages.close()

    eventually(lambda: set(threading.enumerate()) <= before, "no thread is left")
    with pytest.raises(LogUnavailable):
        messages.publish([Message(REPORTS, "b", b"b=1")])


def test_many_who_publish_during_an_outage_all_fail_in_time(node: PrivateKafka, impatient: None) -> None:
    with a_process(KafkaOptions(bootstrap=node.bootstrap)) as messages:
        published(messages, REPORTS, "a=1")
        node.kill()
        failed: list[str] = []

        def publish() -> None:
            for number in range(2):
                try:
                    messages.publish([Message(REPORTS, "b", str(number).encode())])
                except LogUnavailable as error:
                    failed.append(str(error))

        senders = [threading.Thread(target=publish) for _ in range(12)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)  # one after another they would take longer

        assert len(failed) == 24


# topics


def test_a_topic_made_anew_is_read_from_its_beginning(messages: KafkaMessages, topics: Topics) -> None:
    reader = TopicReader(messages, REPORTS)
    published(messages, REPORTS, "a=1", "a=2")
    read_until(reader, b"a=2")
    name = messages.incarnation(REPORTS)

    topics.delete([REPORTS])
    topics.ensure([REPORTS])
    published(messages, REPORTS, *(f"b={number}" for number in range(5)))

    assert read_until(reader, b"b=4") == [f"b={number}".encode() for number in range(5)]
    assert messages.incarnation(REPORTS) != name


def test_one_who_knows_offsets_alone_reads_a_topic_made_anew_from_its_beginning_too(
    messages: KafkaMessages, topics: Topics
) -> None:
    published(messages, REPORTS, "a=1", "a=2")
    after = arrived(messages, REPORTS, 2)[-1].offset
    messages.read(REPORTS, after, 10)

    topics.delete([REPORTS])
    topics.ensure([REPORTS])
    published(messages, REPORTS, "b=1", "b=2")

    assert [record.value for record in arrived(messages, REPORTS, 2, after)] == [b"b=1", b"b=2"]


def test_a_topic_is_read_as_soon_as_it_is_made(messages: KafkaMessages, topics: Topics) -> None:
    topics.delete([ORDERS])
    reader = TopicReader(messages, ORDERS)
    assert values(reader) == []
    assert messages.incarnation(ORDERS) == ""
    assert messages.end(ORDERS) == 0

    topics.ensure([ORDERS])
    published(messages, ORDERS, "a=1")

    assert read_until(reader, b"a=1") == [b"a=1"]
    assert messages.incarnation(ORDERS) == topics.incarnations([ORDERS])[ORDERS]


def test_the_name_of_a_topic_that_nobody_reads_is_always_the_present_one(
    messages: KafkaMessages, topics: Topics
) -> None:
    before = messages.incarnation(ORDERS)
    topics.delete([ORDERS])
    topics.ensure([ORDERS])

    assert messages.incarnation(ORDERS) == topics.incarnations([ORDERS])[ORDERS] != before


def test_publishing_on_a_topic_that_does_not_exist_fails_and_others_are_not_harmed(
    messages: KafkaMessages, topics: Topics, impatient: None
) -> None:
    published(messages, REPORTS, "a=1")
    topics.delete([ORDERS])

    with pytest.raises(LogUnavailable):
        messages.publish([Message(ORDERS, "a", b"1")])

    published(messages, REPORTS, "a=2", within_s=0)
    assert ORDERS not in topics.names()


def test_a_topic_deleted_under_its_publisher_can_be_published_on_once_it_is_made_anew(
    messages: KafkaMessages, topics: Topics, impatient: None
) -> None:
    published(messages, ORDERS, "a=1")
    topics.delete([ORDERS])
    with pytest.raises(LogUnavailable):
        messages.publish([Message(ORDERS, "a", b"a=2")])

    topics.ensure([ORDERS])
    published(messages, ORDERS, "a=3")

    assert [record.value for record in arrived(messages, ORDERS, 1)] == [b"a=3"]


def test_publishing_on_a_partition_that_there_is_not_is_refused(messages: KafkaMessages) -> None:
    with pytest.raises(LogUnavailable, match="partition 9"):
        messages.publish([Message(REPORTS, "a", b"1", (), 9)])


# what readers may find


def test_one_whose_place_is_swept_goes_on_where_the_topic_begins_now(
    options: KafkaOptions, messages: KafkaMessages
) -> None:
    published(messages, REPORTS, *(f"a={number}" for number in range(5)))
    admin = KafkaAdminClient(**options.client())
    admin.delete_records({TopicPartition(REPORTS, 0): 3})
    admin.close()

    assert [record.value for record in arrived(messages, REPORTS, 2, 1)] == [b"a=3", b"a=4"]


def test_one_whose_place_is_beyond_the_end_goes_on_where_the_topic_begins(messages: KafkaMessages) -> None:
    published(messages, REPORTS, "a=0", "a=1")

    assert [record.value for record in arrived(messages, REPORTS, 2, 1000)] == [b"a=0", b"a=1"]


def test_what_a_broker_lost_and_got_again_is_read_again(
    messages: KafkaMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(KafkaConsumer):  # type: ignore[misc]
        lost = False

        def poll(self, *arguments: Any, **named: Any) -> Any:
            if Forgetful.lost:
                Forgetful.lost = False
                raise LogTruncationError({TopicPartition(REPORTS, 0): OffsetAndMetadata(1, "", 0)})
            return super().poll(*arguments, **named)

    monkeypatch.setattr(kafka_tails, "KafkaConsumer", Forgetful)
    published(messages, REPORTS, "a=1", "a=2", "a=3")
    after = arrived(messages, REPORTS, 3)[-1].offset
    assert list(messages.read(REPORTS, after, 10)) == []

    Forgetful.lost = True

    assert [record.value for record in arrived(messages, REPORTS, 2, after)] == [b"a=2", b"a=3"]


def test_a_reader_that_stalls_is_replaced(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    made: list[Any] = []

    class Stalling(KafkaConsumer):  # type: ignore[misc]
        """The first one brings nothing."""

        def __init__(self, **settings: Any) -> None:
            made.append(self)
            super().__init__(**settings)

        def poll(self, *arguments: Any, **named: Any) -> Any:
            if self is not made[0]:
                return super().poll(*arguments, **named)
            threading.Event().wait(0.01)
            return {}

    monkeypatch.setattr(kafka_tails, "KafkaConsumer", Stalling)
    with a_process(options, stall_s=0.3) as messages:
        published(messages, REPORTS, "a=1", "a=2")

        assert [record.value for record in arrived(messages, REPORTS, 1, 1)] == [b"a=2"]

    assert f"nothing is read: Kafka: {REPORTS} stands still at 1 of 2" in told
    assert len(made) > 1


def test_a_reader_with_nothing_to_read_is_not_taken_for_one_that_stalls(options: KafkaOptions, told: list[str]) -> None:
    now = [0.0]
    with a_process(options, clock=lambda: now[0], stall_s=0.9) as messages:
        published(messages, REPORTS, "a=1")
        after = arrived(messages, REPORTS, 1)[-1].offset
        for number in range(4):
            now[0] += 0.5
            published(messages, ANSWERS, f"b={number}")
            arrived(messages, ANSWERS, number + 1)
        published(messages, REPORTS, "a=2")

        assert [record.value for record in arrived(messages, REPORTS, 1, after)] == [b"a=2"]

    assert told == []


def test_what_is_not_read_waits_at_the_broker(
    options: KafkaOptions, messages: KafkaMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_tail, "KEPT_RECORDS", 100)
    most = 100 + options.consumer()["max_poll_records"]
    sent = [f"a={number}" for number in range(3 * most)]
    published(messages, REPORTS, *sent)
    arrived(messages, REPORTS, 100)
    published(messages, ANSWERS, "b=1")
    arrived(messages, ANSWERS, 1)

    assert len(messages.read(REPORTS, 0, 10 * most)) <= most
    reader = TopicReader(messages, REPORTS)
    assert read_until(reader, sent[-1].encode()) == [value.encode() for value in sent]


def test_a_long_topic_is_read_whole_though_its_reader_is_slower_than_kafka(
    messages: KafkaMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_tail, "KEPT_BYTES", 64 * 1024)
    sent = [f"a={number}" + "x" * 1000 for number in range(500)]
    published(messages, REPORTS, *sent)

    assert read_until(TopicReader(messages, REPORTS), sent[-1].encode()) == [value.encode() for value in sent]


def test_keys_and_headers_that_are_not_the_ledgers_are_no_obstacle(
    options: KafkaOptions, messages: KafkaMessages
) -> None:
    from kafka import KafkaProducer

    other = KafkaProducer(bootstrap_servers=options.bootstrap)
    other.send(REPORTS, b"no key")
    other.send(REPORTS, b"odd key", key=b"\xff\xfe").get(10)
    other.close()
    published(messages, REPORTS, "a=1")

    records = arrived(messages, REPORTS, 3)

    assert [record.value for record in records] == [b"no key", b"odd key", b"a=1"]
    assert records[0].key == ""


def test_nobody_joins_a_consumer_group(options: KafkaOptions, messages: KafkaMessages) -> None:
    published(messages, REPORTS, "a=1")
    arrived(messages, REPORTS, 1)
    admin = KafkaAdminClient(**options.client())

    groups: Sequence[Any] = admin.list_groups()
    admin.close()

    assert list(groups) == []
