"""Flavor list and detail, and who may use the private ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import assert_never
from urllib.parse import quote

import orjson

from domain.flavor import (
    FlavorAccessGranted,
    FlavorAccessRevoked,
    FlavorCreated,
    FlavorDeleted,
    FlavorDescribed,
    FlavorEvent,
    FlavorExtraSpecsSet,
    FlavorSpec,
)
from domain.identifiers import FLAVOR_CATALOG
from domain.recorded import RecordedEvent


class Flavors:
    name = "flavors"
    form = 1
    tables: Sequence[str] = ("flavors", "flavor_access")

    def create(self, tables: dict[str, str]) -> list[str]:
        return [
            f"CREATE TABLE {tables['flavors']} (flavor_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, "
            "name TEXT NOT NULL, memory_mib INTEGER NOT NULL, root_gib INTEGER NOT NULL, vcpus INTEGER NOT NULL, "
            "ephemeral_gib INTEGER NOT NULL, swap_mib INTEGER NOT NULL, rxtx_factor REAL NOT NULL, "
            "is_public INTEGER NOT NULL, disabled INTEGER NOT NULL, description TEXT, extra_specs TEXT NOT NULL, "
            "url_id TEXT NOT NULL) WITHOUT ROWID",
            f"CREATE TABLE {tables['flavor_access']} (flavor_id TEXT, project_id TEXT, "
            "PRIMARY KEY (flavor_id, project_id)) WITHOUT ROWID",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        for record in records:
            if record.stream == FLAVOR_CATALOG:
                _apply(db, tables["flavors"], tables["flavor_access"], record.position, record.event)


def _apply(db: sqlite3.Connection, flavors: str, access: str, position: int, event: FlavorEvent) -> None:
    match event:
        case FlavorCreated():
            db.execute(f"INSERT INTO {flavors} VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", _row(event.flavor, position))
        case FlavorDeleted():
            db.execute(f"DELETE FROM {flavors} WHERE flavor_id = ?", (event.flavor_id,))
            db.execute(f"DELETE FROM {access} WHERE flavor_id = ?", (event.flavor_id,))
        case FlavorDescribed():
            db.execute(
                f"UPDATE {flavors} SET description = ? WHERE flavor_id = ?", (event.description, event.flavor_id)
            )
        case FlavorExtraSpecsSet():
            specs = orjson.dumps(event.extra_specs).decode()
            db.execute(f"UPDATE {flavors} SET extra_specs = ? WHERE flavor_id = ?", (specs, event.flavor_id))
        case FlavorAccessGranted():
            db.execute(f"INSERT OR IGNORE INTO {access} VALUES (?, ?)", (event.flavor_id, event.project_id))
        case FlavorAccessRevoked():
            db.execute(
                f"DELETE FROM {access} WHERE flavor_id = ? AND project_id = ?", (event.flavor_id, event.project_id)
            )
        case _:
            assert_never(event)


def _row(flavor: FlavorSpec, position: int) -> tuple[object, ...]:
    return (
        flavor.flavor_id,
        position,
        flavor.name,
        flavor.memory_mib,
        flavor.root_gib,
        flavor.vcpus,
        flavor.ephemeral_gib,
        flavor.swap_mib,
        flavor.rxtx_factor,
        int(flavor.is_public),
        int(flavor.disabled),
        flavor.description,
        orjson.dumps(flavor.extra_specs).decode(),
        quote(flavor.flavor_id, safe=""),
    )
