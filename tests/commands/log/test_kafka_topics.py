"""The ledger's topics: made once whoever comes first, kept as long as they must be, and never made by being named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics, layout
from commands.log.port import (
    ALLOCATIONS,
    ANSWERS,
    HEARTBEATS,
    INSTANCES,
    LEDGER,
    REPORTS,
    LogUnavailable,
    orders_topic,
    queries_topic,
)
from domain.identifiers import ServiceId
from tests.support.kafka import shared_kafka, topics_made_anew

SERVICE = ServiceId(UUID(int=7))
ORDERS, QUERIES = orders_topic(SERVICE), queries_topic(SERVICE)
ALL = (LEDGER, INSTANCES, ALLOCATIONS, REPORTS, ANSWERS, HEARTBEATS, ORDERS, QUERIES)


@pytest.fixture
def options() -> KafkaOptions:
    made = KafkaOptions(bootstrap=shared_kafka().bootstrap, event_partitions=3)
    topics_made_anew(made, ())
    return made


@pytest.fixture
def topics(options: KafkaOptions) -> Iterator[Topics]:
    with closing(Topics(options)) as made:
        yield made


def settings_of(options: KafkaOptions, topic: str) -> dict[str, str]:
    admin = KafkaAdminClient(**options.client())
    found: Any = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    admin.close()
    [told] = found["topic"].values() if isinstance(found, dict) else found
    return {name: str(setting["value"]) for name, setting in told.items()}


def test_topics_are_made_once_and_their_names_stay(topics: Topics) -> None:
    assert topics.ensure(ALL) == set(ALL)
    names = topics.incarnations(ALL)

    assert topics.ensure(ALL) == set()
    assert topics.incarnations(ALL) == names
    assert names.keys() == set(ALL)
    assert len(set(names.values())) == len(ALL)


def test_of_many_who_make_a_topic_one_has_made_it(options: KafkaOptions) -> None:
    made: list[set[str]] = []

    def make() -> None:
        with closing(Topics(options)) as topics:
            made.append(topics.ensure([REPORTS, ANSWERS]))

    makers = [threading.Thread(target=make) for _ in range(6)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()

    assert len(made) == 6
    for topic in (REPORTS, ANSWERS):
        assert sum(topic in some for some in made) == 1


def test_a_topic_that_does_not_exist_has_neither_name_nor_end(topics: Topics) -> None:
    topics.ensure([REPORTS])

    assert topics.incarnations([REPORTS, ANSWERS]).keys() == {REPORTS}
    assert [tp.topic for tp in topics.ends([REPORTS, ANSWERS])] == [REPORTS]
    assert topics.incarnations([]) == {}
    assert topics.ends([]) == {}


def test_a_topic_made_anew_has_another_name(topics: Topics) -> None:
    topics.ensure([REPORTS])
    before = topics.incarnations([REPORTS])

    topics.delete([REPORTS, ANSWERS])
    assert topics.incarnations([REPORTS]) == {}

    assert topics.ensure([REPORTS]) == {REPORTS}
    assert topics.incarnations([REPORTS]) != before


def test_events_by_stream_have_several_partitions_and_all_else_has_one(topics: Topics) -> None:
    topics.ensure(ALL)

    partitions = [tp.topic for tp in topics.ends(ALL)]

    assert {topic: partitions.count(topic) for topic in ALL} == {
        topic: 3 if topic in (INSTANCES, ALLOCATIONS) else 1 for topic in ALL
    }


@pytest.mark.parametrize(
    ("topic", "cleanup", "kept_ms"),
    [
        (LEDGER, "delete", -1),
        (INSTANCES, "delete", -1),
        (REPORTS, "delete", 86_400_000),
        (QUERIES, "delete", 60_000),
        (ANSWERS, "delete", 60_000),
        (ORDERS, "compact", -1),
        (HEARTBEATS, "compact", -1),
    ],
)
def test_a_topic_is_kept_as_long_as_its_readers_need(
    options: KafkaOptions, topics: Topics, topic: str, cleanup: str, kept_ms: int
) -> None:
    topics.ensure([topic])

    settings = settings_of(options, topic)

    assert (settings["cleanup.policy"], settings["retention.ms"]) == (cleanup, str(kept_ms))
    assert settings["retention.bytes"] == "-1"
    assert settings["message.timestamp.type"] == "LogAppendTime"


def test_an_order_and_its_end_outlast_an_agent_that_is_away(options: KafkaOptions, topics: Topics) -> None:
    topics.ensure([ORDERS])

    settings = settings_of(options, ORDERS)

    assert int(settings["min.compaction.lag.ms"]) >= 3_600_000
    assert int(settings["delete.retention.ms"]) >= 86_400_000


def test_an_operator_may_bound_how_long_kafka_keeps_events(options: KafkaOptions) -> None:
    bounded = replace(options, ledger_retention_s=3600)

    assert layout(LEDGER, bounded).settings["retention.ms"] == "3600000"
    assert layout(REPORTS, bounded) == layout(REPORTS, options)


def test_partitions_are_counted_of_the_topics_there_are(topics: Topics) -> None:
    topics.ensure([LEDGER, INSTANCES])

    assert topics.partitions([LEDGER, INSTANCES, ALLOCATIONS]) == {LEDGER: 1, INSTANCES: 3}


def test_replicas_that_there_are_no_brokers_for_are_refused(options: KafkaOptions) -> None:
    with (
        closing(Topics(replace(options, replication_factor=3))) as topics,
        pytest.raises(LogUnavailable, match="InvalidReplicationFactor"),
    ):
        topics.ensure([REPORTS])


def test_no_topic_is_made_by_being_named(options: KafkaOptions, topics: Topics) -> None:
    with closing(KafkaMessages(options)) as messages:
        assert messages.end(ORDERS) == 0
        assert list(messages.read(REPORTS, 0, 10)) == []
        assert not messages.wait(ANSWERS, 0, 1)

    assert topics.names() == set()


def test_a_name_that_is_not_the_ledgers_is_refused(options: KafkaOptions, topics: Topics) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        topics.ensure(["nonsense"])
