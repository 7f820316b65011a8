"""The file that is the fake hypervisor: its tables, and what may be done to a guest in them. Used by
`fake.py`, which is the driver, and by `fake_controls.py`, which interferes from outside.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from domain.instance.state import PowerState
from hostagent.drivers.protocol import DriverError, HypervisorUnreachable

STATE_FILE = "hypervisor.sqlite"

SCHEMA = """
CREATE TABLE IF NOT EXISTS guests (
    instance_id TEXT PRIMARY KEY, power INTEGER NOT NULL, hostname TEXT NOT NULL, vcpus INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL, boots INTEGER NOT NULL, ignores_button INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
    sequence INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, instance_id TEXT NOT NULL, did TEXT NOT NULL,
    power INTEGER NOT NULL, from_outside INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS faults (
    call TEXT PRIMARY KEY, message TEXT NOT NULL, unreachable INTEGER NOT NULL, times INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS strangers (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class FakeGuest:
    instance_id: str
    power: int
    hostname: str
    vcpus: int
    memory_mib: int
    boots: int
    ignores_button: int


def connect(directory: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(directory / STATE_FILE, timeout=10, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(SCHEMA)
    except sqlite3.Error as error:
        raise HypervisorUnreachable(f"the fake hypervisor in {directory}: {error}") from error
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def fail_if_told(database: sqlite3.Connection, call: str) -> None:
    row = database.execute("SELECT message, unreachable, times FROM faults WHERE call = ?", (call,)).fetchone()
    if row is None:
        return
    message, unreachable, times = row
    if times > 1:
        database.execute("UPDATE faults SET times = times - 1 WHERE call = ?", (call,))
    else:
        database.execute("DELETE FROM faults WHERE call = ?", (call,))
    raise HypervisorUnreachable(message) if unreachable else DriverError(message)


def guest_of(database: sqlite3.Connection, text: str) -> FakeGuest:
    row = database.execute(
        "SELECT instance_id, power, hostname, vcpus, memory_mib, boots, ignores_button FROM guests"
        " WHERE instance_id = ?",
        (text,),
    ).fetchone()
    if row is None:
        raise DriverError(f"there is no guest instance-{text}")
    return FakeGuest(*row)


def boot(database: sqlite3.Connection, text: str) -> None:
    if guest_of(database, text).power != PowerState.RUNNING:
        database.execute(
            "UPDATE guests SET power = ?, boots = boots + 1 WHERE instance_id = ?", (PowerState.RUNNING, text)
        )
        record(database, text, "boot", PowerState.RUNNING)


def cut(database: sqlite3.Connection, text: str) -> None:
    if guest_of(database, text).power != PowerState.SHUTDOWN:
        database.execute("UPDATE guests SET power = ? WHERE instance_id = ?", (PowerState.SHUTDOWN, text))
        record(database, text, "cut", PowerState.SHUTDOWN)


def hold(database: sqlite3.Connection, text: str, did: str, power: PowerState) -> None:
    """Pause or suspend a guest, unless it is so already."""
    before = guest_of(database, text).power
    if before in (PowerState.SHUTDOWN, PowerState.CRASHED):
        raise DriverError(f"guest instance-{text} is off")
    _switch(database, text, did, before, power)


def go_on(database: sqlite3.Connection, text: str, did: str, held: PowerState) -> None:
    """Let a guest that is held go on; one that runs is left alone."""
    before = guest_of(database, text).power
    if before not in (held, PowerState.RUNNING):
        raise DriverError(f"guest instance-{text} is not held: its power is {before}")
    _switch(database, text, did, before, PowerState.RUNNING)


def _switch(database: sqlite3.Connection, text: str, did: str, before: int, power: PowerState) -> None:
    if before != power:
        database.execute("UPDATE guests SET power = ? WHERE instance_id = ?", (power, text))
        record(database, text, did, power)


def record(database: sqlite3.Connection, text: str, did: str, power: PowerState, *, from_outside: bool = False) -> None:
    database.execute(
        "INSERT INTO history (time_ns, instance_id, did, power, from_outside) VALUES (?, ?, ?, ?, ?)",
        (time.monotonic_ns(), text, did, power, from_outside),
    )
