"""Who asked what of an instance, when, and with which result (Nova's instance action log), kept after its delete."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

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


REMEMBERED = 2048


@dataclass(slots=True)
class _Action:
    """The newest action of an instance, and how far its events go."""

    sequence: int
    action: str
    events: int
    unfinished: bool
    owner: str  # the project of the instance
    host: str | None = None  # where its work was last begun


class InstanceActions:
    name = "instance_actions"
    form = 1
    tables: Sequence[str] = ("instance_actions", "instance_action_events")

    def __init__(self) -> None:
        self._newest: OrderedDict[str, _Action] = OrderedDict()

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
        self._newest.clear()

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        try:
            for record in records:
                if category_of(record.stream) == "instance":
                    instance_id = str(record.event.instance_id)
                    entry = _Entry(db, tables, record, self._newest_of(db, tables, instance_id))
                    self._newest[instance_id] = entry.apply()
        except BaseException:
            self._newest.clear()  # the transaction takes the rows back
            raise
        while len(self._newest) > REMEMBERED:
            self._newest.popitem(last=False)

    def _newest_of(self, db: sqlite3.Connection, tables: dict[str, str], instance_id: str) -> _Action | None:
        known = self._newest.pop(instance_id, None)
        if known is not None:
            return known
        row = db.execute(
            f"SELECT sequence, action, owner_project_id FROM {tables['instance_actions']} WHERE instance_id = ? "
            "ORDER BY sequence DESC LIMIT 1",
            (instance_id,),
        ).fetchone()
        if row is None:
            return None
        events = tables["instance_action_events"]
        count, unfinished = db.execute(
            f"SELECT COUNT(*), COALESCE(SUM(finish_time IS NULL), 0) FROM {events} WHERE instance_id = ? AND action = ?",
            (instance_id, row[0]),
        ).fetchone()
        host = db.execute(
            f"SELECT host FROM {events} WHERE instance_id = ? AND host IS NOT NULL ORDER BY action DESC, sequence DESC "
            "LIMIT 1",
            (instance_id,),
        ).fetchone()
        return _Action(row[0], row[1], count, bool(unfinished), row[2], None if host is None else host[0])


class _Entry:
    """One event's trace in the log of its instance."""

    def __init__(
        self, db: sqlite3.Connection, tables: dict[str, str], record: RecordedEvent, newest: _Action | None
    ) -> None:
        self._db = db
        self._actions = tables["instance_actions"]
        self._events = tables["instance_action_events"]
        self._record = record
        self._instance_id = str(record.event.instance_id)
        self._time = precise(record.time)
        self._newest = newest

    def apply(self) -> _Action:
        """Write it, and tell what the instance's newest action is now."""
        event = self._record.event
        opens = _OPENS.get(type(event))
        if opens is not None:
            self._open(opens[0])
            if opens[1] is not None:
                self._begin(opens[1], self.newest.host)
        elif isinstance(event, InstanceScheduled):
            self._begin("conductor_schedule_and_build_instances", None)
            self._finish("Success", None)
            self._begin("compute__do_build_and_run_instance", event.host)
        elif isinstance(event, InstanceOutcomeUnknown):
            self._message(f"outcome unknown: {event.task_state} has waited {event.waited_s} s; its host must say")
        elif isinstance(event, _SUCCEEDED):
            if isinstance(event, InstanceDeleted) and self.newest.action != "delete":
                self._open("delete")
                self._begin("compute_terminate_instance", self.newest.host)
            self._finish("Success", None)
        elif isinstance(event, _FAILED):
            if isinstance(event, InstanceScheduleFailed):
                self._begin("conductor_schedule_and_build_instances", None)
            self._finish("Error", event.message)
            self._message("Error")
        return self.newest

    @property
    def newest(self) -> _Action:
        assert self._newest is not None, "an instance's first event opens its first action"
        return self._newest

    def _open(self, action: str) -> None:
        cause, event, before = self._record.cause, self._record.event, self._newest
        owner = event.project_id if isinstance(event, InstanceCreateRequested) else self.newest.owner
        sequence = self._record.position
        host = None if before is None else before.host
        self._newest = _Action(sequence, action, events=0, unfinished=False, owner=owner, host=host)
        self._db.execute(
            f"INSERT INTO {self._actions} VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                self._instance_id,
                sequence,
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
        newest = self.newest
        self._db.execute(
            f"INSERT INTO {self._events} VALUES (?, ?, ?, ?, ?, NULL, NULL, ?, NULL)",
            (self._instance_id, newest.sequence, newest.events, name, self._time, host),
        )
        newest.events += 1
        newest.unfinished = True
        newest.host = host or newest.host

    def _finish(self, result: str, details: str | None) -> None:
        newest = self.newest
        if newest.unfinished:
            self._db.execute(
                f"UPDATE {self._events} SET finish_time = ?, result = ?, details = ? "
                "WHERE instance_id = ? AND action = ? AND finish_time IS NULL",
                (self._time, result, details, self._instance_id, newest.sequence),
            )
            newest.unfinished = False
        self._touch()

    def _message(self, message: str) -> None:
        self._db.execute(
            f"UPDATE {self._actions} SET message = ? WHERE instance_id = ? AND sequence = ?",
            (message, self._instance_id, self.newest.sequence),
        )
        self._touch()

    def _touch(self) -> None:
        self._db.execute(
            f"UPDATE {self._actions} SET updated_at = ? WHERE instance_id = ? AND sequence = ?",
            (self._time, self._instance_id, self.newest.sequence),
        )
