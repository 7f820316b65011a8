"""From a create to a claimed host: plan its networks, choose, claim, try alternates, give up with a reason.

The claim is re-checked inside the append; where another was faster, the columns are read again and the choice repeated.
A guest that failed to start on one host is tried on others, up to three in all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from commands.appender import Appender
from commands.command import Accepted, Ask, Move, Unit
from commands.event_store import EventStore
from commands.instance.schedule import FailScheduling, ScheduleInstance, amounts_of
from commands.log.consumer import Handled
from commands.log.port import Log
from commands.neighbours.networks import Networks
from commands.records import Records
from commands.scheduling.columns import CATEGORIES, Columns
from commands.scheduling.decide import Placed, choose, no_valid_host
from commands.scheduling.group_members import GroupMembers
from commands.snapshots import Snapshots
from commands.states import Folded
from domain.errors import ClaimDoesNotFit, DomainError
from domain.identifiers import HOST_AGGREGATES, InstanceId, StreamId, instance_stream, provider_stream, service_stream
from domain.instance.events import AttachedInterface, InstanceCreateRequested, InstanceSpawnFailed
from domain.instance.state import Instance, TaskState, evolve
from domain.recorded import Cause, RecordedEvent
from domain.scheduling.request_spec import RequestSpec

log = logging.getLogger(__name__)

BATCH = 500
PERSIST_EVERY = 1000  # events without effect between two writes of the position
MAX_ATTEMPTS = 3  # Nova's [scheduler] max_attempts
_COMMANDS = UUID("5b1d4b34-6f0a-4a53-9c4f-2a3d3f3f1d10")


@dataclass(frozen=True, slots=True)
class _Waiting:
    instance: Instance
    cause: Cause
    last_failure: str | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    placed: Placed
    interfaces: tuple[AttachedInterface, ...] = ()
    refused: str | None = None  # why there can be none, other than for want of a host


class BuildManager:
    name = "build"

    def __init__(
        self,
        the_log: Log,
        appender: Appender,
        store: EventStore,
        records: Records,
        snapshots: Snapshots,
        networks: Networks,
    ) -> None:
        self._log = the_log
        self._appender = appender
        self._store = store
        self._records = records
        self._snapshots = snapshots
        self._networks = networks
        self._columns: Columns | None = None
        self._persisted = 0
        self.position = 0
        self.handled: Handled | None = None

    def wait(self, timeout_s: float) -> None:
        self._log.wait_for_events(self.position, timeout_s)

    def step(self) -> bool:
        columns = self._load() if self._columns is None else self._columns
        records = self._log.events(self.position, BATCH)
        if not records:
            return False
        columns.apply(records)
        waiting = self._waiting(records)
        new = records[-1].position
        if waiting:
            self._place(columns, waiting, new)
        elif new - self._persisted >= PERSIST_EVERY:
            self._appender.execute(Unit(asks=(), move=Move(consumer=self.name, old=self._persisted, new=new)))
            self._persisted = new
        self.position = new
        self.handled = Handled(len(records), records[-1].time)
        return True

    def _load(self) -> Columns:
        self._persisted = self.position = self._store.position(self.name)
        columns = Columns()
        for category in CATEGORIES:
            columns.load(self._store.streams(category), self._folded)
        self._columns = columns
        return columns

    def _folded(self, stream: StreamId) -> Folded:
        return self._snapshots.load(self._store, stream, self._records)

    def _state(self, stream: StreamId) -> Any:
        return self._folded(stream).state

    def _waiting(self, records: Sequence[RecordedEvent]) -> list[_Waiting]:
        waiting = []
        for record in records:
            match record.event:
                case InstanceCreateRequested():
                    instance: Instance | None = evolve(None, record.event)
                    failure = None
                case InstanceSpawnFailed():
                    instance = self._folded(instance_stream(record.event.instance_id)).state
                    failure = record.event.message
                case _:
                    continue
            if instance is not None and instance.task_state is TaskState.SCHEDULING:
                cause = record.cause
                waiting.append(_Waiting(instance, _cause_of(instance, cause, record.position), failure))
        return waiting

    def _place(self, columns: Columns, waiting: list[_Waiting], new: int) -> None:
        while True:
            members = GroupMembers(self._state)
            planned = [self._plan(columns, one, members) for one in waiting]
            for one, plan in zip(waiting, planned, strict=True):
                if plan.placed.row >= 0:
                    columns.reserve(plan.placed.row, amounts_of(one.instance), -1)
            asks = [_ask(one, plan) for one, plan in zip(waiting, planned, strict=True)]
            move = Move(consumer=self.name, old=self._persisted, new=new)
            result = self._appender.execute(Unit(asks=asks, move=move, retry_on=(ClaimDoesNotFit,)))
            again = []
            for one, plan, outcome in zip(waiting, planned, result.outcomes, strict=True):
                if isinstance(outcome, Accepted):
                    columns.apply(outcome.events)
                elif isinstance(outcome, ClaimDoesNotFit):
                    again.append(one)
                    columns.load([HOST_AGGREGATES], self._folded)
                    columns.load([service_stream(c.service_id) for c in plan.placed.choices], self._folded)
                    columns.load([provider_stream(c.node_id) for c in plan.placed.choices], self._folded)
            if result.moved:
                self._persisted = new
                return
            if not again:  # another process is the active one: go on from where it is
                self._columns = None
                log.warning("%s: another process has taken this step", self.name)
                return
            waiting = again

    def _plan(self, columns: Columns, one: _Waiting, members: GroupMembers) -> _Plan:
        """Choose, and count the choice for the rest of the batch."""
        instance, request = one.instance, one.instance.request
        spec = replace(
            spec_of(instance),
            group=members.rule(instance),
            different_from=self._hosts_hinted(instance, "different_host") or frozenset(),
            same_as=self._hosts_hinted(instance, "same_host"),
        )
        placed = choose(spec, columns)
        try:
            interfaces = self._networks.plan(
                request.network_mode, request.networks, request.security_groups, instance.id, instance.project_id
            )
        except DomainError as refusal:  # the network has changed since the create was accepted
            return _Plan(Placed((), -1, placed.reason), refused=str(refusal))
        if instance.attempts >= MAX_ATTEMPTS:
            return _Plan(Placed((), -1, placed.reason))
        if placed.row >= 0:
            columns.reserve(placed.row, amounts_of(instance))
            members.place(instance, placed.choices[0].host)
        return _Plan(placed, interfaces)

    def _hosts_hinted(self, instance: Instance, hint: str) -> frozenset[str] | None:
        """Where the project's servers are that a hint of the request names; None without that hint."""
        named = instance.request.scheduler_hints.get(hint)
        if not named:
            return None
        servers: list[Instance | None] = [self._state(instance_stream(InstanceId(UUID(name)))) for name in named]
        return frozenset(
            one.residence.host
            for one in servers
            if one is not None
            and one.project_id == instance.project_id
            and one.residence is not None
            and not one.deleted
        )


