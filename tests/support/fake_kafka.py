"""Kafka as the ledger sees it, in memory: topics with partitions and ids, an outage, topics deleted and made anew."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import uuid4

from commands.log.port import LogRecord, LogUnavailable, Message

PARTITIONS = {"instances": 3, "allocations": 3}


class FakeKafka:
    """A broker; `messages` and `topics` of the adapter in one, for one process or many."""

    def __init__(self) -> None:
        self.down = False
        self.held_back = False  # accepts messages, and delivers none
        self._turn = threading.Condition()
        self._ids: dict[str, str] = {}
        self._records: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)

    # topics

    def ensure(self, names: Collection[str]) -> set[str]:
        self._reach()
        made = set(names) - self._ids.keys()
        for name in made:
            self._ids[name] = uuid4().hex
        return made

    def incarnations(self, names: Collection[str]) -> dict[str, str]:
        self._reach()
        return {name: self._ids[name] for name in names if name in self._ids}

    def partitions(self, names: Collection[str]) -> dict[str, int]:
        return {name: PARTITIONS.get(name, 1) for name in self.incarnations(names)}

    def delete(self, names: Collection[str] | None = None) -> None:
        for name in list(self._ids if names is None else names):
            del self._ids[name]
            for key in [key for key in self._records if key[0] == name]:
                del self._records[key]

    # messages

    def publish(self, messages: Sequence[Message]) -> bool:
        self._reach()
        for message in messages:
            if message.topic not in self._ids:
                raise LogUnavailable(f"there is no topic {message.topic}")
            records = self._records[message.topic, message.partition]
            offset = records[-1].offset + 1 if records else 1
            records.append(LogRecord(offset, message.key, message.value, message.headers))
        with self._turn:
            self._turn.notify_all()
        return True

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        if self.down or self.held_back:
            return []
        return [record for record in self._records[topic, 0] if record.offset > after][:limit]

    def end(self, topic: str) -> int:
        self._reach()
        records = self._records[topic, 0]
        return records[-1].offset if records else 0

    def incarnation(self, topic: str) -> str:
        return self._ids.get(topic, "")

    def wait(self, topic: str, after: int, timeout_s: float) -> bool:
        with self._turn:
            if not self.read(topic, after, 1):
                self._turn.wait(timeout_s)
        return bool(self.read(topic, after, 1))

    def wake(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def close(self) -> None:
        pass

    def records(self, topic: str) -> list[LogRecord]:
        """All of a topic, partition after partition."""
        return [record for key in sorted(self._records) if key[0] == topic for record in self._records[key]]

    def partition(self, topic: str, number: int) -> list[LogRecord]:
        return list(self._records[topic, number])

    def _reach(self) -> None:
        if self.down:
            raise LogUnavailable("the broker is away")
