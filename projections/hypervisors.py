"""Compute services and their hypervisors: who is up, in which zone, and what is claimed of each. Host aggregates are part of
this view, since a service's zone follows them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from domain.compute_service import (
    ServiceCameUp,
    ServiceDeleted,
    ServiceDisabled,
    ServiceEnabled,
    ServiceForcedDown,
    ServiceForcedDownLifted,
    ServiceRegistered,
    ServiceWentDown,
)
from domain.identifiers import category_of
from domain.recorded import RecordedEvent
from domain.resource_provider import ProviderClaimed, ProviderInventorySet, ProviderReleased
from domain.resources import DISK_GB, MEMORY_MB, VCPU
from projections import host_aggregates
from projections.render import precise


class Hypervisors:
    name = "hypervisors"
    form = 3
    tables: Sequence[str] = ("services", "hypervisors", "claims", *host_aggregates.TABLES)

    def create(self, tables: dict[str, str]) -> list[str]:
        return [
            f"CREATE TABLE {tables['services']} (service_id TEXT PRIMARY KEY, number INTEGER NOT NULL, "
            "host TEXT NOT NULL, zone TEXT NOT NULL, own_zone TEXT NOT NULL, up INTEGER NOT NULL, enabled INTEGER NOT NULL, "
            "disabled_reason TEXT, forced_down INTEGER NOT NULL, updated_at TEXT NOT NULL) WITHOUT ROWID",
            f"CREATE TABLE {tables['hypervisors']} (node_id TEXT PRIMARY KEY, number INTEGER NOT NULL, "
            "service_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, version INTEGER NOT NULL, "
            "host_ip TEXT NOT NULL, cpu_info TEXT NOT NULL, vcpus INTEGER NOT NULL, memory_mib INTEGER NOT NULL, "
            "disk_gib INTEGER NOT NULL, vcpus_used INTEGER NOT NULL, memory_mib_used INTEGER NOT NULL, "
            "disk_gib_used INTEGER NOT NULL, reserved_memory_mib INTEGER NOT NULL, running INTEGER NOT NULL, "
            "booted_at_s INTEGER) WITHOUT ROWID",
            f"CREATE TABLE {tables['claims']} (node_id TEXT, consumer_id TEXT, vcpus INTEGER NOT NULL, "
            "memory_mib INTEGER NOT NULL, disk_gib INTEGER NOT NULL, PRIMARY KEY (node_id, consumer_id)) WITHOUT ROWID",
            *host_aggregates.create(tables),
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        for record in records:
            match category_of(record.stream):
                case "service":
                    _service(db, tables, record)
                case "provider":
                    _provider(db, tables["hypervisors"], tables["claims"], record)
                case "host_aggregate":
                    host_aggregates.apply(db, tables, record)


def _service(db: sqlite3.Connection, tables: dict[str, str], record: RecordedEvent) -> None:
    services, event = tables["services"], record.event
    service_id = str(event.service_id)
    match event:
        case ServiceRegistered():
            _registered(db, tables, event)
        case ServiceCameUp():
            _set(db, services, service_id, "up", 1)
        case ServiceWentDown():
            _set(db, services, service_id, "up", 0)
        case ServiceEnabled():
            _set(db, services, service_id, "enabled", 1)
            _set(db, services, service_id, "disabled_reason", None)
        case ServiceDisabled():
            _set(db, services, service_id, "enabled", 0)
            _set(db, services, service_id, "disabled_reason", event.reason)
        case ServiceForcedDown():
            _set(db, services, service_id, "forced_down", 1)
        case ServiceForcedDownLifted():
            _set(db, services, service_id, "forced_down", 0)
        case ServiceDeleted():
            db.execute(f"DELETE FROM {services} WHERE service_id = ?", (service_id,))
            db.execute(f"DELETE FROM {tables['hypervisors']} WHERE service_id = ?", (service_id,))
    _set(db, services, service_id, "updated_at", precise(record.time))


def _registered(db: sqlite3.Connection, tables: dict[str, str], event: ServiceRegistered) -> None:
    services, hypervisors = tables["services"], tables["hypervisors"]
    service_id, node_id = str(event.service_id), str(event.node_id)
    db.execute(
        f"INSERT INTO {services} VALUES (?, (SELECT COALESCE(MAX(number), 0) + 1 FROM {services}), ?, ?, ?, 0, 1, NULL, "
        "0, '') ON CONFLICT (service_id) DO UPDATE SET own_zone = excluded.own_zone",
        (service_id, event.host, event.availability_zone, event.availability_zone),
    )
    host_aggregates.set_zones(db, tables, service_id)
    db.execute(
        f"INSERT INTO {hypervisors} VALUES (?, (SELECT COALESCE(MAX(number), 0) + 1 FROM {hypervisors}), ?, ?, ?, ?, "
        "?, ?, 0, 0, 0, 0, 0, 0, 0, 0, ?) ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, "
        "type = excluded.type, version = excluded.version, host_ip = excluded.host_ip, cpu_info = excluded.cpu_info, "
        "booted_at_s = excluded.booted_at_s",
        (
            node_id,
            service_id,
            event.hypervisor_hostname,
            event.hypervisor_type,
            event.hypervisor_version,
            event.host_ip,
            event.cpu_info,
            event.booted_at_s,
        ),
    )


def _provider(db: sqlite3.Connection, hypervisors: str, claims: str, record: RecordedEvent) -> None:
    match record.event:
        case ProviderInventorySet() as event:
            have = event.inventories
            memory = have.get(MEMORY_MB)
            db.execute(
                f"UPDATE {hypervisors} SET vcpus = ?, memory_mib = ?, disk_gib = ?, reserved_memory_mib = ? "
                "WHERE node_id = ?",
                (
                    have[VCPU].total if VCPU in have else 0,
                    memory.total if memory else 0,
                    have[DISK_GB].total if DISK_GB in have else 0,
                    memory.reserved if memory else 0,
                    str(event.node_id),
                ),
            )
        case ProviderClaimed() as event:
            for amounts in event.amounts.values():
                used = tuple(amounts.get(name, 0) for name in (VCPU, MEMORY_MB, DISK_GB))
                db.execute(
                    f"INSERT INTO {claims} VALUES (?, ?, ?, ?, ?)",
                    (str(event.node_id), str(event.consumer_id), *used),
                )
                _use(db, hypervisors, str(event.node_id), used, 1)
        case ProviderReleased() as event:
            key = (str(event.node_id), str(event.consumer_id))
            row = db.execute(
                f"SELECT vcpus, memory_mib, disk_gib FROM {claims} WHERE node_id = ? AND consumer_id = ?", key
            ).fetchone()
            db.execute(f"DELETE FROM {claims} WHERE node_id = ? AND consumer_id = ?", key)
            _use(db, hypervisors, key[0], row, -1)


def _use(db: sqlite3.Connection, hypervisors: str, node_id: str, used: tuple[int, ...], sign: int) -> None:
    db.execute(
        f"UPDATE {hypervisors} SET vcpus_used = vcpus_used + ?, memory_mib_used = memory_mib_used + ?, "
        "disk_gib_used = disk_gib_used + ?, running = running + ? WHERE node_id = ?",
        (*(sign * amount for amount in used), sign, node_id),
    )


def _set(db: sqlite3.Connection, services: str, service_id: str, column: str, value: object) -> None:
    db.execute(f"UPDATE {services} SET {column} = ? WHERE service_id = ?", (value, service_id))