def spec_of(instance: Instance) -> RequestSpec:
    request = instance.request
    return RequestSpec(
        amounts=amounts_of(instance),
        availability_zone=request.pinned_availability_zone or request.availability_zone,
        forced_host=request.forced_host,
        forced_node=request.forced_node,
        requested_host=request.requested_host,
        requested_node=request.requested_node,
        excluded_hosts=frozenset(instance.former_hosts),
    )


def _ask(one: _Waiting, plan: _Plan) -> Ask:
    instance, attempt, placed = one.instance, one.instance.attempts + 1, plan.placed
    command: ScheduleInstance | FailScheduling
    if placed.choices:
        command = ScheduleInstance(
            instance_id=instance.id,
            attempt=attempt,
            choices=placed.choices,
            reason=placed.reason,
            interfaces=plan.interfaces,
            forced=instance.request.forced_host is not None,
        )
    else:
        message = plan.refused or no_valid_host(placed.reason)
        if plan.refused is None and one.last_failure is not None:
            message = (
                "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures "
                f"for instance {instance.id}. Last failure: {one.last_failure}"
            )
        command = FailScheduling(instance_id=instance.id, attempt=attempt, message=message, reason=placed.reason)
    return Ask(command=command, cause=one.cause)


def _cause_of(instance: Instance, cause: Cause, position: int) -> Cause:
    """Of the scheduling of one attempt: always the same command, and the request that created the instance."""
    return Cause(
        command_id=uuid5(_COMMANDS, f"schedule/{instance.id}/{instance.attempts + 1}"),
        request_id=cause.request_id,
        user_id=cause.user_id,
        project_id=cause.project_id,
        causation=position,
    )
