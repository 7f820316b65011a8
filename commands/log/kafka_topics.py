"""The topics of the ledger as Kafka has them: how each is laid out and kept, which exist, and what Kafka itself calls them.

No topic comes to be by being named. Each is made here, with all that matters said: partitions, replicas, how long what is
kept. Retention goes by the broker's clock, so that a host whose clock is wrong neither loses nor keeps anything by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import OffsetSpec

from commands.log.kafka_clients import Shared, connect, unavailable
from commands.log.kafka_options import LARGEST_MESSAGE, KafkaOptions
from commands.log.port import LogUnavailable

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
READY_LIMIT_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layout:
    """Partitions, and Kafka's settings of a topic by their names."""

    partitions: int
    settings: Mapping[str, str]


def layout(topic: str, options: KafkaOptions) -> Layout:
    events_ms = -1 if options.ledger_retention_s is None else options.ledger_retention_s * 1000
    match topic.partition(".")[0]:
        case "orders":  # by residency: the newest, and for long enough every one, so that an agent misses no tombstone
            return _laid_out(options, cleanup="compact", lag_ms=HOUR_MS, tombstones_ms=7 * DAY_MS, segment_ms=DAY_MS)
        case "heartbeats":
            return _laid_out(options, cleanup="compact", lag_ms=0, tombstones_ms=DAY_MS, segment_ms=HOUR_MS)
        case "queries" | "answers":
            return _laid_out(options, kept_ms=MINUTE_MS, segment_ms=MINUTE_MS)
        case "reports":
            return _laid_out(options, kept_ms=DAY_MS, segment_ms=HOUR_MS)
        case "ledger":
            return _laid_out(options, kept_ms=events_ms)
        case "instances" | "allocations":
            return _laid_out(options, options.event_partitions, kept_ms=events_ms)
        case _:
            raise ValueError(f"{topic} is no topic of the ledger's")


def _laid_out(
    options: KafkaOptions,
    partitions: int = 1,
    *,
    cleanup: str = "delete",
    kept_ms: int = -1,
    lag_ms: int = 0,
    tombstones_ms: int = DAY_MS,
    segment_ms: int = 7 * DAY_MS,
) -> Layout:
    settings = {
        "cleanup.policy": cleanup,
        "retention.ms": kept_ms,
        "retention.bytes": -1,
        "segment.ms": segment_ms,
        "min.compaction.lag.ms": lag_ms,
        "delete.retention.ms": tombstones_ms,
        "min.insync.replicas": options.min_insync_replicas,
        "unclean.leader.election.enable": "false",
        "max.message.bytes": LARGEST_MESSAGE,
        "message.timestamp.type": "LogAppendTime",
    }
    return Layout(partitions, {name: str(value) for name, value in settings.items()})


class Topics:
    """Makes topics, names them and measures them, for all threads of a process.

    Everything here raises LogUnavailable within seconds when no broker answers, or when one refuses.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._admin: Shared[Any] = Shared(lambda: connect(KafkaAdminClient, options.client()), KafkaAdminClient.close)

    def ensure(self, names: Collection[str]) -> set[str]:
        """See to it that these exist; which of them had to be made here."""
        lacking = set(names) - self.incarnations(names).keys()
        if not lacking:
            return set()
        made = self._create(lacking)
        deadline = monotonic() + READY_LIMIT_S
        while lacking - self.incarnations(lacking).keys():
            if monotonic() > deadline:
                raise LogUnavailable(f"Kafka: topics were made and are not ready: {sorted(lacking)[:5]}")
            sleep(0.02)
        return made

    def incarnations(self, names: Collection[str]) -> dict[str, str]:
        """Kafka's own ids of those that exist and can be used."""
        return {name: str(topic["topic_id"]) for name, topic in self._described(names).items()}

    def partitions(self, names: Collection[str]) -> dict[str, int]:
        """How many each of those has that exist and can be used."""
        return {name: len(topic["partitions"]) for name, topic in self._described(names).items()}

    def ends(self, names: Collection[str]) -> dict[TopicPartition, int]:
        """Of every partition of those that exist, the offset that the next message will get (by Kafka's count)."""
        partitions = {
            TopicPartition(name, partition["partition_index"]): OffsetSpec.LATEST
            for name, topic in self._described(names).items()
            for partition in topic["partitions"]
        }
        if not partitions:
            return {}
        found = self._ask(lambda admin: admin.list_partition_offsets(partitions))
        return {partition: at.offset for partition, at in found.items()}

    def delete(self, names: Collection[str]) -> None:
        """With all that is in them; who does not exist is passed over."""
        existing = list(self._described(names))
        if not existing:
            return
        answer = self._ask(lambda admin: admin.delete_topics(existing, raise_errors=False))
        self._check(answer, UnknownTopicOrPartitionError)
        deadline = monotonic() + READY_LIMIT_S
        while self._described(existing) and monotonic() < deadline:
            sleep(0.02)

    def names(self) -> set[str]:
        """Of all topics that there are."""
        return set(self._ask(lambda admin: admin.list_topics()))

    def close(self) -> None:
        self._admin.close()

    def _described(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        if not names:
            return {}  # of which kafka-python would make: all
        topics = self._ask(lambda admin: admin.describe_topics(list(names)))
        return {
            topic["name"]: topic
            for topic in topics
            if topic["error_code"] == 0 and all(partition["leader_id"] >= 0 for partition in topic["partitions"])
        }

    def _create(self, names: Collection[str]) -> set[str]:
        wanted = {}
        for name in names:
            laid_out = layout(name, self._options)
            wanted[name] = {
                "num_partitions": laid_out.partitions,
                "replication_factor": self._options.replication_factor,
                "configs": laid_out.settings,
            }
        answer = self._ask(lambda admin: admin.create_topics(wanted, raise_errors=False))
        self._check(answer, TopicAlreadyExistsError)
        return {topic["name"] for topic in answer["topics"] if topic["error_code"] == 0}

    def _check(self, answer: Mapping[str, Any], harmless: type[KafkaError]) -> None:
        for topic in answer["topics"]:
            refusal = for_code(topic["error_code"])
            if topic["error_code"] != 0 and refusal is not harmless:
                raise unavailable(refusal(f"{topic['name']}: {topic.get('error_message')}"))

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Once more on a new connection if an old one was broken, as it is after a broker's restart."""
        while True:
            try:
                with self._admin.use() as held:
                    return question(held.client)
            except (KafkaError, OSError, RuntimeError) as error:  # RuntimeError: closed while it was used
                if held.fresh or isinstance(error, KafkaTimeoutError | RequestTimedOutError):
                    raise unavailable(error) from error
