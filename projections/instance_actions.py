"""Who asked what of an instance, when, and with which result (Nova's instance action log), kept after its delete."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.identifiers import category_of
from domain.instance.attributes import InstanceLocked, InstanceUnlocked
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
    InstanceStateReset,
    InstanceStopFailed,
    InstanceStopped,
    InstanceStopRequested,
)
from domain.instance.password import (
    InstancePasswordChanged,
    InstancePasswordChangeFailed,
    InstancePasswordChangeRequested,
)
from domain.instance.suspension import (
    InstancePaused,
    InstancePauseFailed,
    InstancePauseRequested,
    InstanceResumed,
    InstanceResumeFailed,
    InstanceResumeRequested,
    InstanceSuspended,
    InstanceSuspendFailed,
    InstanceSuspendRequested,
    InstanceUnpaused,
    InstanceUnpauseFailed,
    InstanceUnpauseRequested,
)
from domain.recorded import RecordedEvent
from projections.render import precise

# The request that opens an action: its name, and that of the work that answers it (Nova's event names).
_OPENS: dict[type, tuple[str, str | None]] = {
    InstanceCreateRequested: ("create", None),
    InstanceStartRequested: ("start", "compute_start_instance"),
    InstanceStopRequested: ("stop", "compute_stop_instance"),
    InstanceRebootRequested: ("reboot", "compute_reboot_instance"),
    InstancePauseRequested: ("pause", "compute_pause_instance"),
    InstanceUnpauseRequested: ("unpause", "compute_unpause_instance"),
    InstanceSuspendRequested: ("suspend", "compute_suspend_instance"),
    InstanceResumeRequested: ("resume", "compute_resume_instance"),
    InstancePasswordChangeRequested: ("changePassword", "compute_set_admin_password"),
    InstanceDeleteRequested: ("delete", "compute_terminate_instance"),
}
# What is done as it is asked for, whatever else is at work: its action, and the name of its work if it has one.
_AT_ONCE: dict[type, tuple[str, str | None]] = {
    InstanceLocked: ("lock", "api_lock"),
    InstanceUnlocked: ("unlock", "api_unlock"),
    InstanceStateReset: ("resetState", None),
}
_SUCCEEDED = (
    InstanceSpawned,
    InstanceStarted,
    InstanceStopped,
    InstanceRebooted,
    InstancePaused,
    InstanceUnpaused,
    InstanceSuspended,
    InstanceResumed,
    InstancePasswordChanged,
    InstanceDeleted,
)
_FAILED = (
    InstanceScheduleFailed,
    InstanceSpawnFailed,
    InstanceStartFailed,
    InstanceStopFailed,
    InstanceRebootFailed,
    InstancePauseFailed,
    InstanceUnpauseFailed,
    InstanceSuspendFailed,
    InstanceResumeFailed,
    InstancePasswordChangeFailed,
    InstanceDeleteFailed,
)

_NOT_AT_WORK = ", ".join(f"'{name}'" for name, _ in _AT_ONCE.values())
REMEMBERED = 2048


@dataclass(slots=True)
class _Event:
    """One piece of work under an action."""

    name: str
    start_time: str | None
    finish_time: str | None = None
    result: str | None = None
    host: str | None = None
    details: str | None = None


@dataclass(slots=True)
class _Action:
    """The newest action of an instance that its host works at, with its events; or one done at once."""

    sequence: int
    request_id: str
    action: str
    user_id: str | None
    project_id: str | None
    start_time: str | None
    updated_at: str | None
    message: str | None
    owner: str  # the project of the instance
    events: list[_Event] = field(default_factory=list)
    host: str | None = None  # where the instance's work was last begun

    def begin(self, name: str, time: str | None, host: str | None) -> None:
        self.events.append(_Event(name, time, host=host))
        self.host = host or self.host

    def finish(self, result: str, time: str | None, details: str | None = None) -> None:
        for event in self.events:
            if event.finish_time is None:
                event.finish_time, event.result, event.details = time, result, details
        self.updated_at = time

    def tell(self, message: str, time: str | None) -> None:
        self.message, self.updated_at = message, time


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
        changed: dict[tuple[str, int], _Action] = {}
        for record in records:
            if category_of(record.stream) != "instance":
                continue
            instance_id = str(record.event.instance_id)
            before = self._newest.pop(instance_id, None) or _newest(db, tables, instance_id)
            if before is not None:
                changed[instance_id, before.sequence] = before
            if type(record.event) in _AT_ONCE:
                assert before is not None, "an instance's first event opens its first action"
                changed[instance_id, record.position] = _done_at_once(before, record)
                self._newest[instance_id] = before
                continue
            action = _applied(before, record)
            changed[instance_id, action.sequence] = action
            self._newest[instance_id] = action
        _write(db, tables, changed)
        while len(self._newest) > REMEMBERED:
            self._newest.popitem(last=False)


def _applied(before: _Action | None, record: RecordedEvent) -> _Action:
    """The instance's newest action after an event: the one before, changed in place, or a new one."""
    event, time = record.event, precise(record.time)
    opens = _OPENS.get(type(event))
    if opens is not None or (isinstance(event, InstanceDeleted) and before is not None and before.action != "delete"):
        name, work = opens or _OPENS[InstanceDeleteRequested]
        before = _opened(name, before, record)
        if work is not None:
            before.begin(work, time, before.host)
        if opens is not None:
            return before
    assert before is not None, "an instance's first event opens its first action"
    if isinstance(event, InstanceScheduled):
        before.begin("conductor_schedule_and_build_instances", time, None)
        before.finish("Success", time)
        before.begin("compute__do_build_and_run_instance", time, event.host)
    elif isinstance(event, InstanceOutcomeUnknown):
        before.tell(f"outcome unknown: {event.task_state} has waited {event.waited_s} s; its host must say", time)
    elif isinstance(event, _SUCCEEDED):
        before.finish("Success", time)
    elif isinstance(event, _FAILED):
        if isinstance(event, InstanceScheduleFailed):
            before.begin("conductor_schedule_and_build_instances", time, None)
        before.finish("Error", time, event.message)
        before.tell("Error", time)
    return before


