"""From the store to Kafka: every recorded event, in order, as a CloudEvent.

`ledger` has all of them in one partition; `instances` and `allocations` have their share of them by stream, for readers
outside. Each record names the one before it in its partition, so that a reader sees what is missing.

What counts as published is what Kafka has confirmed, up to a position kept in the store; a relay that begins publishes all
after it again. What a topic holds says nothing: its last record may have arrived without those before it. A topic that was
made anew is filled from the first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import orjson
from kafka.partitioner.default import murmur2

from commands.event_store import EventStore, StoredRecord
from commands.log.consumer import Handled
from commands.log.kafka_log import Bell, TopicsMade
from commands.log.port import ALLOCATIONS, ANSWERS, HEARTBEATS, INSTANCES, LEDGER, REPORTS, Message
from commands.metrics import STEP_CONFLICTS
from domain.identifiers import category_of

BATCH = 500
KEEP_EVERY = 1000
KEYED = {"instance": INSTANCES, "provider": ALLOCATIONS}
EVENT_TOPICS = (LEDGER, INSTANCES, ALLOCATIONS)
TOPICS = (*EVENT_TOPICS, REPORTS, ANSWERS, HEARTBEATS)  # all but the hosts' own; it sees to it that they exist

Partition = tuple[str, int]


class Outlet(Protocol):
    """Where the relay publishes (`commands/log/kafka_messages.py`)."""

    def publish(self, messages: Sequence[Message]) -> bool:
        """Return when all have arrived.

        Raises:
            LogUnavailable: some have not; others may have, or may yet.
        """


class Relay:
    name = "relay"

    def __init__(self, store: EventStore, outlet: Outlet, topics: TopicsMade, bell: Bell) -> None:
        self._store = store
        self._outlet = outlet
        self._topics = topics
        self._bell = bell
        self._taken_up = False
        self._failed = False
        self._kept_as = ""
        self._kept: dict[str, int] = {}  # positions as the store has them, by name
        self._ids: dict[str, str] = {}
        self._last: dict[Partition, int] = {}  # the newest position that each partition has, with all before it
        self._partitions: dict[str, int] = {}
        self.position = 0
        self.handled: Handled | None = None

    def wait(self, timeout_s: float) -> None:
        if self._bell.wait(self.position, timeout_s) or not self._taken_up:
            return
        self._keep()
        if self._remade():
            self._taken_up = False

    def step(self) -> bool:
        if self._failed and self._taken_up and self._remade():
            self._taken_up = False
        self._failed = False
        if not self._taken_up:
            self._take_up()
        records = self._store.read(self.position, BATCH)
        if not records:
            return False
        before = dict(self._last)
        try:
            self._outlet.publish(list(self._messages(records)))
        except BaseException:
            # Some may have arrived without those before them: all are published again.
            self._failed, self._last = True, before
            raise
        self.position = records[-1].position
        if self.position - self._kept[self._kept_as] >= KEEP_EVERY:
            self._keep()
        self.handled = Handled(len(records), _recorded(records[-1]))
        return True

    def _take_up(self) -> None:
        self._topics.ensure(TOPICS)
        self._ids = self._topics.incarnations(EVENT_TOPICS)
        self._kept_as = _name(self._ids)
        self._partitions = self._topics.partitions(EVENT_TOPICS)
        self._kept = {}
        self._last = {
            (topic, number): self._read(self._name_of((topic, number)))
            for topic in EVENT_TOPICS
            for number in range(self._partitions[topic])
        }
        self.position = self._read(self._kept_as)
        self._taken_up = True

    def _remade(self) -> bool:
        return len(self._topics.incarnations(TOPICS)) < len(TOPICS) or (
            _name(self._topics.incarnations(EVENT_TOPICS)) != self._kept_as
        )

    def _keep(self) -> None:
        """Keep how far it has come; that of all last, since whoever takes over begins there."""
        places = {self._name_of(partition): position for partition, position in self._last.items()}
        if not all(self._move(name, position) for name, position in (*places.items(), (self._kept_as, self.position))):
            self._taken_up = False  # another process is the active one: go on from where it is
            STEP_CONFLICTS.labels(self.name).inc()

    def _move(self, name: str, position: int) -> bool:
        if position != self._kept[name]:
            if not self._store.move_position(name, self._kept[name], position):
                return False
            self._kept[name] = position
        return True

    def _read(self, name: str) -> int:
        self._kept[name] = position = self._store.position(name)
        return position

    def _name_of(self, partition: Partition) -> str:
        topic, number = partition
        return f"relay/{topic}/{number}/{self._ids[topic]}"

    def _messages(self, records: Sequence[StoredRecord]) -> Iterator[Message]:
        for record in records:
            headers: list[tuple[str, bytes]] | None = None
            for partition in self._places(record):
                before = self._last[partition]
                if before >= record.position:
                    continue
                self._last[partition] = record.position
                headers = headers or cloud_event(record)
                prev = ("prev", str(before).encode())
                topic, number = partition
                yield Message(topic, record.stream, record.state, (*headers, prev), number)

    def _places(self, record: StoredRecord) -> Iterator[Partition]:
        yield LEDGER, 0
        topic = KEYED.get(category_of(record.stream))
        if topic is not None:
            # As every Kafka client places keys, so that other writers and joins agree.
            yield topic, (murmur2(record.stream.encode()) & 0x7FFFFFFF) % self._partitions[topic]


def _name(ids: Mapping[str, str]) -> str:
    """What the position of all is kept as: another one once a topic was made anew."""
    return "/".join(("relay", "all", *(ids.get(topic, "") for topic in EVENT_TOPICS)))


def _recorded(record: StoredRecord) -> datetime:
    return datetime.fromisoformat(orjson.loads(record.state)["time"])


def cloud_event(record: StoredRecord) -> list[tuple[str, bytes]]:
    """The headers of an event: CloudEvents 1.0, binary mode, and the ledger's own."""
    body: dict[str, Any] = orjson.loads(record.state)
    headers = {
        "ce_specversion": "1.0",
        "ce_type": record.wire_name,
        "ce_source": f"/compute-ledger/{body['incarnation']}",
        "ce_id": str(record.position),
        "ce_time": body["time"],
        "ce_subject": record.stream,
        "content-type": "application/json",
        "position": str(record.position),
        "version": str(record.version),
        "correlation": body["request"],
        "causation": "" if body["causation"] is None else str(body["causation"]),
    }
    return [(name, value.encode()) for name, value in headers.items()]
