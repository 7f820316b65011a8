"""The event store that several processes share: one PostgreSQL database, version 15 or newer.

Whoever writes holds one lock of writers from before its first read until its commit is done. So positions, which come
from a sequence, are in the order of commits, and a reader that goes on from the last it saw misses nothing; a position
that was rolled back stays a hole. Nothing else writes to that table: the library's database functions do it without the
lock, and are not even created. The lock is an advisory one (ADR 12). How the database is reached, and who is told of a
commit: `postgresql_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
from eventsourcing.persistence import PersistenceError, StoredEvent
from eventsourcing.postgres import PostgresAggregateRecorder, PostgresApplicationRecorder, PostgresDatastore
from psycopg.sql import SQL, Composed
from psycopg.types.composite import register_composite

from commands.event_store import Snapshot, StoredRecord, StoreUnavailable, Transaction
from commands.postgresql_sessions import HEAD, HEAD_CHANNEL, LOCK_TIMEOUT_S, CommitBell, Sessions, advisory_key
from domain.identifiers import StreamId

__all__ = ["CommitBell", "PostgreSQLEventStore"]

TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger_meta (name text PRIMARY KEY, value text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS commands_done (command_id uuid PRIMARY KEY, position bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS consumer_positions (consumer text PRIMARY KEY, position bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snapshots "
    "(stream text PRIMARY KEY, version bigint NOT NULL, shape text NOT NULL, state bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS vault_keys (subject text PRIMARY KEY, wrapped bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS vault_payloads "
    "(ref text PRIMARY KEY, subject text NOT NULL, owner text NOT NULL, sealed bytea NOT NULL)",
    "CREATE INDEX IF NOT EXISTS vault_payloads_owner ON vault_payloads (owner)",
    "CREATE INDEX IF NOT EXISTS vault_payloads_subject ON vault_payloads (subject)",
    # Streams are in the order of their bytes, whatever the order of the database's language is.
    'ALTER TABLE stored_events ALTER COLUMN originator_id TYPE text COLLATE "C"',
)
RELATIONS = (
    *("stored_events", "stored_events_notification_id_idx", "ledger_meta", "commands_done", "consumer_positions"),
    *("snapshots", "vault_keys", "vault_payloads", "vault_payloads_owner", "vault_payloads_subject"),
)

LOCK = f"SELECT pg_advisory_xact_lock({advisory_key('writers')})"
_ALL_THERE = "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest(%s::text[]) AS name"
_SELECT = "SELECT notification_id, originator_id, originator_version, topic, state FROM stored_events "
_SELECT_STREAM = _SELECT + "WHERE originator_id = %s AND originator_version > %s ORDER BY originator_version"
_SELECT_WITHOUT_SNAPSHOT = (
    _SELECT + "WHERE originator_id = ANY(%s) AND NOT EXISTS (SELECT FROM snapshots WHERE stream = originator_id) "
    "ORDER BY originator_id, originator_version"
)
_WITH_SNAPSHOT = "SELECT stream FROM snapshots WHERE stream = ANY(%s)"
_STREAMS = """
WITH RECURSIVE streams (stream) AS (
    SELECT min(originator_id) FROM stored_events WHERE originator_id > %(first)s AND originator_id < %(end)s
    UNION ALL
    SELECT (SELECT min(originator_id) FROM stored_events WHERE originator_id > stream AND originator_id < %(end)s)
    FROM streams WHERE stream IS NOT NULL
)
SELECT stream FROM streams WHERE stream IS NOT NULL
"""

Cursor = psycopg.Cursor[Any]


class Datastore(PostgresDatastore):
    """The library's, on sessions of ours: they take a whole URL, and are never retried behind our back."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__(
            *("", "", "", "", ""), originator_id_type="text", lock_timeout=LOCK_TIMEOUT_S, enable_db_functions=False
        )
        self._sessions = sessions

    @contextmanager
    def get_connection(self) -> Iterator[psycopg.Connection[Any]]:
        with self._sessions.one() as connection:
            for info in self.psycopg_type_adapters.values():
                if not connection.adapters.types.get(info.oid):
                    register_composite(info, connection)
            yield connection

    def close(self) -> None:
        super().close()
        self._sessions.close()


