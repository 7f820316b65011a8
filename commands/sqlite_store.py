"""The embedded event store: one SQLite file, one writing process at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

from eventsourcing.persistence import PersistenceError, StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from commands.event_store import Snapshot, StoredRecord, StoreUnavailable, Transaction
from domain.identifiers import StreamId

TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS commands_done (command_id BLOB PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS consumer_positions "
    "(consumer TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS snapshots "
    "(stream TEXT PRIMARY KEY, version INTEGER NOT NULL, shape TEXT NOT NULL, state BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS vault_keys (subject TEXT PRIMARY KEY, wrapped BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS vault_payloads "
    "(ref TEXT PRIMARY KEY, subject TEXT NOT NULL, owner TEXT NOT NULL, sealed BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS vault_payloads_owner ON vault_payloads (owner)",
)

LOCK_TIMEOUT_S = 2


class SyncedPool(SQLiteConnectionPool):
    """The library's pool, with a disk that is waited for whatever the default of the SQLite at hand is."""

    def _create_connection(self) -> SQLiteConnection:
        connection = super()._create_connection()
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.sqlite_cursor.close()
        return connection


class SQLiteRecorder(SQLiteApplicationRecorder):
    """The library's recorder, with a transaction that takes the write lock before it reads."""

    @contextmanager
    def locked(self) -> Iterator[SQLiteCursor]:
        with self.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            finally:
                cursor.sqlite_cursor.close()

    def insert(self, cursor: SQLiteCursor, records: Sequence[StoredEvent]) -> Sequence[int]:
        positions = self._insert_events(cursor, records)
        assert positions is not None
        return positions


class _SQLiteTransaction:
    def __init__(self, recorder: SQLiteRecorder, cursor: SQLiteCursor) -> None:
        self._recorder = recorder
        self._cursor = cursor

    def head(self) -> int:
        return int(_one(self._cursor, "SELECT COALESCE(MAX(rowid), 0) FROM stored_events")[0])

    def read(self, after: int) -> list[StoredRecord]:
        return _records(self._cursor, _SELECT + "WHERE rowid > ? ORDER BY rowid", (after,))

    def expect(self, streams: Sequence[StreamId]) -> None:
        pass

    def read_stream(self, stream: StreamId, after_version: int) -> list[StoredRecord]:
        return _records(self._cursor, _SELECT_STREAM, (stream, after_version))

    def snapshot(self, stream: StreamId) -> Snapshot | None:
        return _snapshot(self._cursor, stream)

    def commands_done(self, command_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        done: dict[UUID, int] = {}
        for command_id in command_ids:
            row = _one(self._cursor, "SELECT position FROM commands_done WHERE command_id = ?", (command_id.bytes,))
            if row is not None:
                done[command_id] = row[0]
        return done

    def insert(self, records: Sequence[StoredEvent]) -> Sequence[int]:
        return self._recorder.insert(self._cursor, records)

    def record_commands(self, done: Sequence[tuple[UUID, int]]) -> None:
        self._cursor.executemany(
            "INSERT INTO commands_done VALUES (?, ?)",
            [(command_id.bytes, position) for command_id, position in done],
        )

    def save_snapshot(self, stream: StreamId, snapshot: Snapshot) -> None:
        self._cursor.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
            (stream, snapshot.version, snapshot.shape, snapshot.state),
        )

    def move_position(self, consumer: str, old: int, new: int) -> bool:
        return _move_position(self._cursor, consumer, old, new)

    def key(self, subject: str) -> bytes | None:
        return _key(self._cursor, subject)

    def add_key(self, subject: str, wrapped: bytes) -> None:
        self._cursor.execute("INSERT INTO vault_keys VALUES (?, ?)", (subject, wrapped))

    def add_payload(self, ref: str, subject: str, owner: str, sealed: bytes) -> None:
        self._cursor.execute("INSERT INTO vault_payloads VALUES (?, ?, ?, ?)", (ref, subject, owner, sealed))


