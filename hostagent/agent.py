"""Consume, plan, act, report. One agent a host; it has no database of the ledger's and no cloud credentials.

It is level-triggered: whatever happened meanwhile, the newest order of each guest and what the hypervisor says decide.
Each guest is worked on by one thread at a time; an act is journalled before it begins and after it ends.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from commands.log.port import LogRecord, Messages, orders_topic
from commands.log.reader import TopicReader
from commands.log.reports import encode_report
from commands.orders import Act, Order, WantedPower
from commands.reports import HostReport, NodeFacts
from domain.identifiers import HostName, InstanceId, NodeId, ServiceId
from domain.instance.state import PowerState
from domain.serialization import from_plain
from hostagent.drivers.protocol import Driver, DriverError, GuestFiles, HypervisorUnreachable, ObservedGuest
from hostagent.journal import Journal
from hostagent.payloads import Files
from hostagent.reconcile import Action, Enforce, Fail, Observe, Perform, Report, reconcile, refuses
from hostagent.reports import Reporter, outcome

log = logging.getLogger(__name__)

BATCH = 200
BEAT_EVERY_S = 10  # Nova's [DEFAULT] report_interval
OBSERVE_EVERY_S = 60
RETRY_AFTER_S = 5


class HostIdentityChanged(Exception):
    """This host's directory belongs to another host name; a rename would split it in two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    host: HostName
    host_ip: str = "127.0.0.1"
    availability_zone: str = "nova"  # Nova's [DEFAULT] default_availability_zone


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
    ) -> None:
        self.name = f"agent-{settings.host}"
        self._settings = settings
        self._driver = driver
        self._journal = journal
        self._files = files
        self._facts = facts  # what the operator reserves, and at which ratios
        self._executor = executor
        self._clock = clock
        self.service_id = ServiceId(uuid.UUID(journal.fact("service_id", str(uuid.uuid4()))))
        self.node_id = NodeId(uuid.UUID(journal.fact("compute_id", str(uuid.uuid4()))))
        named = journal.fact("host", settings.host)
        if named != settings.host:
            raise HostIdentityChanged(f"this directory belongs to host {named}, not to {settings.host}")
        self._reporter = Reporter(the_log, self.service_id, settings.host)
        self._inbox = TopicReader(the_log, orders_topic(self.service_id))
        self._epoch = 0
        self._sequence = 0
        self._lock = threading.Lock()
        self._orders: dict[InstanceId, Order] = {}
        self._busy: set[InstanceId] = set()
        self._again: set[InstanceId] = set()
        self._observed: dict[InstanceId, tuple[int, int]] = {}  # the last said of each: generation, power
        self._strangers: set[str] = set()
        self._due: dict[InstanceId, datetime] = {}  # to be looked at again, when
        self._next_beat = clock()
        self._next_observation = self._next_beat + timedelta(seconds=OBSERVE_EVERY_S)

    # the consumer

    def wait(self, timeout_s: float) -> None:
        self._inbox.wait(timeout_s)

    def step(self) -> bool:
        if self._epoch == 0:
            self._open_session()
        now = self._clock()
        if now >= self._next_beat:
            self._next_beat = now + timedelta(seconds=BEAT_EVERY_S)
            self._reporter.beat(self._epoch)
        records = self._inbox.read(BATCH)
        if records:
            self._take(records)
        with self._lock:
            due = [instance_id for instance_id, when in self._due.items() if when <= now]
            for instance_id in due:
                del self._due[instance_id]
        for instance_id in due:
            self._look_at(instance_id)
        if now >= self._next_observation:
            self._next_observation = now + timedelta(seconds=OBSERVE_EVERY_S)
            self._look_round()
        return bool(records)

    @property
    def in_session(self) -> bool:
        """Whether it has told the ledger that it is here, since it was made."""
        return self._epoch > 0

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
        """Say what this host is. The ledger then orders all its guests again, under this session's epoch."""
        self._driver.open()
        facts = self._facts(self._driver.facts())
        epoch = int(self._journal.fact("epoch", "0")) + 1
        self._journal.set_fact("epoch", str(epoch))
        report = HostReport(
            service_id=self.service_id,
            host=self._settings.host,
            node_id=self.node_id,
            epoch=epoch,
            host_ip=self._settings.host_ip,
            availability_zone=self._settings.availability_zone,
            facts=facts,
        )
        self._reporter.session(report)
        self._epoch = epoch
        self._driver.watch(self._look_at)

    def _take(self, records: Sequence[LogRecord]) -> None:
        taken: dict[InstanceId, Order] = {}
        for record in records:
            instance_id = InstanceId(uuid.UUID(record.key.partition("/")[0]))
            if record.value is None:
                taken.pop(instance_id, None)
                with self._lock:
                    self._orders.pop(instance_id, None)
                self._observed.pop(instance_id, None)
                self._journal.forget(instance_id)
                continue
            order = from_plain(Order, orjson.loads(record.value))
            refused = refuses(order, self._journal.entry(instance_id), self._epoch)
            if refused is not None:
                log.info("order %s refused: %s", order.order_id, refused)
                continue
            taken[instance_id] = order
        self._journal.took((i, order.generation, order.epoch) for i, order in taken.items())
        with self._lock:
            self._orders.update(taken)
        for instance_id in taken:
            self._look_at(instance_id)
        self._inbox.took(records)

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
            self._due[instance_id] = self._clock() + timedelta(seconds=RETRY_AFTER_S)

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
                self._settle(order, action.act, succeeded=False, message=action.message)
            case Enforce():
                self._driver.power_off(order.guest.instance_id, 0)
            case Observe():
                seen = (order.generation, action.power_state)
                if self._observed.get(order.guest.instance_id) == seen:
                    return  # said already, and the ledger wants nothing else since
                self._observed[order.guest.instance_id] = seen
                with self._lock:
                    self._sequence += 1
                    sequence = self._sequence
                self._reporter.observed(
                    order.guest.instance_id, order.generation, action.power_state, self._epoch, sequence
                )
            case Perform():
                self._perform(order, action.act)

    def _perform(self, order: Order, act: Act) -> None:
        guest = order.guest
        self._journal.begin(guest.instance_id, act, order.task_revision)
        try:
            match act:
                case Act.SPAWN:
                    self._spawn(order)
                case Act.POWER_ON:
                    self._driver.power_on(guest)
                case Act.POWER_OFF:
                    self._driver.power_off(guest.instance_id, order.grace_s)
                case Act.REBOOT:
                    self._driver.reboot(guest.instance_id, hard=order.reboot_hard, grace_s=order.grace_s)
                case Act.PURGE:
                    self._driver.destroy(guest.instance_id)
        except HypervisorUnreachable:
            raise  # the outcome is not known: say nothing, look again later
        except DriverError as error:
            self._failed(order, act, str(error))
        except Exception as error:  # a fault of ours: still an outcome that an operator can act on
            log.exception("%s of guest %s failed", act, guest.instance_id)
            self._failed(order, act, f"{type(error).__name__}: {error}")
        else:
            self._settle(order, act, succeeded=True)

    def _spawn(self, order: Order) -> None:
        files = GuestFiles()
        try:
            if self._driver.boots_images:
                files = self._files.prepare(order.guest)
            self._driver.create(order.guest, files)
        except HypervisorUnreachable:
            raise
        except Exception as error:
            self._files.discard(files)
            try:
                self._driver.destroy(order.guest.instance_id)  # so that "failed" also means: nothing of it is here
            except Exception as remains:
                raise HypervisorUnreachable(
                    f"{error}; what there is of the guest cannot be removed: {remains}"
                ) from error
            raise

    def _failed(self, order: Order, act: Act, message: str) -> None:
        log.warning("%s of guest %s failed: %s", act, order.guest.instance_id, message)
        if act is Act.PURGE:
            # Not settled: it is tried again for as long as the purge is wanted.
            report = outcome(
                order, self.service_id, act, succeeded=False, power_state=PowerState.NO_STATE, message=message
            )
            self._reporter.send(encode_report(report))
            self._look_again_soon(order.guest.instance_id)
            return
        self._settle(order, act, succeeded=False, message=message)

    def _settle(self, order: Order, act: Act, *, succeeded: bool, message: str = "") -> None:
        instance_id = order.guest.instance_id
        report = encode_report(
            outcome(
                order,
                self.service_id,
                act,
                succeeded=succeeded,
                power_state=self._power_state(order, act, succeeded),
                message=message,
            )
        )
        self._journal.settle(instance_id, order.task_revision, report)
        self._reporter.send(report)

    def _power_state(self, order: Order, act: Act, succeeded: bool) -> int:
        if act is Act.PURGE:
            return PowerState.NO_STATE
        if succeeded:
            return PowerState.SHUTDOWN if order.wanted is WantedPower.OFF else PowerState.RUNNING
        try:
            observed = self._driver.observe_guest(order.guest.instance_id)
        except DriverError:
            return PowerState.NO_STATE  # not known; the next look tells
        return PowerState.NO_STATE if observed is None else observed.power_state
