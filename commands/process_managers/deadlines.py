"""Nothing hangs: hosts that fall silent are down, and requests past their deadline are said to be of unknown outcome.

Neither is a guess. A silent host is only unreachable, until it is heard of again; a missed deadline changes no state, and
the host's next report still settles the request. A delete that waits for a host that went down is finished for its user;
the claim stays.

What passes is counted, not read from a clock that may be set: of a request the clock says once how old it is. Where that
clock is ahead of the one that recorded it, its outcome is called unknown early, which settles nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid5

from commands.appender import Appender
from commands.command import Ask, Move, Unit
from commands.compute_service import MarkServiceDown, MarkServiceUp
from commands.event_store import EventStore
from commands.host_keys import HostKeys
from commands.instance.delete import DeleteInstance
from commands.instance.outcome import MarkOverdue
from commands.log.consumer import Handled
from commands.log.port import Log, LogUnavailable
from commands.log.reports import Beat
from commands.process_managers.heartbeats import Heartbeats
from commands.records import Records
from commands.snapshots import Snapshots
from domain.compute_service import ServiceCameUp, ServiceDeleted, ServiceWentDown
from domain.identifiers import InstanceId, RequestId, ServiceId
from domain.instance.events import (
    BESIDE,
    InstanceCreateRequested,
    InstanceDeleteRequested,
    InstanceRebootRequested,
    InstanceScheduled,
    InstanceSpawnFailed,
    InstanceStartRequested,
    InstanceStopRequested,
)
from domain.instance.password import InstancePasswordChangeRequested
from domain.instance.suspension import (
    InstancePauseRequested,
    InstanceResumeRequested,
    InstanceSuspendRequested,
    InstanceUnpauseRequested,
)
from domain.recorded import Cause, RecordedEvent

log = logging.getLogger(__name__)

BATCH = 500
PERSIST_EVERY = 1000
SERVICE_DOWN_AFTER_S = 60  # Nova's [DEFAULT] service_down_time
CHECK_EVERY_S = 1.0
_COMMANDS = UUID("0e0f6c5e-6d5c-4d7e-8f58-9c6d1f0b7a03")

# How long a request may take, in seconds, before its outcome is called unknown.
DEADLINES_S: dict[type, int] = {
    InstanceCreateRequested: 300,
    InstanceSpawnFailed: 300,
    InstanceScheduled: 1800,
    InstanceStartRequested: 300,
    InstanceStopRequested: 300,
    InstanceRebootRequested: 600,
    InstancePauseRequested: 60,
    InstanceUnpauseRequested: 60,
    InstanceSuspendRequested: 1800,  # all its memory is written
    InstanceResumeRequested: 1800,
    InstancePasswordChangeRequested: 60,
    InstanceDeleteRequested: 300,
}


@dataclass(frozen=True, slots=True)
class _Pending:
    position: int
    revision: int
    since: float  # in seconds that have passed, as is the deadline
    deadline: float
    deleting: bool
    cause: Cause


@dataclass(frozen=True, slots=True)
class _Session:
    """A host's newest session, up or silent."""

    epoch: int
    id: str  # of the agent's start that opened it; empty: not known
    up: bool
    version: int  # of the service's stream when it became so

    def is_of(self, beat: Beat) -> bool:
        """Whether a beat is of this session. One of a later session counts once that is recorded: until then it may be
        one that is refused, or nobody's, and its agent takes no orders."""
        return beat.epoch == self.epoch and (beat.session in ("", self.id) or not self.id)