@dataclass(slots=True)
class Locked:
    """A transaction under way."""

    cursor: Cursor
    head: int  # nobody else can move it now
    recorded: int | None = None  # the last position given

    def closing(self) -> str:
        ring = "" if self.recorded is None else f"SELECT pg_notify('{HEAD_CHANNEL}', '{self.recorded}'); "
        return f"{ring}COMMIT"


class PostgreSQLRecorder(PostgresApplicationRecorder):
    """The library's recorder, with a transaction that takes the lock before it reads."""

    def __init__(self, datastore: Datastore) -> None:
        super().__init__(datastore)
        del self.sql_create_statements[self.create_insert_function_statement_index]
        in_binary = self.insert_events_statement.as_string().replace("%s", "%b")  # in a third of the time
        self.insert_events_statement = Composed([SQL(in_binary)])
        self._opening = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {LOCK}; {HEAD}"

    def lay_out(self) -> None:
        """Create what is not there yet. Processes that start at once wait for each other."""
        with self.datastore.transaction(commit=True) as cursor:
            if not _one(cursor, _ALL_THERE, (list(RELATIONS),))[0]:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (advisory_key("tables"),))
                if _one(cursor, "SELECT to_regtype(%s)", (self.stored_event_type_name,))[0] is None:
                    for statement in self.sql_create_statements:
                        if "CREATE TYPE" in statement.as_string():
                            cursor.execute(statement)
                self._create_table(cursor)
                for table in TABLES:
                    cursor.execute(table)
        self.datastore.register_type_adapters()

    @contextmanager
    def locked(self) -> Iterator[Locked]:
        """A transaction that holds the lock.

        What is sent is always a whole round: between rounds the server counts the session as idle in its transaction, and
        ends it where the next does not come, since its process is frozen and holds the lock that all wait for. Inside an
        open pipeline it would wait for ever; so there is none.
        """
        with self.datastore.get_connection() as connection:
            try:
                opened = connection.execute(self._opening, prepare=False)
                locked = Locked(connection.cursor(binary=True), _head_of(opened))
                yield locked
                connection.execute(locked.closing(), prepare=False)
            except BaseException:
                connection.close()  # rolls back, and waits for nobody
                raise

    def insert(self, locked: Locked, records: Sequence[StoredEvent]) -> Sequence[int]:
        if not records:
            return []
        PostgresAggregateRecorder._insert_stored_events(self, locked.cursor, records)  # the lock is taken already
        positions = [position for (position,) in locked.cursor.fetchall()]
        locked.recorded = positions[-1]
        return positions


