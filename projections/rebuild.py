"""Build a view again beside the live one, then switch; readers see no pause, and nothing is missed.

Safe beside a running ledger: the events are applied to a file of the rebuild's own, so that the live views wait for nothing;
its rows are then copied over in bulk and shown in one transaction, at exactly the live view's position.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from commands.log.port import Events
from domain.recorded import RecordedEvent
from projections.views import Projection, connect, create, drop, real_names, show, writing

BATCH = 10_000  # the more events a batch has, the fewer times a row that changes often is written


class AlreadyRebuilding(Exception):
    """Another process is rebuilding a view; one at a time."""


class UnknownView(Exception):
    """No projection of this name; the message lists those that are."""


def rebuild(
    path: Path, the_log: Events, projection: Projection, progress: Callable[[int, int], None] = lambda done, of: None
) -> int:
    """Rebuild one view from position 1; returns the number of events applied.

    `projection` must be a fresh object: it remembers rows of the tables it fills.

    Raises:
        AlreadyRebuilding
    """
    with _file_of(path, projection) as aside:
        with _opened(aside) as db:
            names = real_names(projection, 0)
            create(db, projection, 0)
            position, applied = 0, 0
            while position < (head := the_log.head()):
                records = the_log.events(position, BATCH)
                with writing(db):
                    position, applied = _apply(db, projection, names, records, position, applied)
                progress(position, head)
        with _opened(path) as db:
            db.execute("ATTACH ? AS aside", (str(aside),))
            with writing(db):
                # The lock is held: the live view stands still.
                generation, live_position = _live(db, projection)
                tables = real_names(projection, generation + 1)
                create(db, projection, generation + 1)
                for name, table in tables.items():
                    db.execute(f"INSERT INTO main.{table} SELECT * FROM aside.{names[name]}")
                while position < live_position:
                    records = the_log.events(position, BATCH)
                    position, applied = _apply(db, projection, tables, records, position, applied)
                show(db, projection, generation + 1, position)  # where the live view was behind, it goes on from here
                drop(db, projection, generation)
        progress(position, position)
        return applied


@contextmanager
def _file_of(path: Path, projection: Projection) -> Iterator[Path]:
    """The rebuild's own file, empty; gone afterwards."""
    aside = path.with_name(f"{path.stem}.rebuild-{projection.name}.db")
    with path.with_name(f"{path.stem}.rebuild.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRebuilding("another process is rebuilding a view of this ledger") from None
        try:
            _remove(aside)
            yield aside
        finally:
            _remove(aside)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    db = connect(path)
    try:
        yield db
    finally:
        db.close()


def _apply(
    db: sqlite3.Connection,
    projection: Projection,
    tables: dict[str, str],
    records: Sequence[RecordedEvent],
    position: int,
    applied: int,
) -> tuple[int, int]:
    """The position and the count after these events."""
    if not records:
        return position, applied
    projection.apply(db, tables, records)
    return records[-1].position, applied + len(records)


def _live(db: sqlite3.Connection, projection: Projection) -> tuple[int, int]:
    row = db.execute("SELECT generation, position FROM view_generations WHERE view = ?", (projection.name,)).fetchone()
    return (0, 0) if row is None else (row[0], row[1])
