"""From the store to Kafka: every recorded event, in order, as a CloudEvent.

`ledger` has all of them in one partition; `instances` and `allocations` have their share of them by stream, for readers
outside. Each record names the one before it in its partition, so that a reader sees what is missing. The relay's own
position is only where it begins to look: what a partition holds already is told by its last record. A topic that was made
anew is filled from the first event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import orjson
from kafka.partitioner.default import murmur2

from commands.event_store import EventStore, StoredRecord
from commands.log.consumer import Handled
from commands.log.kafka_log import Bell, TopicsMade, position_of
from commands.log.port import ALLOCATIONS, ANSWERS, HEARTBEATS, INSTANCES, LEDGER, REPORTS, LogRecord, Message
from commands.metrics import STEP_CONFLICTS
from domain.identifiers import category_of

BATCH = 500
PERSIST_EVERY = 1000
KEYED = {"instance": INSTANCES, "provider": ALLOCATIONS}
EVENT_TOPICS = (LEDGER, INSTANCES, ALLOCATIONS)
TOPICS = (*EVENT_TOPICS, REPORTS, ANSWERS, HEARTBEATS)  # all but the hosts' own; it sees to it that they exist

Partition = tuple[str, int]


class Outlet(Protocol):
    """Where the relay publishes (`commands/log/kafka_messages.py`)."""

    def publish(self, messages: Sequence[Message]) -> bool: ...

    def last(self, topics: Collection[str]) -> Mapping[Partition, LogRecord | None]:
        """The last record of every partition of these topics; none where it is empty.

        Raises:
            LogUnavailable
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
        self._persisted = 0
        self._last: dict[Partition, int] = {}  # the position of each partition's last record
        self._partitions: dict[str, int] = {}
        self.position = 0
        self.handled: Handled | None = None

    def wait(self, timeout_s: float) -> None:
        if not self._bell.wait(self.position, timeout_s) and self._taken_up and self._remade():
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
            # Some may have arrived, and not those before them: all are published again.
            self._failed, self._last = True, before
            raise
        self.position = records[-1].position
        self._persist()
        self.handled = Handled(len(records), _recorded(records[-1]))
        return True

    def _take_up(self) -> None:
        self._topics.ensure(TOPICS)
        self._kept_as = self._name()
        self._persisted = self.position = self._store.position(self._kept_as)
        last = self._outlet.last(EVENT_TOPICS)
        self._last = {partition: 0 if record is None else position_of(record) for partition, record in last.items()}
        self._partitions = {topic: sum(1 for name, _ in last if name == topic) for topic in EVENT_TOPICS}
        self._taken_up = True

    def _name(self) -> str:
        """What the position is kept as: another one once a topic was made anew."""
        now = self._topics.incarnations(EVENT_TOPICS)
        return "/".join(("relay", *(now[topic] for topic in EVENT_TOPICS)))

    def _remade(self) -> bool:
        return len(self._topics.incarnations(TOPICS)) < len(TOPICS) or self._name() != self._kept_as

    def _persist(self) -> None:
        if self.position - self._persisted < PERSIST_EVERY:
            return
        if self._store.move_position(self._kept_as, self._persisted, self.position):
            self._persisted = self.position
        else:  # another process is the active one: go on from where it is
            self._taken_up = False
            STEP_CONFLICTS.labels(self.name).inc()

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