class _PostgreSQLTransaction:
    def __init__(self, recorder: PostgreSQLRecorder, locked: Locked) -> None:
        self._recorder = recorder
        self._locked = locked
        self._cursor = locked.cursor
        self._at_hand: dict[StreamId, list[StoredRecord]] = {}  # whole, of streams without a snapshot

    def head(self) -> int:
        return self._locked.recorded or self._locked.head

    def read(self, after: int) -> list[StoredRecord]:
        return _records(self._cursor, _SELECT + "WHERE notification_id > %s ORDER BY notification_id", (after,))

    def expect(self, streams: Sequence[StreamId]) -> None:
        if not streams:
            return
        at_hand: dict[StreamId, list[StoredRecord]] = {stream: [] for stream in streams}
        for record in _records(self._cursor, _SELECT_WITHOUT_SNAPSHOT, (list(streams),)):
            at_hand[record.stream].append(record)
        with_snapshot = self._cursor.execute(_WITH_SNAPSHOT, (list(streams),)).fetchall()
        for (stream,) in with_snapshot:
            del at_hand[stream]
        self._at_hand |= at_hand

    def read_stream(self, stream: StreamId, after_version: int) -> list[StoredRecord]:
        found = self._at_hand.get(stream)
        if found is not None:
            return [record for record in found if record.version > after_version]
        return _records(self._cursor, _SELECT_STREAM, (stream, after_version))

    def snapshot(self, stream: StreamId) -> Snapshot | None:
        return None if stream in self._at_hand else _snapshot(self._cursor, stream)

    def commands_done(self, command_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        statement = "SELECT command_id, position FROM commands_done WHERE command_id = ANY(%s)"
        return dict(self._cursor.execute(statement, (list(command_ids),)).fetchall())

    def insert(self, records: Sequence[StoredEvent]) -> Sequence[int]:
        return self._recorder.insert(self._locked, records)

    def record_commands(self, done: Sequence[tuple[UUID, int]]) -> None:
        if done:
            ids, positions = zip(*done, strict=True)
            statement = "INSERT INTO commands_done SELECT * FROM unnest(%s::uuid[], %s::bigint[])"
            self._cursor.execute(statement, (list(ids), list(positions)))

    def save_snapshot(self, stream: StreamId, snapshot: Snapshot) -> None:
        self._cursor.execute(
            "INSERT INTO snapshots VALUES (%s, %s, %s, %s) ON CONFLICT (stream) "
            "DO UPDATE SET version = EXCLUDED.version, shape = EXCLUDED.shape, state = EXCLUDED.state",
            (stream, snapshot.version, snapshot.shape, snapshot.state),
        )

    def move_position(self, consumer: str, old: int, new: int) -> bool:
        return _move_position(self._cursor, consumer, old, new)

    def key(self, subject: str) -> bytes | None:
        return _key(self._cursor, subject)

    def add_key(self, subject: str, wrapped: bytes) -> None:
        self._cursor.execute("INSERT INTO vault_keys VALUES (%s, %s)", (subject, wrapped))

    def add_payload(self, ref: str, subject: str, owner: str, sealed: bytes) -> None:
        self._cursor.execute("INSERT INTO vault_payloads VALUES (%s, %s, %s, %s)", (ref, subject, owner, sealed))


class PostgreSQLEventStore:
    """`url` is libpq's, with what TLS needs in it: `postgresql://user:password@host/ledger?sslmode=verify-full`."""

    def __init__(self, url: str, *, application_name: str = "compute-ledger") -> None:
        with _translated():
            self._sessions = Sessions(url, application_name)
            self._recorder = PostgreSQLRecorder(Datastore(self._sessions))
            self._recorder.lay_out()
            with self._sessions.one() as connection:
                cursor = connection.cursor()
                mint = "INSERT INTO ledger_meta VALUES ('incarnation', %s) ON CONFLICT DO NOTHING"
                cursor.execute(mint, (str(uuid4()),))
                row = _one(cursor, "SELECT value FROM ledger_meta WHERE name = 'incarnation'")
        self.incarnation = str(row[0])

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with _translated(), self._recorder.locked() as locked:
            yield _PostgreSQLTransaction(self._recorder, locked)

    def head(self) -> int:
        with self._alone() as cursor:
            return int(_one(cursor, HEAD)[0])

    def read(self, after: int, limit: int) -> list[StoredRecord]:
        statement = _SELECT + "WHERE notification_id > %s ORDER BY notification_id LIMIT %s"
        with self._alone() as cursor:
            return _records(cursor, statement, (after, limit))

    def read_stream(self, stream: StreamId, after_version: int = 0) -> list[StoredRecord]:
        with self._alone() as cursor:
            return _records(cursor, _SELECT_STREAM, (stream, after_version))

    def streams(self, category: str) -> list[StreamId]:
        bounds = {"first": f"{category}:", "end": f"{category};"}  # ";" follows ":"
        with self._alone() as cursor:
            return [StreamId(stream) for (stream,) in cursor.execute(_STREAMS, bounds).fetchall()]

    def snapshot(self, stream: StreamId) -> Snapshot | None:
        with self._alone() as cursor:
            return _snapshot(cursor, stream)

    def position(self, consumer: str) -> int:
        with self._alone() as cursor:
            row = _one(cursor, "SELECT position FROM consumer_positions WHERE consumer = %s", (consumer,))
            return 0 if row is None else int(row[0])

    def move_position(self, consumer: str, old: int, new: int) -> bool:
        with self._alone() as cursor:
            return _move_position(cursor, consumer, old, new)

    def command_done(self, command_id: UUID) -> int | None:
        with self._alone() as cursor:
            row = _one(cursor, "SELECT position FROM commands_done WHERE command_id = %s", (command_id,))
            return None if row is None else int(row[0])

    def key(self, subject: str) -> bytes | None:
        with self._alone() as cursor:
            return _key(cursor, subject)

    def payload(self, ref: str) -> tuple[str, bytes] | None:
        with self._alone() as cursor:
            row = _one(cursor, "SELECT subject, sealed FROM vault_payloads WHERE ref = %s", (ref,))
            return None if row is None else (row[0], row[1])

    def drop_payloads(self, owner: str) -> None:
        with self._alone() as cursor:
            cursor.execute("DELETE FROM vault_payloads WHERE owner = %s", (owner,))

    def destroy_key(self, subject: str) -> bool:
        with _translated(), self._recorder.locked() as locked:
            cursor = locked.cursor
            row = _one(cursor, "DELETE FROM vault_keys WHERE subject = %s RETURNING subject", (subject,))
            cursor.execute("DELETE FROM vault_payloads WHERE subject = %s", (subject,))
            cursor.execute("DELETE FROM snapshots")  # some hold the subject's data, sealed under the key that is gone
            return row is not None

    def close(self) -> None:
        self._sessions.close()

    @contextmanager
    def _alone(self) -> Iterator[Cursor]:
        """For one statement, which is a transaction of its own."""
        with _translated(), self._sessions.one() as connection:
            yield connection.cursor(binary=True)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, PersistenceError) as error:
        raise StoreUnavailable(str(error)) from error


