"""What each project may hold and holds, and what quota classes say. A project without a row has the defaults and holds
nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import orjson

from domain.identifiers import category_of
from domain.quota import Quota, QuotaClassLimitsSet, evolve_quota
from domain.recorded import RecordedEvent
from domain.serialization import from_plain, to_plain


class Quotas:
    name = "quotas"
    form = 2
    tables: Sequence[str] = ("quotas", "quota_class_limits")

    def create(self, tables: dict[str, str]) -> list[str]:
        return [
            f"CREATE TABLE {tables['quotas']} (project_id TEXT PRIMARY KEY, quota TEXT NOT NULL) WITHOUT ROWID",
            f"CREATE TABLE {tables['quota_class_limits']} (class_name TEXT, resource TEXT, quota_limit INTEGER NOT NULL, "
            "PRIMARY KEY (class_name, resource)) WITHOUT ROWID",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        changed: dict[str, Quota] = {}
        for record in records:
            if isinstance(record.event, QuotaClassLimitsSet):
                _class_limits(db, tables["quota_class_limits"], record.event)
            if category_of(record.stream) != "quota":
                continue
            project_id = record.event.project_id
            before = changed.get(project_id) or quota_of(db, tables["quotas"], project_id)
            changed[project_id] = evolve_quota(before, record.event)
        db.executemany(
            f"INSERT OR REPLACE INTO {tables['quotas']} VALUES (?, ?)",
            [(project_id, orjson.dumps(to_plain(quota)).decode()) for project_id, quota in changed.items()],
        )


def _class_limits(db: sqlite3.Connection, table: str, event: QuotaClassLimitsSet) -> None:
    db.executemany(
        f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)",
        [(event.class_name, resource, limit) for resource, limit in event.limits.items()],
    )


def quota_of(db: sqlite3.Connection, table: str, project_id: str) -> Quota | None:
    row = db.execute(f"SELECT quota FROM {table} WHERE project_id = ?", (project_id,)).fetchone()
    return None if row is None else from_plain(Quota, orjson.loads(row[0]))
