"""When each server ran, and how large it was: what use is added up from. Kept for deleted servers too."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from domain.identifiers import category_of
from domain.instance.events import InstanceCreateRequested, InstanceDeleted, InstanceSpawned
from domain.recorded import RecordedEvent
from projections.render import precise


class Usage:
    name = "usage"
    form = 1
    tables: Sequence[str] = ("usage",)

    def create(self, tables: dict[str, str]) -> list[str]:
        table = tables["usage"]
        return [
            f"CREATE TABLE {table} (sequence INTEGER PRIMARY KEY, instance_id TEXT NOT NULL UNIQUE, "
            "project_id TEXT NOT NULL, flavor TEXT NOT NULL, vcpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL, "
            "disk_gib INTEGER NOT NULL, launched_at TEXT, terminated_at TEXT)",
            f"CREATE INDEX {table}_project ON {table} (project_id, terminated_at)",
            f"CREATE INDEX {table}_terminated ON {table} (terminated_at)",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        table = tables["usage"]
        for record in records:
            if category_of(record.stream) != "instance":
                continue
            when = precise(record.time)
            match record.event:
                case InstanceCreateRequested() as asked:
                    flavor = asked.flavor
                    row = (
                        record.position,
                        str(asked.instance_id),
                        asked.project_id,
                        flavor.name,
                        flavor.vcpus,
                        flavor.memory_mib,
                        flavor.root_gib + flavor.ephemeral_gib,
                    )
                    db.execute(f"INSERT INTO {table} VALUES (?,?,?,?,?,?,?,NULL,NULL)", row)
                case InstanceSpawned() as spawned:
                    db.execute(
                        f"UPDATE {table} SET launched_at = ? WHERE instance_id = ?", (when, str(spawned.instance_id))
                    )
                case InstanceDeleted() as gone:
                    db.execute(
                        f"UPDATE {table} SET terminated_at = ? WHERE instance_id = ?", (when, str(gone.instance_id))
                    )
