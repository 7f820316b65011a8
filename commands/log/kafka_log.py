"""The distributed log: Kafka delivers, the store is the record.

Events come from the `ledger` topic, each with the position of the one before it. Where another one is missing, or the store
has moved on while nothing arrived, the gap is read from the store: with Kafka away readers go on, told of each commit by
the store itself. Nothing about events is ever asked of Kafka's offsets: each start begins at the end of the topic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from commands.event_store import EventStore, StoredRecord, StoreUnavailable
from commands.log.port import (
    LEDGER,
    LogRecord,
    LogUnavailable,
    Message,
    Messages,
    Step,
    orders_topic,
    queries_topic,
)
from commands.log.recent import RecentEvents
from commands.records import Records
from commands.vault import Vault
from domain.identifiers import ServiceId, StreamId
from domain.recorded import RecordedEvent

log = logging.getLogger(__name__)

BATCH = 500
PATIENCE_S = 0.2  # how long an event may be recorded and not arrive
LASTS_S = 10.0  # longer than it takes to replace a relay: then it is said
HOSTS_EVERY_S = 3.0


class Bell(Protocol):
    """Rings at each commit (`commands/postgresql_store.py`)."""

    @property
    def head(self) -> int: ...
    def wait(self, after: int, timeout_s: float) -> bool: ...
    def wake(self) -> None: ...


class TopicsMade(Protocol):
    """Makes topics, and names them as they are (`commands/log/kafka_topics.py`)."""

    def ensure(self, names: Collection[str]) -> Collection[str]: ...
    def incarnations(self, names: Collection[str]) -> dict[str, str]: ...
    def partitions(self, names: Collection[str]) -> dict[str, int]: ...


class KafkaLog:
    def __init__(self, store: EventStore, vault: Vault, messages: Messages, topics: TopicsMade, bell: Bell) -> None:
        self._store = store
        self._messages = messages
        self._topics = topics
        self._bell = bell
        self._records = Records(vault, store.incarnation)
        self._recent = RecentEvents(store.head())
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._offset: int | None = None  # in the ledger topic; none: its end is being asked for
        self._before_end = 0  # events up to here may be on the topic before that end, where nobody reads them
        self._hosts_known: frozenset[ServiceId] = frozenset()
        self._hosts_due = 0.0
        self._unfilled: dict[ServiceId, str] = {}  # and which incarnation of its topic
        self._stands_at = -1  # where the next event is waited for, that is recorded and has not arrived
        self._stands_since = 0.0
        self._alone = False  # the store alone is read: from Kafka comes nothing, or too late
        self._alone_since = 0.0
        self._said = False
        self._mark = 0  # alone: what the head was when last it was marked
        self._marked_at = 0.0

    # events

    def head(self) -> int:
        return self._store.head()

    def committed(self, before: int, events: Sequence[RecordedEvent]) -> None:
        self._recent.add_ahead(before, events)

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        self._follow()
        held = self._recent.read(after, limit)
        if held or after >= self._recent.head:
            return held
        return [self._records.decode(stored) for stored in self._store.read(after, limit)]

    def wait_for_events(self, after: int, timeout_s: float) -> bool:
        self._follow()
        return self._recent.wait(after, timeout_s)

    def _follow(self) -> None:
        """Follow the ledger from the first time that someone reads it."""
        if self._thread is not None:
            return
        with self._guard:
            if self._thread is None:
                threading.Thread(target=self._find_end, name="ledger-end", daemon=True).start()
                self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
                self._thread.start()

    def _find_end(self) -> None:
        """Beside the readers: while Kafka does not answer, asking it takes seconds."""
        while self._offset is None and not self._stopping.is_set():
            try:
                end = self._messages.end(LEDGER)
                self._before_end = self._store.head()
                self._offset = end
            except (LogUnavailable, StoreUnavailable):
                self._stopping.wait(1.0)

    def _run(self) -> None:
        failed = False
        while not self._stopping.is_set():
            try:
                self._advance()
                failed = False
            except Exception as error:
                if not failed or not isinstance(error, StoreUnavailable):
                    log.warning("events cannot be followed: %s: %s", type(error).__name__, error)
                failed = True
                self._stopping.wait(PATIENCE_S)

    def _advance(self) -> None:
        """Take in what has arrived; where the next event has not for a while, what the store has."""
        self._complain()
        came = self._arrived()
        head = self._recent.head
        if self._bell.head <= head:
            if not came:
                self._bell.wait(head, PATIENCE_S)
        elif self._alone or self._offset is None or head < self._before_end:
            self._from_store()
        else:
            self._wait_for_next(head)

    def _wait_for_next(self, head: int) -> None:
        """The event after the head is recorded. Others may come before it that are known, or that were published twice."""
        now = time.monotonic()
        if self._stands_at != head:
            self._stands_at, self._stands_since = head, now
        left = self._stands_since + PATIENCE_S - now
        if left <= 0:
            self._alone, self._alone_since = True, now
            self._from_store()
        elif self._offset is not None:
            self._messages.wait(LEDGER, self._offset, left)

    def _complain(self) -> None:
        """Once, where it lasts."""
        if self._alone and not self._said and time.monotonic() - self._alone_since >= LASTS_S:
            log.warning("events are recorded and do not arrive; they are read from the store")
            self._said = True

    def _arrived(self) -> bool:
        """Whether the topic brought anything, known or new."""
        if self._offset is None:
            return False
        records = self._messages.read(LEDGER, self._offset, BATCH)
        if not records:
            return False
        self._offset = records[-1].offset
        for before, stored in _stored(records, self._recent.head):
            self._recent.add(before, [self._records.decode(stored)])
        if self._alone and self._in_time(position_of(records[-1])):
            if self._said:
                log.info("events arrive again")
            self._alone = self._said = False
        return True

    def _in_time(self, position: int) -> bool:
        """Whether what arrives is what was the head a moment ago: while more is recorded it never is the head itself."""
        now = time.monotonic()
        if now - self._marked_at > PATIENCE_S:
            self._mark, self._marked_at = self._recent.head, now
        return position >= self._mark

    def _from_store(self) -> None:
        while stored := self._store.read(self._recent.head, BATCH):
            self._recent.add(self._recent.head, [self._records.decode(one) for one in stored])

    # messages

    def publish(self, messages: Sequence[Message], step: Step | None = None) -> bool:
        if step is not None and self._store.position(step.consumer) != step.old:
            return False
        if messages:
            self._messages.publish(messages)
        return step is None or self._store.move_position(step.consumer, step.old, step.new)

    def position(self, consumer: str) -> int:
        return self._store.position(consumer)

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        return self._messages.read(topic, after, limit)

    def end(self, topic: str) -> int:
        return self._messages.end(topic)

    def incarnation(self, topic: str) -> str:
        return self._messages.incarnation(topic)

    def wait(self, topic: str, after: int, timeout_s: float) -> bool:
        return self._messages.wait(topic, after, timeout_s)

    def hosts(self, service_ids: Collection[ServiceId]) -> Collection[ServiceId]:
        wanted = frozenset(service_ids)
        if not wanted or (wanted == self._hosts_known and time.monotonic() < self._hosts_due):
            return ()
        self._topics.ensure([topic(service_id) for service_id in wanted for topic in (orders_topic, queries_topic)])
        now = self._topics.incarnations([orders_topic(service_id) for service_id in wanted])
        self._unfilled = {
            service_id: now[orders_topic(service_id)]
            for service_id in wanted
            if orders_topic(service_id) in now
            and not self._store.position(_filled(service_id, now[orders_topic(service_id)]))
        }
        self._hosts_known = wanted
        self._hosts_due = time.monotonic() + HOSTS_EVERY_S
        return tuple(self._unfilled)

    def filled(self, service_id: ServiceId) -> None:
        self._store.move_position(_filled(service_id, self._unfilled.pop(service_id)), 0, 1)

    def wake(self) -> None:
        self._recent.wake()
        self._bell.wake()
        self._messages.wake()

    def close(self) -> None:
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self._messages.close()


def _filled(service_id: ServiceId, incarnation: str) -> str:
    return f"filled/{orders_topic(service_id)}/{incarnation}"


def position_of(record: LogRecord) -> int:
    """Of the event that a record of the ledger's topics carries."""
    return int(dict(record.headers)["position"])


def _stored(records: Sequence[LogRecord], head: int) -> Iterator[tuple[int, StoredRecord]]:
    """Records of the ledger topic beyond the head, each with the position before it."""
    for record in records:
        headers = dict(record.headers)
        position = int(headers["position"])
        if position > head:
            version, name = int(headers["version"]), headers["ce_type"].decode()
            yield int(headers["prev"]), StoredRecord(position, StreamId(record.key), version, name, record.value or b"")
