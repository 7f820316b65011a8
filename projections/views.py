"""All views of one process in one SQLite file: tables, positions, and the consumer that applies events to them.

A view's tables carry a generation in their names; readers use SQL views of the plain names. So a rebuild fills tables of
the next generation beside the live ones and then switches, in one transaction (`rebuild.py`). Each view's position is
written in the transaction of its rows. The file is not synced: after a power cut it is a little behind, never wrong.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from commands.log.consumer import Handled
from commands.log.port import Events
from domain.recorded import RecordedEvent

log = logging.getLogger(__name__)

BATCH = 500

_TABLES = """
CREATE TABLE IF NOT EXISTS view_generations (
    view TEXT PRIMARY KEY, form INTEGER NOT NULL, generation INTEGER NOT NULL, position INTEGER NOT NULL) WITHOUT ROWID;
"""


class Projection(Protocol):
    """One view: what tables it has, and how an event changes them. It reads nothing but its own rows and the event."""

    name: str
    form: int  # grows when its rows would be different: old ones are then dropped and built again
    tables: Sequence[str]  # logical names; in `create`, `{name}` stands for the table

    def create(self, tables: dict[str, str]) -> list[str]:
        """Statements that make its tables and indexes, under the given real names."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        """Take a batch of events, in order; how they are cut into batches makes no difference to the rows."""

    def forget(self) -> None:
        """Drop what is remembered between events: the tables may have changed underneath."""


def connect(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA cache_size=-8000")
    return db


def real_names(projection: Projection, generation: int) -> dict[str, str]:
    return {name: f"{name}_g{generation}" for name in projection.tables}


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


class Views:
    """The consumer of the ledger that keeps the views; `position` is how far readers can see."""

    name = "views"

    def __init__(self, path: Path, the_log: Events, projections: Sequence[Projection]) -> None:
        self._log = the_log
        self._projections = projections
        self._db = _sound(path)
        self._generations: dict[str, int] = {}
        self._listeners: list[Callable[[int], None]] = []
        self.position = 0
        self.handled: Handled | None = None
        with writing(self._db):
            for statement in filter(str.strip, _TABLES.split(";")):
                self._db.execute(statement)
            for projection in projections:
                self._prepare(projection)
        self.position = min(self._positions()[projection.name] for projection in projections)

    def wait(self, timeout_s: float) -> None:
        self._log.wait_for_events(self.position, timeout_s)

    def step(self) -> bool:
        records = self._log.events(self.position, BATCH)
        if not records:
            return False
        new = records[-1].position
        try:
            self._apply(records, new)
        except BaseException:
            for projection in self._projections:
                projection.forget()  # the rows it remembers were taken back
            raise
        self.position = new
        self.handled = Handled(len(records), records[-1].time)
        for listener in self._listeners:
            listener(new)
        return True

    def _apply(self, records: Sequence[RecordedEvent], new: int) -> None:
        with writing(self._db):
            generations = dict(
                self._db.execute("SELECT view, generation * 1000000000000 + position FROM view_generations").fetchall()
            )
            for projection in self._projections:
                generation, position = divmod(generations[projection.name], 1000000000000)
                if self._generations.get(projection.name) != generation:
                    projection.forget()
                    self._generations[projection.name] = generation
                if position >= new:
                    continue
                tables = real_names(projection, generation)
                projection.apply(self._db, tables, [r for r in records if r.position > position])
                self._db.execute("UPDATE view_generations SET position = ? WHERE view = ?", (new, projection.name))

    def on_progress(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the new position after each batch, on the thread that steps this consumer."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._db.close()

    def _prepare(self, projection: Projection) -> None:
        row = self._db.execute(
            "SELECT form, generation, position FROM view_generations WHERE view = ?", (projection.name,)
        ).fetchone()
        # Beyond the head: the ledger was put back from an older copy, and these rows tell what it does not know.
        if row is not None and row[0] == projection.form and row[2] <= self._log.head():
            self._generations[projection.name] = row[1]
            return
        generation = 1 if row is None else row[1] + 1
        if row is not None:
            drop(self._db, projection, row[1])
            drop(self._db, projection, generation)  # what an interrupted rebuild left
        create(self._db, projection, generation)
        show(self._db, projection, generation, 0)
        self._generations[projection.name] = generation

    def _positions(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT view, position FROM view_generations").fetchall())


def _sound(path: Path) -> sqlite3.Connection:
    """The file, or a new one in its place where it cannot be read: all in it can be built again."""
    try:
        db = connect(path)
        [(found,)] = db.execute("PRAGMA quick_check(1)").fetchall()
        if found == "ok":
            return db
        db.close()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        found = str(error)
    log.warning("%s cannot be read (%s); its views are built again", path, found)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return connect(path)


def create(db: sqlite3.Connection, projection: Projection, generation: int) -> None:
    for statement in projection.create(real_names(projection, generation)):
        db.execute(statement)


def drop(db: sqlite3.Connection, projection: Projection, generation: int) -> None:
    for table in real_names(projection, generation).values():
        db.execute(f"DROP TABLE IF EXISTS {table}")


def show(db: sqlite3.Connection, projection: Projection, generation: int, position: int) -> None:
    """Let readers see this generation."""
    for name, table in real_names(projection, generation).items():
        db.execute(f"DROP VIEW IF EXISTS {name}")
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM {table}")
    db.execute(
        "INSERT OR REPLACE INTO view_generations VALUES (?, ?, ?, ?)",
        (projection.name, projection.form, generation, position),
    )