def _done_at_once(before: _Action, record: RecordedEvent) -> _Action:
    name, work = _AT_ONCE[type(record.event)]
    action = _opened(name, before, record)
    if work is not None:
        action.begin(work, precise(record.time), None)
        action.finish("Success", precise(record.time))
    return action


def _opened(name: str, before: _Action | None, record: RecordedEvent) -> _Action:
    event, cause, time = record.event, record.cause, precise(record.time)
    owner = event.project_id if isinstance(event, InstanceCreateRequested) or before is None else before.owner
    return _Action(
        sequence=record.position,
        request_id=cause.request_id,
        action=name,
        user_id=cause.user_id,
        project_id=cause.project_id,
        start_time=time,
        updated_at=time,
        message=None,
        owner=owner,
        host=None if before is None else before.host,
    )


def _newest(db: sqlite3.Connection, tables: dict[str, str], instance_id: str) -> _Action | None:
    row = db.execute(
        "SELECT sequence, request_id, action, user_id, project_id, start_time, updated_at, message, owner_project_id "
        f"FROM {tables['instance_actions']} WHERE instance_id = ? AND action NOT IN ({_NOT_AT_WORK}) "
        "ORDER BY sequence DESC LIMIT 1",
        (instance_id,),
    ).fetchone()
    if row is None:
        return None
    events = tables["instance_action_events"]
    of_action = db.execute(
        f"SELECT name, start_time, finish_time, result, host, details FROM {events} "
        "WHERE instance_id = ? AND action = ? ORDER BY sequence",
        (instance_id, row[0]),
    ).fetchall()
    host = db.execute(
        f"SELECT host FROM {events} WHERE instance_id = ? AND host IS NOT NULL ORDER BY action DESC, sequence DESC "
        "LIMIT 1",
        (instance_id,),
    ).fetchone()
    newest = _Action(*row)
    newest.events = [_Event(*event) for event in of_action]
    newest.host = None if host is None else host[0]
    return newest


def _write(db: sqlite3.Connection, tables: dict[str, str], changed: dict[tuple[str, int], _Action]) -> None:
    """Each action and its events once, however often a batch changed them."""
    db.executemany(
        f"INSERT OR REPLACE INTO {tables['instance_actions']} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                instance_id,
                action.sequence,
                action.request_id,
                action.action,
                action.user_id,
                action.project_id,
                action.start_time,
                action.updated_at,
                action.message,
                action.owner,
            )
            for (instance_id, _), action in changed.items()
        ],
    )
    db.executemany(
        f"INSERT OR REPLACE INTO {tables['instance_action_events']} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                instance_id,
                action.sequence,
                number,
                event.name,
                event.start_time,
                event.finish_time,
                event.result,
                event.host,
                event.details,
            )
            for (instance_id, _), action in changed.items()
            for number, event in enumerate(action.events)
        ],
    )
