"""The queue and the transaction: catch up, decide, record.

Commands wait in a queue; a flush takes the store's lock, folds what others have recorded since, decides the whole queue
one after another, stamps, inserts and commits once. So a hot stream costs no conflicts. `commands_done` is written in the
same transaction: it recognises a repeated command, and settles a commit whose result was lost.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any
from uuid import UUID

from commands import metrics
from commands.command import Accepted, Ask, Move, Outcome, Unit, UnitResult, streams_named
from commands.event_store import EventStore, StoreUnavailable, Transaction
from commands.records import Records
from commands.snapshots import Snapshots
from commands.states import Decision, Folded, States, kind_of
from commands.vault import Vault
from domain.errors import DomainError
from domain.identifiers import StreamId
from domain.recorded import RecordedEvent

log = logging.getLogger(__name__)

Decide = Callable[[Any, States], Decision]

CACHED_STREAMS = 4096
UNITS_A_FLUSH = 256


class Appender:
    """The only writer of events in its process. `flush` is synchronous; `run` is its loop on a thread."""

    def __init__(
        self,
        store: EventStore,
        vault: Vault,
        decisions: Mapping[type, Decide],
        clock: Callable[[], datetime],
        committed: Callable[[int, Sequence[RecordedEvent]], None],
    ) -> None:
        self._store = store
        self._vault = vault
        self._records = Records(vault, store.incarnation)
        self._snapshots = Snapshots(vault)
        self._decisions = decisions
        self._clock = clock
        self._committed = committed  # told (previous head, new events) after each commit
        self._cache: OrderedDict[StreamId, Folded] = OrderedDict()
        self._position = -1
        self._last_time: datetime | None = None
        self._queue: queue.SimpleQueue[tuple[Unit, Future[UnitResult]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    # the loop

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Flush what is queued, then end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def submit(self, unit: Unit) -> Future[UnitResult]:
        future: Future[UnitResult] = Future()
        self._queue.put((unit, future))
        return future

    def execute(self, unit: Unit) -> UnitResult:
        """Submit and wait.

        Raises:
            StoreUnavailable: nothing is known to have been recorded; the same unit may be sent again.
        """
        if self._thread is None:
            return self.flush([unit])[0]
        return self.submit(unit).result()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = [first], False
            while len(batch) < UNITS_A_FLUSH and not last:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    last = True
                else:
                    batch.append(following)
            self._answer(batch)
            if last:
                return

    def _answer(self, batch: Sequence[tuple[Unit, Future[UnitResult]]]) -> None:
        try:
            results = self.flush([unit for unit, _ in batch])
        except StoreUnavailable as unavailable:
            for _, future in batch:
                future.set_exception(unavailable)
        except Exception as error:
            if len(batch) > 1:  # a fault of one must not be the others'
                for one in batch:
                    self._answer([one])
                return
            log.exception("a command could not be decided")
            batch[0][1].set_exception(error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                future.set_result(result)

    # one flush

    def flush(self, units: Sequence[Unit]) -> list[UnitResult]:
        """Decide and record these units, in order, in one transaction.

        Raises:
            StoreUnavailable: nothing was recorded, or nothing that can be told.
        """
        decided = False
        try:
            with self._store.transaction() as transaction:
                flush = _Flush(self, transaction, units)
                results = [flush.unit(unit) for unit in units]
                flush.record()
                decided = True
        except StoreUnavailable:
            metrics.FLUSHES_UNAVAILABLE.inc()
            if not decided or not self._was_recorded(flush):  # else only the answer to COMMIT was lost
                self._forget()
                raise
        except BaseException:
            self._forget()
            raise
        before = self._position
        flush.keep()
        if flush.recorded:
            self._position = flush.recorded[-1].position
            self._committed(before, flush.recorded)
        flush.count()
        return [flush.result(r) for r in results]

    def _forget(self) -> None:
        """A failed transaction leaves nothing in memory: the next command reads what is really stored."""
        self._cache.clear()
        self._position = -1
        self._vault.forget_keys()

    def _was_recorded(self, flush: _Flush) -> bool:
        """COMMIT may or may not have happened: once the lock is free it has, or never will; then the store can tell. Of a
        flush that had nothing to record every answer holds."""
        try:
            with self._store.transaction() as transaction:
                if flush.done:  # as it was done here: another process may have done the same meanwhile
                    return transaction.commands_done(list(flush.done)) == flush.done
                return all(self._store.position(move.consumer) >= move.new for move in flush.moves)
        except StoreUnavailable:
            return False

    def _catch_up(self, transaction: Transaction) -> int:
        head = transaction.head()
        if head == self._position:
            return head
        if self._position < 0:
            # Nothing is cached: only the last recorded time is needed, and no key.
            for stored in transaction.read(head - 1)[-1:] if head else ():
                self._last_time = self._records.time_of(stored)
            newest = []
        else:
            newest = transaction.read(self._position)
        if newest:  # times grow with positions
            self._last_time = self._records.time_of(newest[-1])
        for stored in newest:
            cached = self._cache.get(stored.stream)
            if cached is not None and cached.version == stored.version - 1:
                cached.state = kind_of(stored.stream).evolve(cached.state, self._records.decode(stored).event)
                cached.version = stored.version
            elif cached is not None and cached.version < stored.version:
                del self._cache[stored.stream]
        self._position = head
        return head


class _Flush:
    """What one flush has decided so far, on top of the appender's cache; kept only once it is committed."""

    def __init__(self, appender: Appender, transaction: Transaction, units: Sequence[Unit]) -> None:
        self._appender = appender
        self._transaction = transaction
        self._head = appender._catch_up(transaction)
        now = appender._clock()
        self.time = now if appender._last_time is None else max(now, appender._last_time)
        self._states: dict[StreamId, Folded] = {}
        self._pending: list[tuple[Ask, StreamId, int, Any]] = []  # ask, stream, version, event
        self._accepted: dict[UUID, tuple[int, int]] = {}  # command → its range in `_pending`
        asked = [ask.cause.command_id for unit in units for ask in unit.asks]
        self._repeated = dict(transaction.commands_done(asked)) if asked else {}
        named = {stream for unit in units for ask in unit.asks for stream in streams_named(ask.command)}
        transaction.expect([stream for stream in named if stream not in appender._cache])
        self.moves: list[Move] = []
        self.done: dict[UUID, int] = {}  # command → where its events end
        self.recorded: list[RecordedEvent] = []
        self._asked = len(asked)
        self._refused: list[str] = []  # codes
        self._overtaken: list[str] = []  # consumers whose step another process had taken

    def unit(self, unit: Unit) -> tuple[Unit, list[UUID | DomainError], bool]:
        outcomes: list[UUID | DomainError] = []
        move = unit.move
        for ask in unit.asks:
            outcomes.append(self._decide(ask))
        moved = False
        if move is not None and not any(isinstance(o, unit.retry_on) for o in outcomes):
            moved = self._transaction.move_position(move.consumer, move.old, move.new)
            if moved:
                self.moves.append(move)
            else:
                self._overtaken.append(move.consumer)
        return unit, outcomes, moved

    def _decide(self, ask: Ask) -> UUID | DomainError:
        command_id = ask.cause.command_id
        if command_id in self._accepted or command_id in self._repeated:
            return command_id
        try:
            decided = self._appender._decisions[type(ask.command)](ask.command, States(self._state))
        except DomainError as refusal:
            self._refused.append(refusal.code)
            return refusal
        first = len(self._pending)
        for stream, event in decided:
            cached = self._load(stream)
            state = kind_of(stream).evolve(cached.state, event)
            self._states[stream] = Folded(cached.version + 1, state, cached.snapshot_version)
            self._pending.append((ask, stream, cached.version + 1, event))
        self._accepted[command_id] = (first, len(self._pending))
        streams = {stream for stream, _ in decided}  # fewer instances than asked for may have been made
        kept = {ref: payload for ref, payload in ask.payloads.items() if payload.owner in streams}
        self._appender._vault.put_payloads_in(self._transaction, kept)
        return command_id

    def record(self) -> None:
        appender, transaction = self._appender, self._transaction
        stored = [
            appender._records.encode(transaction, stream, version, self.time, ask.cause, event)
            for ask, stream, version, event in self._pending
        ]
        positions = transaction.insert(stored)
        self.recorded = [
            RecordedEvent(
                position=position,
                stream=stream,
                version=version,
                type=record.topic,
                time=self.time,
                cause=ask.cause,
                event=event,
            )
            for position, record, (ask, stream, version, event) in zip(positions, stored, self._pending, strict=True)
        ]
        if self.recorded:
            self._head = self.recorded[-1].position
        self.done = {
            command_id: self.recorded[end - 1].position if end > first else self._head
            for command_id, (first, end) in self._accepted.items()
        }
        transaction.record_commands(list(self.done.items()))
        for stream, cached in self._states.items():
            appender._snapshots.save_if_due(transaction, stream, cached)

    def keep(self) -> None:
        cache = self._appender._cache
        for stream, cached in self._states.items():
            cache[stream] = cached
            cache.move_to_end(stream)
        while len(cache) > CACHED_STREAMS:
            cache.popitem(last=False)
        if self.recorded:
            self._appender._last_time = self.time

    def count(self) -> None:
        """Tell what was committed to those who measure."""
        metrics.COMMITS.inc()
        metrics.FLUSH_COMMANDS.observe(self._asked)
        metrics.COMMANDS_RECORDED.inc(len(self._accepted))
        for code in self._refused:
            metrics.COMMANDS_REFUSED.labels(code).inc()
        for consumer in self._overtaken:
            metrics.STEP_CONFLICTS.labels(consumer.partition("/")[0]).inc()

    def result(self, decided: tuple[Unit, list[UUID | DomainError], bool]) -> UnitResult:
        _, outcomes, moved = decided
        return UnitResult(outcomes=tuple(self._outcome(o) for o in outcomes), moved=moved, head=self._head)

    def _outcome(self, outcome: UUID | DomainError) -> Outcome:
        if isinstance(outcome, DomainError):
            return outcome
        if outcome in self._repeated:
            return Accepted(position=self._repeated[outcome], repeated=True)
        first, end = self._accepted[outcome]
        events = tuple(self.recorded[first:end])
        return Accepted(position=events[-1].position if events else self._head, events=events)

    def _state(self, stream: StreamId) -> Any:
        return self._load(stream).state

    def _load(self, stream: StreamId) -> Folded:
        cached = self._states.get(stream)
        if cached is None:
            cached = self._appender._cache.get(stream)
            if cached is None:
                cached = self._appender._snapshots.load(self._transaction, stream, self._appender._records)
            self._states[stream] = cached
        return cached
