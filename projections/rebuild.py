"""Build a view again beside the live one, then switch; readers see no pause, and nothing is missed.

Safe beside a running ledger: both write the file in short transactions, and the switch happens under its write lock, at
exactly the live view's position.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from commands.log.port import Log
from domain.recorded import RecordedEvent
from projections.views import Projection, connect, create, drop, real_names, show, writing

BATCH = 10_000  # the more events a batch has, the fewer times a row that changes often is written


class UnknownView(Exception):
    """No projection of this name; the message lists those that are."""


def rebuild(
    path: Path, the_log: Log, projection: Projection, progress: Callable[[int, int], None] = lambda done, of: None
) -> int:
    """Rebuild one view from position 1; returns the number of events applied.

    `projection` must be a fresh object: it remembers rows of the tables it fills.
    """
    db = connect(path)
    try:
        with writing(db):
            live = _live(db, projection)
            generation = live[0] + 1
            drop(db, projection, generation)  # what an interrupted rebuild left
            create(db, projection, generation)
        tables = real_names(projection, generation)
        position, applied = 0, 0
        while True:
            head = the_log.head()
            records = the_log.events(position, BATCH)
            with writing(db):
                position, applied = _apply(db, projection, tables, records, position, applied)
                if position >= head:
                    # The lock is held: the live view stands still. What it is ahead is taken too, then it is replaced;
                    # where it is behind, it goes on from the new position.
                    current = _live(db, projection)
                    while position < current[1]:
                        more = the_log.events(position, BATCH)
                        position, applied = _apply(db, projection, tables, more, position, applied)
                    show(db, projection, generation, position)
                    drop(db, projection, current[0])
                    progress(position, position)
                    return applied
            progress(position, head)
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
