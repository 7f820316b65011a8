"""The embedded log: events straight from the store, messages in a SQLite file of their own.

The newest events stay in memory as objects, so that the readers of one process decode nothing. Messages are written
without waiting for the disk: they survive the death of the process, and after a power cut agents repeat what the ledger
has not settled and orders are published again from the position kept beside them.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from commands.event_store import EventStore, StoreUnavailable
from commands.log.port import ANSWERS, HEARTBEATS, REPORTS, LogRecord, Message, Step
from commands.log.recent import RecentEvents
from commands.records import Records
from commands.vault import Vault
from domain.identifiers import ServiceId
from domain.recorded import RecordedEvent

_RETENTION_S = {"queries": 60, ANSWERS: 60, REPORTS: 86400}
_SWEEP_EVERY = 1000  # publishes

_TABLES = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key TEXT NOT NULL, value BLOB, sent REAL NOT NULL);
CREATE INDEX IF NOT EXISTS messages_topic ON messages (topic, id);
CREATE INDEX IF NOT EXISTS messages_key ON messages (topic, key);
CREATE TABLE IF NOT EXISTS steps (consumer TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
"""


def _compacted(topic: str) -> bool:
    return topic.startswith("orders.") or topic == HEARTBEATS


class StoreLog:
    def __init__(self, store: EventStore, vault: Vault, path: Path, *, with_writer: bool = True) -> None:
        """`with_writer`: the appender of this process is the only one, and tells this log what it recorded. Without it,
        every read goes to the store."""
        self._store = store
        self._records = Records(vault, store.incarnation)
        self._recent = RecentEvents(store.head(), fed=with_writer)
        self._turn = threading.Condition()
        self._ends: dict[str, int] = {}
        self._lock = threading.Lock()
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(f"{path}: {error}") from error
        self._never_reuse_offsets()
        self._published = 0
        if with_writer:
            self._refuse_a_future()

    def _refuse_a_future(self) -> None:
        """Raises:
        StoreUnavailable: orders were published for events that the store does not have.
        """
        ahead = self._db.execute("SELECT MAX(position) FROM steps").fetchone()[0] or 0
        if ahead > self._recent.head:
            raise StoreUnavailable(
                f"ledger.db ends at position {self._recent.head}, but messages.db has come to {ahead}: the ledger was "
                "put back without the files beside it; put the whole directory back"
            )

    # events

    def committed(self, before: int, events: Sequence[RecordedEvent]) -> None:
        self._recent.add(before, events)

    def head(self) -> int:
        return self._store.head()

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        # Older ones, or none that were heard of: another process, or a commit without an answer, may have recorded some.
        return self._recent.read(after, limit) or [
            self._records.decode(stored) for stored in self._store.read(after, limit)
        ]

    def wait_for_events(self, after: int, timeout_s: float) -> bool:
        return self._recent.wait(after, timeout_s)

    # messages

    def publish(self, messages: Sequence[Message], step: Step | None = None) -> bool:
        now = time.time()
        ends: dict[str, int] = {}
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if step is not None and not self._take(step):
                    self._db.execute("ROLLBACK")
                    return False
                for message in messages:
                    if _compacted(message.topic):
                        self._db.execute(
                            "DELETE FROM messages WHERE topic = ? AND key = ?", (message.topic, message.key)
                        )
                    cursor = self._db.execute(
                        "INSERT INTO messages (topic, key, value, sent) VALUES (?, ?, ?, ?)",
                        (message.topic, message.key, message.value, now),
                    )
                    ends[message.topic] = cursor.lastrowid or 0
                self._published += 1
                if self._published % _SWEEP_EVERY == 0:
                    self._sweep(now)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk ends it by itself
                    self._db.execute("ROLLBACK")
                raise
        if ends:
            with self._turn:
                self._ends.update(ends)
                self._turn.notify_all()
        return True

    def position(self, consumer: str) -> int:
        with self._lock:
            row = self._db.execute("SELECT position FROM steps WHERE consumer = ?", (consumer,)).fetchone()
        return 0 if row is None else int(row[0])

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        with self._lock:
            rows = self._db.execute(
                "SELECT id, key, value FROM messages WHERE topic = ? AND id > ? ORDER BY id LIMIT ?",
                (topic, after, limit),
            ).fetchall()
        return [LogRecord(*row) for row in rows]

    def end(self, topic: str) -> int:
        with self._turn:
            known = self._ends.get(topic)
        if known is not None:
            return known
        with self._lock:
            row = self._db.execute("SELECT MAX(id) FROM messages WHERE topic = ?", (topic,)).fetchone()
        end = int(row[0] or 0)
        with self._turn:
            return self._ends.setdefault(topic, end)

    def wait(self, topic: str, after: int, timeout_s: float) -> bool:
        end = self.end(topic)
        with self._turn:
            if self._ends.get(topic, end) <= after:
                self._turn.wait(timeout_s)
            return self._ends.get(topic, end) > after

    def incarnation(self, topic: str) -> str:
        return ""

    def hosts(self, service_ids: Collection[ServiceId]) -> Collection[ServiceId]:
        return ()

    def filled(self, service_id: ServiceId) -> None:
        pass

    def wake(self) -> None:
        self._recent.wake()
        with self._turn:
            self._turn.notify_all()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _never_reuse_offsets(self) -> None:
        """A power cut may take the newest messages, but not what the store says was read of them: go on beyond all."""
        now_us = time.time_ns() // 1000
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'messages' AND seq < ?", (now_us,))
        self._db.execute(
            "INSERT INTO sqlite_sequence SELECT 'messages', ? "
            "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')",
            (now_us,),
        )
        self._db.execute("COMMIT")

    def _take(self, step: Step) -> bool:
        if step.old == 0:
            self._db.execute("INSERT OR IGNORE INTO steps VALUES (?, 0)", (step.consumer,))
        cursor = self._db.execute(
            "UPDATE steps SET position = ? WHERE consumer = ? AND position = ?",
            (step.new, step.consumer, step.old),
        )
        return cursor.rowcount == 1

    def _sweep(self, now: float) -> None:
        for topic, kept_s in _RETENTION_S.items():
            self._db.execute(
                "DELETE FROM messages WHERE (topic = ? OR topic LIKE ?) AND sent < ?",
                (topic, f"{topic}.%", now - kept_s),
            )
        self._db.execute(
            "DELETE FROM messages WHERE topic LIKE 'orders.%' AND value IS NULL AND sent < ?", (now - 86400,)
        )