def _records(cursor: Cursor, statement: str, parameters: tuple[object, ...]) -> list[StoredRecord]:
    cursor.execute(statement, parameters)
    return [StoredRecord(row[0], StreamId(row[1]), row[2], row[3], row[4]) for row in cursor.fetchall()]


def _snapshot(cursor: Cursor, stream: StreamId) -> Snapshot | None:
    row = _one(cursor, "SELECT version, shape, state FROM snapshots WHERE stream = %s", (stream,))
    return None if row is None else Snapshot(version=row[0], shape=row[1], state=row[2])


def _move_position(cursor: Cursor, consumer: str, old: int, new: int) -> bool:
    statement = "UPDATE consumer_positions SET position = %(new)s WHERE consumer = %(consumer)s AND position = %(old)s"
    if old == 0:
        statement = (
            "INSERT INTO consumer_positions AS mine VALUES (%(consumer)s, %(new)s) "
            "ON CONFLICT (consumer) DO UPDATE SET position = EXCLUDED.position WHERE mine.position = %(old)s"
        )
    moved = _one(cursor, statement + " RETURNING consumer", {"consumer": consumer, "old": old, "new": new})
    return moved is not None


def _key(cursor: Cursor, subject: str) -> bytes | None:
    row = _one(cursor, "SELECT wrapped FROM vault_keys WHERE subject = %s", (subject,))
    return None if row is None else bytes(row[0])


def _head_of(opened: Cursor) -> int:
    while opened.nextset():
        pass
    [(head,)] = opened.fetchall()
    return int(head)


def _one(cursor: Cursor, statement: str, parameters: Any = ()) -> Any:
    """The first row; None where there is none."""
    return cursor.execute(statement, parameters).fetchone()
