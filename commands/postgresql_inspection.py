"""The store as an operator looks at it (`compute-ledger doctor`). Nothing here makes what is missing, or writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from commands.event_store import StoreUnavailable
from commands.postgresql_sessions import HEAD, advisory_key, connect
from commands.postgresql_store import RELATIONS

Clock = Callable[[], datetime]

OLDEST = 150_000  # of PostgreSQL, as it counts itself

_MISSING = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"
_PROCESSES = """
SELECT DISTINCT application_name, COALESCE(host(client_addr), 'this machine') FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'compute-ledger %%/%%' AND pid <> pg_backend_pid()
"""
_HOLDERS = """
SELECT application_name, COALESCE(host(client_addr), 'this machine') FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid::bigint << 32 | objid::bigint) = %s
"""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """In containers many have one pid: the address tells them apart."""

    name: str  # `compute-ledger ROLES/PID`
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSeen:
    version: int  # 150004: 15.4
    missing: Collection[str]  # tables and indexes
    ahead_s: float  # how far this process's clock is before the store's
    processes: Collection[Process]
    seats: Mapping[str, Process] = field(default_factory=dict)  # who holds each that is held
    head: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)  # of consumers, as they are kept


def look(url: str, application_name: str, seats: Collection[str], clock: Clock = _utc_now) -> StoreSeen:
    """Raises:
    StoreUnavailable
    """
    try:
        with connect(url, application_name) as session:
            version = session.info.server_version
            missing = [name for (name,) in session.execute(_MISSING, (list(RELATIONS),))]
            ahead_s = _ahead_s(session, clock)
            processes = [Process(*row) for row in session.execute(_PROCESSES)]
            if missing:
                return StoreSeen(version=version, missing=missing, ahead_s=ahead_s, processes=processes)
            held = {seat: session.execute(_HOLDERS, (advisory_key(f"election/{seat}"),)).fetchone() for seat in seats}
            positions = dict(session.execute("SELECT consumer, position FROM consumer_positions").fetchall())
            [head] = session.execute(HEAD).fetchone() or (0,)
            return StoreSeen(
                version=version,
                missing=(),
                ahead_s=ahead_s,
                processes=processes,
                seats={seat: Process(*holder) for seat, holder in held.items() if holder is not None},
                head=head,
                positions=positions,
            )
    except psycopg.Error as error:
        raise StoreUnavailable(str(error)) from error


def ahead_of_store_s(url: str, application_name: str, clock: Clock = _utc_now) -> float:
    """How far this process's clock is before the store's, in seconds; in a session of its own, for a moment.

    Raises:
        StoreUnavailable
    """
    try:
        with connect(url, application_name) as session:
            return _ahead_s(session, clock)
    except psycopg.Error as error:
        raise StoreUnavailable(str(error)) from error


def _ahead_s(session: psycopg.Connection[Any], clock: Clock) -> float:
    """Right to half the time that the answer took."""
    asked = clock()
    row = session.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    stored: datetime = row[0]
    return (asked + (clock() - asked) / 2 - stored).total_seconds()
