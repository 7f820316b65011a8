"""Consume, plan, act (`acts.py`), report. One agent a host; it has no database of the ledger's and no cloud credentials.

It is level-triggered: whatever happened meanwhile, the newest order of each guest and what the hypervisor says decide.
Each guest is worked on by one thread at a time; an act is journalled before it begins and after it ends.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from commands.log.port import LogRecord, LogUnavailable, Messages, orders_topic
from commands.log.reader import TopicReader
from commands.log.signed import Signer
from commands.metrics import AGENT_ORDERS_REFUSED, PARKED_RECORDS
from commands.orders import Act, Order
from commands.reports import HostReport, NodeFacts
from domain.identifiers import HostName, InstanceId, NodeId, ServiceId
from domain.serialization import from_plain
from hostagent.acts import Acts
from hostagent.drivers.protocol import Driver, HypervisorUnreachable, ObservedGuest
from hostagent.journal import HostIdentityChanged, Journal
from hostagent.payloads import Files
from hostagent.reconcile import (
    REFUSED,
    Action,
    Enforce,
    Fail,
    Observe,
    Perform,
    RefusedOrder,
    Report,
    reconcile,
    refuses,
)
from hostagent.reports import Reporter
from hostagent.session import Session

log = logging.getLogger(__name__)

BATCH = 200
OBSERVE_EVERY_S = 60
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    host: HostName
    host_ip: str = "127.0.0.1"
    availability_zone: str = "nova"  # Nova's [DEFAULT] default_availability_zone
    incarnation: str = ""  # of the ledger that enrolled it; empty: the ledger is this very process


class Agent:
    def __init__(
        self,
        settings: HostSettings,
        the_log: Messages,
        driver: Driver,
        journal: Journal,
        files: Files,
        facts: Callable[[NodeFacts], NodeFacts],
        executor: Executor,
        clock: Callable[[], datetime],
        signer: Signer | None = None,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`signer`: the host's key, where its word has to be proved; the journal is that host's already. What is due is
        told by `elapsed`: `clock` may be set at any time.

        Raises:
            HostIdentityChanged: the journal is another host's.
        """
        self.name = f"agent-{settings.host}"
        self.host = settings.host
        self._settings = settings
        self._driver = driver
        self._journal = journal
        self._files = files
        self._facts = facts  # what the operator reserves, and at which ratios
        self._executor = executor
        self._elapsed = elapsed
        self._began = clock() - timedelta(seconds=elapsed())
        self.service_id = ServiceId(uuid.UUID(journal.fact("service_id", str(uuid.uuid4()))))
        self.node_id = NodeId(uuid.UUID(journal.fact("compute_id", str(uuid.uuid4()))))
        named = journal.fact("host", settings.host)
        if named != settings.host:
            raise HostIdentityChanged(f"this directory belongs to host {named}, not to {settings.host}")
        if signer is not None and signer.service_id != self.service_id:
            raise HostIdentityChanged(
                f"this directory belongs to service {self.service_id}, not to {signer.service_id}"
            )
        self._reporter = Reporter(the_log, self.service_id, settings.host, signer)
        self._inbox = TopicReader(the_log, orders_topic(self.service_id))
        self._session = Session(self._reporter, journal, elapsed())
        self._acts = Acts(self.service_id, driver, journal, files, self._reporter, self._look_again_soon)
        self._sequence = 0
        self._lock = threading.Lock()
        self._orders: dict[InstanceId, Order] = {}
        self._busy: set[InstanceId] = set()
        self._again: set[InstanceId] = set()
        self._observed: dict[InstanceId, tuple[int, int]] = {}  # the last said of each: generation, power
        self._strangers: set[str] = set()
        self._due: dict[InstanceId, float] = {}  # to be looked at again, when
        self._next_observation = elapsed() + OBSERVE_EVERY_S

    # the consumer

    def wait(self, timeout_s: float) -> None:
        self._inbox.wait(timeout_s)

    def step(self) -> bool:
        if self._session.epoch == 0:
            self._open_session()
        now = self._elapsed()
        self._session.keep_up(now)
        records = self._read()
        if records:
            self._take(records)
        with self._lock:
            due = [instance_id for instance_id, when in self._due.items() if when <= now]
            for instance_id in due:
                del self._due[instance_id]
        for instance_id in due:
            self._look_at(instance_id)
        if now >= self._next_observation:
            self._next_observation = now + OBSERVE_EVERY_S
            self._journal.forget_ended(self._time())
            self._look_round()
        return bool(records)

    def _time(self) -> datetime:
        """As the clock had it at the start, and what has passed since: no residency is forgotten because it was set."""
        return self._began + timedelta(seconds=self._elapsed())

    @property
    def in_session(self) -> bool:
        """Whether it has told the ledger that it is here, since it was made."""
        return self._session.told

    @property
    def session(self) -> tuple[int, str] | None:
        """Its epoch and its id, once the ledger was told of it."""
        return (self._session.epoch, self._session.id) if self._session.told else None

    @property
    def waiting(self) -> int:
        """How many orders ask for an act that has no outcome yet."""
        with self._lock:
            orders = list(self._orders.items())
        entry = self._journal.entry
        return sum(order.act is not None and entry(i).settled_revision < order.task_revision for i, order in orders)

    def idle(self) -> bool:
        """Whether no guest is being worked on."""
        with self._lock:
            return not self._busy

    def _look_round(self) -> None:
        """From time to time: every guest that is wanted here, those that nobody wants, and images nobody uses."""
        with self._lock:
            orders = dict(self._orders)
        for instance_id in orders:
            self._look_at(instance_id)
        try:
            unwanted = self._driver.observe().keys() - orders.keys()
            strangers = {*map(str, unwanted), *self._driver.unknown_guests()}
        except HypervisorUnreachable as error:
            log.warning("nothing is known of this host's guests: %s", error)
            return
        if strangers != self._strangers:
            self._strangers = strangers
            log.warning(
                "%d guests are here that no order is about; they are left alone: %s",
                len(strangers),
                ", ".join(sorted(strangers)[:20]),
            )
        if self._driver.boots_images and not unwanted:  # before its orders are here, a guest's image looks unused
            self._files.trim(orders[i].guest for i in orders)

    def _open_session(self) -> None:
        """The ledger orders all guests of this host again once it hears of the session, under the session's epoch."""
        self._driver.open()
        facts = self._facts(self._driver.facts())
        self._driver.watch(self._look_at)
        self._session.open(
            lambda epoch: HostReport(
                service_id=self.service_id,
                host=self._settings.host,
                node_id=self.node_id,
                epoch=epoch,
                session=self._session.id,
                host_ip=self._settings.host_ip,
                availability_zone=self._settings.availability_zone,
                facts=facts,
            )
        )

    def _read(self) -> Sequence[LogRecord]:
        """What is new on this host's topic; while the log does not answer, nothing, and the guests are looked after."""
        try:
            return self._inbox.read(BATCH)
        except LogUnavailable:
            return ()

    def _take(self, records: Sequence[LogRecord]) -> None:
        taken: dict[InstanceId, Order] = {}
        passed_over: dict[str, list[str]] = {}
        for record in records:
            try:
                instance_id = InstanceId(uuid.UUID(record.key.partition("/")[0]))
                order = None if record.value is None else from_plain(Order, orjson.loads(record.value))
            except (ValueError, TypeError, KeyError, AttributeError) as error:  # the others are not to wait for it
                log.error("an order under %.80r does not decode: %s", record.key, error)
                PARKED_RECORDS.inc()
                continue
            if order is None:
                taken.pop(instance_id, None)
                self._end(instance_id)
            elif (refused := self._refused(instance_id, order)) is not None:
                passed_over.setdefault(refused.reason, []).append(f"{order.order_id} refused: {refused.message}")
            else:
                # At once, so that the next of these is held to it.
                self._journal.took(instance_id, order.generation, order.epoch)
                taken[instance_id] = order
        with self._lock:
            self._orders.update(taken)
        for instance_id in taken:
            self._look_at(instance_id)
        _tell(passed_over)
        self._inbox.took(records)

    def _end(self, instance_id: InstanceId) -> None:
        with self._lock:
            self._orders.pop(instance_id, None)
        self._observed.pop(instance_id, None)
        self._journal.end(instance_id, self._time())

    def _refused(self, instance_id: InstanceId, order: Order) -> RefusedOrder | None:
        entry, session = self._journal.entry(instance_id), self._session
        refused = refuses(order, entry, session.epoch, session.id, self._settings.incarnation)
        if refused is not None:
            AGENT_ORDERS_REFUSED.labels(refused.reason).inc()
        return refused

    # one guest at a time

    def _look_at(self, instance_id: InstanceId) -> None:
        """Plan for this guest on a worker; once more if it is being worked on right now."""
        with self._lock:
            if instance_id in self._busy:
                self._again.add(instance_id)
                return
            if instance_id not in self._orders:
                return
            self._busy.add(instance_id)
        self._executor.submit(self._work, instance_id)

    def _work(self, instance_id: InstanceId) -> None:
        while True:
            try:
                self._once(instance_id)
            except HypervisorUnreachable as error:
                log.warning("nothing is known of guest %s: %s", instance_id, error)
                self._look_again_soon(instance_id)
            except LogUnavailable:  # what came of it is in the journal, or will be seen again
                self._look_again_soon(instance_id)
            except Exception:
                log.exception("guest %s could not be looked at", instance_id)
                self._look_again_soon(instance_id)
            with self._lock:
                if instance_id not in self._again:
                    self._busy.discard(instance_id)
                    return
                self._again.discard(instance_id)

    def _look_again_soon(self, instance_id: InstanceId) -> None:
        with self._lock:
            self._due[instance_id] = self._elapsed() + RETRY_AFTER_S

    def _once(self, instance_id: InstanceId) -> None:
        with self._lock:
            order = self._orders.get(instance_id)
        if order is None:
            return
        entry = self._journal.entry(instance_id)
        fresh = order.act is Act.SPAWN and entry.begun is None
        observed = None if fresh else self._driver.observe_guest(instance_id)
        action = reconcile(order, observed, entry)
        if action is not None:
            self._act(order, observed, action)

    def _act(self, order: Order, observed: ObservedGuest | None, action: Action) -> None:
        match action:
            case Report():
                self._reporter.send(action.outcome)
            case Fail():
                self._acts.fail(order, action.act, action.message)
            case Enforce():
                self._driver.power_off(order.guest.instance_id, 0)
            case Observe():
                seen = (order.generation, action.power_state)
                if self._observed.get(order.guest.instance_id) == seen:
                    return  # said already, and the ledger wants nothing else since
                with self._lock:
                    self._sequence += 1
                    sequence = self._sequence
                self._reporter.observed(
                    order.guest.instance_id, order.generation, action.power_state, self._session.epoch, sequence
                )
                self._observed[order.guest.instance_id] = seen
            case Perform():
                self._acts.perform(order, action.act)


def _tell(passed_over: Mapping[str, Sequence[str]]) -> None:
    """One line for each reason: a host that starts finds an old order of each of its guests."""
    for reason, orders in passed_over.items():
        level = logging.WARNING if reason in ("replaced", "incarnation") else logging.INFO
        if len(orders) == 1:
            log.log(level, "order %s", orders[0])
        else:
            log.log(
                level, "%d orders %s are passed over, for example order %s", len(orders), REFUSED[reason], orders[-1]
            )
