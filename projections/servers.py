"""Server list and detail. A row holds the folded instance, what lists filter and sort by, and its answer in parts."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence

from domain.identifiers import category_of
from domain.instance.events import InstanceDeleted, InstanceSpawned
from domain.instance.state import evolve
from domain.recorded import RecordedEvent
from projections.server_row import COLUMNS, COUNT, Fixed, Row, Times

REMEMBERED = 512


class Servers:
    name = "servers"
    form = 3
    tables: Sequence[str] = ("servers",)

    def __init__(self) -> None:
        self._rows: OrderedDict[str, Row] = OrderedDict()

    def create(self, tables: dict[str, str]) -> list[str]:
        table = tables["servers"]
        return [
            f"CREATE TABLE {table} ({COLUMNS})",
            f"CREATE INDEX {table}_project ON {table} (project_id, deleted)",
            f"CREATE INDEX {table}_deleted ON {table} (deleted)",
            f"CREATE INDEX {table}_host ON {table} (host, deleted)",
            f"CREATE INDEX {table}_updated ON {table} (updated_at)",
        ]

    def forget(self) -> None:
        self._rows.clear()

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        changed: dict[str, Row] = {}
        for record in records:
            if category_of(record.stream) == "instance":
                instance_id = record.stream[len("instance:") :]
                known = changed.get(instance_id) or self._known(db, tables["servers"], instance_id)
                changed[instance_id] = _applied(known, record)
        db.executemany(
            f"INSERT OR REPLACE INTO {tables['servers']} VALUES ({','.join('?' * COUNT)})",
            [row.values() for row in changed.values()],
        )
        for instance_id, row in changed.items():
            self._rows[instance_id] = row
            self._rows.move_to_end(instance_id)
        while len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)

    def _known(self, db: sqlite3.Connection, table: str, instance_id: str) -> Row | None:
        if (known := self._rows.get(instance_id)) is not None:
            return known
        row = db.execute(f"SELECT state FROM {table} WHERE id = ?", (instance_id,)).fetchone()
        return None if row is None else Row.from_state(row[0])


def _applied(known: Row | None, record: RecordedEvent) -> Row:
    """The row after an event; the one before is left as it was, since a batch may be rolled back."""
    event = record.event
    instance = evolve(None if known is None else known.instance, event)
    if known is None:
        return Row(instance, Times(record.position, record.time), Fixed.of(instance.request, record.time))
    times = known.times.copy()
    times.updated = record.time
    if isinstance(event, InstanceSpawned):
        times.launched = record.time
    if isinstance(event, InstanceDeleted):
        times.terminated = record.time
    if instance.fault is not None and known.instance.fault != instance.fault:
        times.fault = record.time
    same = instance.request is known.instance.request
    return Row(instance, times, known.fixed if same else Fixed.of(instance.request, times.created))
