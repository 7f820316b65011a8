"""What was fetched of one topic, kept until it is read and for a while after, for readers may be at different places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from kafka import TopicPartition

from commands.log.port import LogRecord

KEPT_RECORDS = 4096
KEPT_BYTES = 16 * 1024 * 1024


class Tail:
    """What was fetched of a topic beyond an offset, in order and with nothing left out."""

    def __init__(self, topic: str, start: int, *, follows: int | None = None, earliest: bool = False) -> None:
        """`follows`: a reader there gets what comes first here, since offsets begin again. `earliest`: it begins where the
        topic now does."""
        self.partition = TopicPartition(topic, 0)
        self.start = start
        self.reached = start
        self.end = start  # which the topic is known to have come to
        self.earliest = earliest
        self.asked = start if follows is None else follows
        self._follows = follows
        self._records: list[LogRecord] = []
        self._bytes = 0
        self._furthest = start  # that a reader has come to
        self._full = False

    def serves(self, after: int) -> bool:
        return after == self._follows or self.start <= after <= max(self.reached, self.end)

    def read(self, after: int, limit: int) -> Sequence[LogRecord]:
        first = self._index(after)
        return self._records[first : first + limit]

    def has(self, after: int) -> bool:
        return self._index(after) < len(self._records)

    def add(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            self._records.append(record)
            self._bytes += _size(record)
            self.reached = record.offset

    def has_room(self) -> bool:
        """Let go of what was read and is too much. Full of what was not, it has room again when half of that is read."""
        read = bisect_right(self._records, self._furthest, key=_offset)
        passed = 0
        while passed < read and (len(self._records) - passed > KEPT_RECORDS or self._bytes > KEPT_BYTES):
            self._bytes -= _size(self._records[passed])
            passed += 1
        if passed:
            self.start = self._records[passed - 1].offset
            del self._records[:passed]
        unread = len(self._records) - (read - passed)
        each = self._bytes / len(self._records) if self._records else 0.0
        share = max(unread / KEPT_RECORDS, unread * each / KEPT_BYTES)
        self._full = share >= (0.5 if self._full else 1)
        return not self._full

    def _index(self, after: int) -> int:
        self.asked = after
        if after == self._follows:
            return 0
        self._follows = None
        self._furthest = max(self._furthest, after)
        return bisect_right(self._records, after, key=_offset)


def to_log_record(record: Any) -> LogRecord:
    key = "" if record.key is None else record.key.decode(errors="replace")
    return LogRecord(record.offset + 1, key, record.value, tuple(record.headers))


def _offset(record: LogRecord) -> int:
    return record.offset


def _size(record: LogRecord) -> int:
    return 200 + len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