class DeadlinesManager:
    name = "deadlines"

    def __init__(
        self,
        the_log: Log,
        appender: Appender,
        store: EventStore,
        records: Records,
        snapshots: Snapshots,
        clock: Callable[[], datetime],
        service_down_after_s: int = SERVICE_DOWN_AFTER_S,
        keys: HostKeys | None = None,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = the_log
        self._appender = appender
        self._store = store
        self._records = records
        self._snapshots = snapshots
        self._clock = clock
        self._elapsed = elapsed
        self._service_down_after_s = service_down_after_s
        self._keys = keys
        self.position = -1
        self.handled: Handled | None = None
        self._persisted = 0
        self._pending: dict[InstanceId, _Pending] = {}
        self._sessions: dict[ServiceId, _Session] = {}
        self._heard: dict[ServiceId, float] = {}
        self._deaf = False  # the log did not answer when it was last asked
        self._heartbeats: Heartbeats | None = None
        self._next_check = elapsed()

    def wait(self, timeout_s: float) -> None:
        self._log.wait_for_events(self.position, min(timeout_s, CHECK_EVERY_S))

    def step(self) -> bool:
        if self.position < 0:
            self._start()
        records = self._log.events(self.position, BATCH)
        for record in records:
            self._note(record)
        if records:
            self.position = records[-1].position
            self._persist()
            self.handled = Handled(len(records), records[-1].time)
        now = self._elapsed()
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY_S
            self._check(now)
        return bool(records)

    @property
    def waiting(self) -> int:
        """How many requests have yet to have an outcome."""
        return len(self._pending)

    def _start(self) -> None:
        """Everything older than the oldest pending request is settled: the position is kept just before that."""
        self._persisted = self.position = self._store.position(self.name)
        now = self._elapsed()
        for stream in self._store.streams("service"):
            folded = self._snapshots.load(self._store, stream, self._records)
            service = folded.state
            if not service.deleted:
                self._sessions[service.service_id] = _Session(
                    service.epoch, service.session, service.up, folded.version
                )
                self._heard[service.service_id] = now  # it has the whole time to be heard of after a start of ours
        self._heartbeats = Heartbeats(self._log, self._keys, self._of_present)

    def _note(self, record: RecordedEvent) -> None:
        event = record.event
        if isinstance(event, ServiceCameUp | ServiceWentDown | ServiceDeleted):
            self._note_service(record.version, event)
            return
        if isinstance(event, BESIDE):
            return
        if not record.stream.startswith("instance:"):
            return
        instance_id = event.instance_id
        deadline_s = DEADLINES_S.get(type(event))
        if deadline_s is None:
            self._pending.pop(instance_id, None)
            return
        since = self._elapsed() - max(0.0, (self._clock() - record.time).total_seconds())
        self._pending[instance_id] = _Pending(
            position=record.position,
            revision=record.version,
            since=since,
            deadline=since + deadline_s,
            deleting=isinstance(event, InstanceDeleteRequested),
            cause=record.cause,
        )

    def _note_service(self, version: int, event: ServiceCameUp | ServiceWentDown | ServiceDeleted) -> None:
        session = self._sessions.get(event.service_id)
        if session is not None and version <= session.version:
            return  # known from the start
        match event:
            case ServiceCameUp():
                self._sessions[event.service_id] = _Session(event.epoch, event.session, True, version)
                self._heard[event.service_id] = self._elapsed()
            case ServiceWentDown():
                if session is not None:
                    self._sessions[event.service_id] = replace(session, up=False, version=version)
            case ServiceDeleted():
                self._sessions.pop(event.service_id, None)

    def _persist(self) -> None:
        settled = min((p.position for p in self._pending.values()), default=self.position + 1) - 1
        if settled - self._persisted >= PERSIST_EVERY:
            move = Move(consumer=self.name, old=self._persisted, new=settled)
            if self._appender.execute(Unit(asks=(), move=move)).moved:
                self._persisted = settled

    def _check(self, now: float) -> None:
        asks = self._listen(now)
        for service_id in self._silent(now):
            session = self._sessions[service_id]
            down = MarkServiceDown(service_id=service_id, epoch=session.epoch, reason="no heartbeat")
            asks.append(self._ask(down, f"down/{service_id}/{session.version}"))
        for instance_id, pending in list(self._pending.items()):
            if pending.deadline > now:
                continue
            waited_s = int(now - pending.since)
            overdue = MarkOverdue(instance_id=instance_id, task_revision=pending.revision, waited_s=waited_s)
            asks.append(self._ask(overdue, f"overdue/{instance_id}/{pending.revision}", pending))
            if pending.deleting:
                # With its host away the delete is finished for its user; where the host is up it makes no new work.
                again = DeleteInstance(instance_id=instance_id, project_id=None)
                asks.append(self._ask(again, f"delete/{instance_id}/{pending.revision}/{waited_s}", pending))
            self._pending[instance_id] = replace(pending, deadline=now + self._service_down_after_s)
        if asks:
            self._appender.execute(Unit(asks=asks))

    def _silent(self, now: float) -> list[ServiceId]:
        """The hosts that count as up and were not heard of for too long, though they could have been."""
        silent = [
            service_id
            for service_id, session in self._sessions.items()
            if session.up and now - self._heard.get(service_id, now) > self._service_down_after_s
        ]
        if not silent and not self._deaf:
            return []
        assert self._heartbeats is not None
        try:
            heard_all = self._heartbeats.heard_all()
        except LogUnavailable as unavailable:
            if not self._deaf:
                log.warning("no host can be heard, so none counts as down: %s", unavailable)
            self._deaf = True
            return []
        if self._deaf:
            self._deaf = False
            self._heard = dict.fromkeys(self._sessions, now)  # each has the whole time again
            return []
        return silent if heard_all else []

    def _of_present(self, beat: Beat) -> bool:
        session = self._sessions.get(beat.service_id)
        return session is not None and session.is_of(beat)

    def _listen(self, now: float) -> list[Ask]:
        """Take in the heartbeats; a host that was down and beats is up again."""
        asks = []
        assert self._heartbeats is not None
        for beat in self._heartbeats.listen(BATCH):
            service_id, epoch = beat.service_id, beat.epoch
            session = self._sessions.get(service_id)
            if session is None:
                continue  # it has yet to say what it is
            self._heard[service_id] = now
            if not session.up and epoch == session.epoch:
                up = MarkServiceUp(service_id=service_id, epoch=epoch)
                asks.append(self._ask(up, f"up/{service_id}/{session.version}"))
        return asks

    def _ask(self, command: object, name: str, pending: _Pending | None = None) -> Ask:
        command_id = uuid5(_COMMANDS, name)
        if pending is None:
            cause = Cause(command_id=command_id, request_id=RequestId(f"req-{command_id}"))
        else:
            cause = Cause(
                command_id=command_id,
                request_id=pending.cause.request_id,
                user_id=pending.cause.user_id,
                project_id=pending.cause.project_id,
                causation=pending.position,
            )
        return Ask(command=command, cause=cause)
