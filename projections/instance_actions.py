"""Who asked what of an instance, when, and with which result (Nova's instance action log), kept after its delete."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from domain.identifiers import category_of
from domain.instance.events import (
    InstanceCreateRequested,
    InstanceDeleted,
    InstanceDeleteFailed,
    InstanceDeleteRequested,
    InstanceOutcomeUnknown,
    InstanceRebooted,
    InstanceRebootFailed,
    InstanceRebootRequested,
    InstanceScheduled,
    InstanceScheduleFailed,
    InstanceSpawned,
    InstanceSpawnFailed,
    InstanceStarted,
    InstanceStartFailed,
    InstanceStartRequested,
    InstanceStopFailed,
    InstanceStopped,
    InstanceStopRequested,
)
from domain.recorded import RecordedEvent
from projections.render import precise

# The request that opens an action: its name, and that of the work that answers it (Nova's event names).
_OPENS: dict[type, tuple[str, str | None]] = {
    InstanceCreateRequested: ("create", None),
    InstanceStartRequested: ("start", "compute_start_instance"),
    InstanceStopRequested: ("stop", "compute_stop_instance"),
    InstanceRebootRequested: ("reboot", "compute_reboot_instance"),
    InstanceDeleteRequested: ("delete", "compute_terminate_instance"),
}
_SUCCEEDED = (InstanceSpawned, InstanceStarted, InstanceStopped, InstanceRebooted, InstanceDeleted)
_FAILED = (
    InstanceScheduleFailed,
    InstanceSpawnFailed,
    InstanceStartFailed,
    InstanceStopFailed,
    InstanceRebootFailed,
    InstanceDeleteFailed,
)


class InstanceActions:
    name = "instance_actions"
    form = 1
    tables: Sequence[str] = ("instance_actions", "instance_action_events")

    def create(self, tables: dict[str, str]) -> list[str]:
        actions, events = tables["instance_actions"], tables["instance_action_events"]
        return [
            f"CREATE TABLE {actions} (instance_id TEXT, sequence INTEGER, request_id TEXT NOT NULL, "
            "action TEXT NOT NULL, user_id TEXT, project_id TEXT, start_time TEXT NOT NULL, updated_at TEXT, "
            "message TEXT, owner_project_id TEXT NOT NULL, PRIMARY KEY (instance_id, sequence)) WITHOUT ROWID",
            f"CREATE INDEX {actions}_request ON {actions} (instance_id, request_id)",
            f"CREATE TABLE {events} (instance_id TEXT, action INTEGER, sequence INTEGER, name TEXT NOT NULL, "
            "start_time TEXT NOT NULL, finish_time TEXT, result TEXT, host TEXT, details TEXT, "
            "PRIMARY KEY (instance_id, action, sequence)) WITHOUT ROWID",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        for record in records:
            if category_of(record.stream) == "instance":
                _Entry(db, tables, record).apply()


class _Entry:
    """One event's trace in the log of its instance."""

    def __init__(self, db: sqlite3.Connection, tables: dict[str, str], record: RecordedEvent) -> None:
        self._db = db
        self._actions = tables["instance_actions"]
        self._events = tables["instance_action_events"]
        self._record = record
        self._instance_id = str(record.event.instance_id)
        self._time = precise(record.time)

    def apply(self) -> None:
        event = self._record.event
        if type(event) in _OPENS:
            name, work = _OPENS[type(event)]
            self._open(name)
            if work is not None:
                self._begin(work, self._host())
            return
        if isinstance(event, InstanceScheduled):
            self._begin("conductor_schedule_and_build_instances", None)
            self._finish("Success", None)
            self._begin("compute__do_build_and_run_instance", event.host)
            return
        if isinstance(event, InstanceScheduleFailed):
            self._begin("conductor_schedule_and_build_instances", None)
        if isinstance(event, InstanceDeleted) and self._newest() != "delete":
            self._open("delete")
            self._begin("compute_terminate_instance", self._host())
        if isinstance(event, InstanceOutcomeUnknown):
            self._message(f"outcome unknown: {event.task_state} has waited {event.waited_s} s; its host must say")
        elif isinstance(event, _SUCCEEDED):
            self._finish("Success", None)
        elif isinstance(event, _FAILED):
            self._finish("Error", event.message)
            self._message("Error")

    def _open(self, action: str) -> None:
        cause, event = self._record.cause, self._record.event
        owner = event.project_id if isinstance(event, InstanceCreateRequested) else self._owner()
        self._db.execute(
            f"INSERT INTO {self._actions} VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                self._instance_id,
                self._record.position,
                cause.request_id,
                action,
                cause.user_id,
                cause.project_id,
                self._time,
                self._time,
                owner,
            ),
        )

    def _begin(self, name: str, host: str | None) -> None:
        action, count = self._db.execute(
            f"SELECT a.sequence, (SELECT COUNT(*) FROM {self._events} e WHERE e.instance_id = a.instance_id "
            f"AND e.action = a.sequence) FROM {self._actions} a WHERE a.instance_id = ? ORDER BY a.sequence DESC LIMIT 1",
            (self._instance_id,),
        ).fetchone()
        self._db.execute(
            f"INSERT INTO {self._events} VALUES (?, ?, ?, ?, ?, NULL, NULL, ?, NULL)",
            (self._instance_id, action, count, name, self._time, host),
        )

    def _finish(self, result: str, details: str | None) -> None:
        self._db.execute(
            f"UPDATE {self._events} SET finish_time = ?, result = ?, details = ? WHERE instance_id = ? "
            f"AND finish_time IS NULL AND action = (SELECT MAX(sequence) FROM {self._actions} WHERE instance_id = ?)",
            (self._time, result, details, self._instance_id, self._instance_id),
        )
        self._touch()

    def _message(self, message: str) -> None:
        self._db.execute(
            f"UPDATE {self._actions} SET message = ? WHERE instance_id = ? AND sequence = "
            f"(SELECT MAX(sequence) FROM {self._actions} WHERE instance_id = ?)",
            (message, self._instance_id, self._instance_id),
        )
        self._touch()

    def _touch(self) -> None:
        self._db.execute(
            f"UPDATE {self._actions} SET updated_at = ? WHERE instance_id = ? AND sequence = "
            f"(SELECT MAX(sequence) FROM {self._actions} WHERE instance_id = ?)",
            (self._time, self._instance_id, self._instance_id),
        )

    def _newest(self) -> str | None:
        row = self._db.execute(
            f"SELECT action FROM {self._actions} WHERE instance_id = ? ORDER BY sequence DESC LIMIT 1",
            (self._instance_id,),
        ).fetchone()
        return None if row is None else str(row[0])

    def _owner(self) -> str:
        row = self._db.execute(
            f"SELECT owner_project_id FROM {self._actions} WHERE instance_id = ? LIMIT 1", (self._instance_id,)
        ).fetchone()
        return "" if row is None else str(row[0])

    def _host(self) -> str | None:
        """Where the instance's work was last begun."""
        row = self._db.execute(
            f"SELECT host FROM {self._events} WHERE instance_id = ? AND host IS NOT NULL "
            "ORDER BY action DESC, sequence DESC LIMIT 1",
            (self._instance_id,),
        ).fetchone()
        return None if row is None else row[0]
