"""The record of truth, on the `eventsourcing` library's recorders: the port. Adapters: `sqlite_store.py` and
`postgresql_store.py`.

The appender owns its transaction: it locks first, then reads, decides and inserts. The library's own retry is never used,
since an error after COMMIT would look like a conflict. `snapshots`, `commands_done` and consumers' positions live in the
same database, so that they move in the same transaction as what they are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from domain.identifiers import StreamId


class StoreUnavailable(Exception):
    """The store does not answer, or what it did is not known; nothing may be assumed. HTTP answers 503."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as the store holds it, still in bytes."""

    position: int
    stream: StreamId
    version: int
    wire_name: str
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    version: int
    shape: str  # of the code that made it
    state: bytes


class Transaction(Protocol):
    """What the appender does under the lock. Positions are given at insert and are in commit order."""

    def head(self) -> int: ...
    def read(self, after: int) -> list[StoredRecord]: ...
    def expect(self, streams: Sequence[StreamId]) -> None:
        """These are going to be read: a store that is a round trip away may fetch them together."""

    def read_stream(self, stream: StreamId, after_version: int) -> list[StoredRecord]: ...
    def snapshot(self, stream: StreamId) -> Snapshot | None: ...
    def commands_done(self, command_ids: Sequence[UUID]) -> Mapping[UUID, int]: ...
    def insert(self, records: Sequence[StoredEvent]) -> Sequence[int]: ...
    def record_commands(self, done: Sequence[tuple[UUID, int]]) -> None: ...
    def save_snapshot(self, stream: StreamId, snapshot: Snapshot) -> None: ...
    def move_position(self, consumer: str, old: int, new: int) -> bool:
        """Whether it was `old`; False means another process is the active one by now."""

    def key(self, subject: str) -> bytes | None: ...
    def add_key(self, subject: str, wrapped: bytes) -> None: ...
    def add_payload(self, ref: str, subject: str, owner: str, sealed: bytes) -> None: ...


class EventStore(Protocol):
    incarnation: str  # minted once; a restore mints a new one

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Lock, then run; commits at the end, rolls back on any exception.

        Raises:
            StoreUnavailable: it could not be had in time, or COMMIT's result is unknown.
        """

    def head(self) -> int: ...
    def read(self, after: int, limit: int) -> list[StoredRecord]: ...
    def read_stream(self, stream: StreamId, after_version: int = 0) -> list[StoredRecord]: ...
    def streams(self, category: str) -> list[StreamId]:
        """All streams of a category, in text order; costs as many look-ups as there are streams."""

    def snapshot(self, stream: StreamId) -> Snapshot | None: ...
    def position(self, consumer: str) -> int: ...
    def move_position(self, consumer: str, old: int, new: int) -> bool:
        """As the transaction's, in a transaction of its own that takes no lock on the events."""

    def command_done(self, command_id: UUID) -> int | None: ...
    def key(self, subject: str) -> bytes | None: ...
    def payload(self, ref: str) -> tuple[str, bytes] | None:
        """Subject and sealed bytes of a payload."""

    def drop_payloads(self, owner: str) -> None: ...
    def destroy_key(self, subject: str) -> bool: ...
    def close(self) -> None: ...
