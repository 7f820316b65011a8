"""Host aggregates, and the zone of each service: what an aggregate says of its host, else what it registered."""

from __future__ import annotations

import sqlite3
from typing import assert_never

import orjson

from domain.host_aggregate import (
    ZONE,
    HostAggregateCreated,
    HostAggregateDeleted,
    HostAggregateEvent,
    HostAggregateHostAdded,
    HostAggregateHostRemoved,
    HostAggregateMetadataSet,
    HostAggregateRenamed,
)
from domain.recorded import RecordedEvent
from projections.render import precise

TABLES = ("host_aggregates", "aggregate_hosts")


def create(tables: dict[str, str]) -> list[str]:
    return [
        f"CREATE TABLE {tables['host_aggregates']} (aggregate_id INTEGER PRIMARY KEY, uuid TEXT NOT NULL, "
        "name TEXT NOT NULL, zone TEXT, metadata TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT)",
        f"CREATE TABLE {tables['aggregate_hosts']} (aggregate_id INTEGER, host TEXT, sequence INTEGER NOT NULL, "
        "PRIMARY KEY (aggregate_id, host)) WITHOUT ROWID",  # the key's columns first: else SQLite's check finds NULLs
    ]


def apply(db: sqlite3.Connection, tables: dict[str, str], record: RecordedEvent) -> None:
    aggregates, hosts = tables["host_aggregates"], tables["aggregate_hosts"]
    event: HostAggregateEvent = record.event
    match event:
        case HostAggregateCreated():
            zone, metadata = event.metadata.get(ZONE), orjson.dumps(event.metadata).decode()
            row = (event.aggregate_id, str(event.aggregate_uuid), event.name, zone, metadata, precise(record.time))
            db.execute(f"INSERT INTO {aggregates} VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
        case HostAggregateRenamed():
            db.execute(f"UPDATE {aggregates} SET name = ? WHERE aggregate_id = ?", (event.name, event.aggregate_id))
        case HostAggregateMetadataSet():
            db.execute(
                f"UPDATE {aggregates} SET zone = ?, metadata = ? WHERE aggregate_id = ?",
                (event.metadata.get(ZONE), orjson.dumps(event.metadata).decode(), event.aggregate_id),
            )
        case HostAggregateHostAdded():
            db.execute(f"INSERT INTO {hosts} VALUES (?, ?, ?)", (event.aggregate_id, event.host, record.position))
        case HostAggregateHostRemoved():
            db.execute(f"DELETE FROM {hosts} WHERE aggregate_id = ? AND host = ?", (event.aggregate_id, event.host))
        case HostAggregateDeleted():
            db.execute(f"DELETE FROM {aggregates} WHERE aggregate_id = ?", (event.aggregate_id,))
        case _:
            assert_never(event)
    if not isinstance(event, HostAggregateCreated):
        when = precise(record.time)
        db.execute(f"UPDATE {aggregates} SET updated_at = ? WHERE aggregate_id = ?", (when, event.aggregate_id))
    set_zones(db, tables)


def set_zones(db: sqlite3.Connection, tables: dict[str, str], service_id: str | None = None) -> None:
    """Of one service, or of every one: aggregates change seldom."""
    of_aggregate = (
        f"SELECT a.zone FROM {tables['aggregate_hosts']} h JOIN {tables['host_aggregates']} a USING (aggregate_id) "
        "WHERE h.host = s.host AND a.zone IS NOT NULL ORDER BY a.aggregate_id LIMIT 1"
    )
    db.execute(
        f"UPDATE {tables['services']} AS s SET zone = COALESCE(({of_aggregate}), own_zone) "
        "WHERE ?1 = '' OR service_id = ?1",
        (service_id or "",),
    )
