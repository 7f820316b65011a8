"""Kafka as an operator looks at it (`compute-ledger doctor`). Nothing here makes what is missing, or writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from commands.log.kafka_clients import connect, unavailable
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import layout
from commands.log.port import HEARTBEATS, LEDGER

READ_LIMIT_S = 5.0
BEATS_READ = 20_000  # of the newest heartbeats: some minutes of them, of a thousand hosts

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    id: str
    replicas: int
    differences: tuple[str, ...]  # from how the ledger lays it out
    end: int  # of its first partition


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSeen:
    brokers: int
    topics: Mapping[str, TopicSeen]
    published: int | None  # the position of the last event on the topic `ledger`
    beats: Mapping[str, datetime]  # by service, when its newest heartbeat came


def look(options: KafkaOptions, names: Collection[str]) -> KafkaSeen:
    """Raises:
    LogUnavailable
    """
    with _translated():
        admin = connect(KafkaAdminClient, options.client())
        try:
            brokers = len(admin.describe_cluster()["brokers"])
            there = sorted(set(admin.list_topics()) & set(names))
            described = [topic for topic in _of_some(admin.describe_topics, there) if topic["error_code"] == 0]
            settings = _settings(admin, there)
        finally:
            admin.close()
        consumer = connect(KafkaConsumer, options.consumer())
        try:
            first = {name: TopicPartition(name, 0) for name in there}
            ends = consumer.end_offsets(list(first.values())) if first else {}
            published = None
            if LEDGER in first:
                newest = list(_newest(consumer, first[LEDGER], ends[first[LEDGER]], 1))
                published = int(dict(newest[-1].headers)["position"]) if newest else 0
            beats: dict[str, datetime] = {}
            if HEARTBEATS in first:
                for beat in _newest(consumer, first[HEARTBEATS], ends[first[HEARTBEATS]], BEATS_READ):
                    beats[(beat.key or b"").decode(errors="replace")] = datetime.fromtimestamp(
                        beat.timestamp / 1000, UTC
                    )
        finally:
            consumer.close()
    topics = {
        topic["name"]: TopicSeen(
            id=str(topic["topic_id"]),
            replicas=min(len(partition["replica_nodes"]) for partition in topic["partitions"]),
            differences=tuple(_differences(options, topic, settings.get(topic["name"], {}))),
            end=ends.get(first[topic["name"]], 0),
        )
        for topic in described
    }
    return KafkaSeen(brokers=brokers, topics=topics, published=published, beats=beats)


def _of_some(question: Callable[[list[str]], list[T]], names: list[str]) -> list[T]:
    return question(names) if names else []  # of none kafka-python would make: all


def _settings(admin: Any, names: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Of each topic, what it is kept by."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found = admin.describe_configs(wanted, config_filter="all").get("topic", {}) if wanted else {}
    return {
        topic: {name: str(value["value"] if isinstance(value, dict) else value) for name, value in configs.items()}
        for topic, configs in found.items()
    }


def _differences(options: KafkaOptions, topic: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[str]:
    wanted = layout(topic["name"], options)
    if (partitions := len(topic["partitions"])) != wanted.partitions:
        yield f"{partitions} partitions, not {wanted.partitions}"
    for name, value in wanted.settings.items():
        if name in settings and settings[name] != value:
            yield f"{name} is {settings[name]}, not {value}"


def _newest(consumer: Any, partition: TopicPartition, end: int, most: int) -> Iterator[Any]:
    """The last records of a partition, at most so many."""
    consumer.assign([partition])
    begin = consumer.beginning_offsets([partition])[partition]
    consumer.seek(partition, max(begin, end - most))
    deadline = monotonic() + READ_LIMIT_S
    while consumer.position(partition) < end and monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            yield from records


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise unavailable(error) from error