class SQLiteEventStore:
    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)  # and so are its companions: SQLite takes over the file's mode
        self._datastore = SQLiteDatastore(
            str(path), lock_timeout=LOCK_TIMEOUT_S, pool_size=6, originator_id_type="text"
        )
        self._datastore.pool.close()
        self._datastore.pool = SyncedPool(db_name=str(path), lock_timeout=LOCK_TIMEOUT_S, pool_size=6)
        self._recorder = SQLiteRecorder(self._datastore)
        with _translated():
            self._recorder.create_table()
            with self._recorder.locked() as cursor:
                for statement in TABLES:
                    cursor.execute(statement)
                cursor.execute("INSERT OR IGNORE INTO ledger_meta VALUES ('incarnation', ?)", (str(uuid4()),))
                row = _one(cursor, "SELECT value FROM ledger_meta WHERE name = 'incarnation'")
        self.incarnation = str(row[0])

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with _translated(), self._recorder.locked() as cursor:
            yield _SQLiteTransaction(self._recorder, cursor)

    def head(self) -> int:
        with self._reading() as cursor:
            return int(_one(cursor, "SELECT COALESCE(MAX(rowid), 0) FROM stored_events")[0])

    def read(self, after: int, limit: int) -> list[StoredRecord]:
        with self._reading() as cursor:
            return _records(cursor, _SELECT + "WHERE rowid > ? ORDER BY rowid LIMIT ?", (after, limit))

    def read_stream(self, stream: StreamId, after_version: int = 0) -> list[StoredRecord]:
        with self._reading() as cursor:
            return _records(cursor, _SELECT_STREAM, (stream, after_version))

    def streams(self, category: str) -> list[StreamId]:
        found: list[StreamId] = []
        after, end = f"{category}:", f"{category};"  # ";" follows ":"
        with self._reading() as cursor:
            while True:
                row = _one(
                    cursor,
                    "SELECT MIN(originator_id) FROM stored_events WHERE originator_id > ? AND originator_id < ?",
                    (after, end),
                )
                if row[0] is None:
                    return found
                after = row[0]
                found.append(StreamId(after))

    def snapshot(self, stream: StreamId) -> Snapshot | None:
        with self._reading() as cursor:
            return _snapshot(cursor, stream)

    def position(self, consumer: str) -> int:
        with self._reading() as cursor:
            row = _one(cursor, "SELECT position FROM consumer_positions WHERE consumer = ?", (consumer,))
            return 0 if row is None else int(row[0])

    def move_position(self, consumer: str, old: int, new: int) -> bool:
        with _translated(), self._recorder.locked() as cursor:
            return _move_position(cursor, consumer, old, new)

    def command_done(self, command_id: UUID) -> int | None:
        with self._reading() as cursor:
            row = _one(cursor, "SELECT position FROM commands_done WHERE command_id = ?", (command_id.bytes,))
            return None if row is None else int(row[0])

    def key(self, subject: str) -> bytes | None:
        with self._reading() as cursor:
            return _key(cursor, subject)

    def payload(self, ref: str) -> tuple[str, bytes] | None:
        with self._reading() as cursor:
            row = _one(cursor, "SELECT subject, sealed FROM vault_payloads WHERE ref = ?", (ref,))
            return None if row is None else (row[0], row[1])

    def drop_payloads(self, owner: str) -> None:
        with _translated(), self._recorder.locked() as cursor:
            cursor.execute("DELETE FROM vault_payloads WHERE owner = ?", (owner,))

    def destroy_key(self, subject: str) -> bool:
        with _translated(), self._recorder.locked() as cursor:
            cursor.execute("DELETE FROM vault_keys WHERE subject = ?", (subject,))
            destroyed = cursor.sqlite_cursor.rowcount == 1
            cursor.execute("DELETE FROM vault_payloads WHERE subject = ?", (subject,))
            cursor.execute("DELETE FROM snapshots")  # some hold the subject's data, sealed under the key that is gone
            return bool(destroyed)

    def close(self) -> None:
        self._datastore.close()

    @contextmanager
    def _reading(self) -> Iterator[SQLiteCursor]:
        with _translated(), self._datastore.get_connection(commit=False) as connection:
            cursor = connection.cursor()
            try:
                yield cursor
            finally:
                cursor.sqlite_cursor.close()


_SELECT = "SELECT rowid, originator_id, originator_version, topic, state FROM stored_events "
_SELECT_STREAM = _SELECT + "WHERE originator_id = ? AND originator_version > ? ORDER BY originator_version"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, PersistenceError) as error:
        raise StoreUnavailable(str(error)) from error


def _records(cursor: SQLiteCursor, statement: str, parameters: tuple[object, ...]) -> list[StoredRecord]:
    cursor.execute(statement, parameters)
    return [StoredRecord(row[0], StreamId(row[1]), row[2], row[3], row[4]) for row in cursor.fetchall()]


def _snapshot(cursor: SQLiteCursor, stream: StreamId) -> Snapshot | None:
    row = _one(cursor, "SELECT version, shape, state FROM snapshots WHERE stream = ?", (stream,))
    return None if row is None else Snapshot(version=row[0], shape=row[1], state=row[2])


def _move_position(cursor: SQLiteCursor, consumer: str, old: int, new: int) -> bool:
    if old == 0:
        cursor.execute("INSERT OR IGNORE INTO consumer_positions VALUES (?, 0)", (consumer,))
    cursor.execute(
        "UPDATE consumer_positions SET position = ? WHERE consumer = ? AND position = ?", (new, consumer, old)
    )
    return bool(cursor.sqlite_cursor.rowcount == 1)


def _key(cursor: SQLiteCursor, subject: str) -> bytes | None:
    row = _one(cursor, "SELECT wrapped FROM vault_keys WHERE subject = ?", (subject,))
    return None if row is None else bytes(row[0])


def _one(cursor: SQLiteCursor, statement: str, parameters: tuple[object, ...] = ()) -> sqlite3.Row:
    cursor.execute(statement, parameters)
    row: sqlite3.Row = cursor.fetchone()
    return row
