"""One act of the driver's for one guest: journalled before it begins and after it ends, and its outcome reported.

A guest that failed to spawn leaves nothing behind; while the hypervisor cannot be asked nothing is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from commands.log.reports import encode_report
from commands.orders import Act, Order, WantedPower
from domain.identifiers import InstanceId, ServiceId
from domain.instance.state import PowerState
from hostagent.drivers.protocol import Driver, DriverError, GuestFiles, HypervisorUnreachable
from hostagent.journal import Journal
from hostagent.payloads import Files
from hostagent.reports import Reporter, outcome

log = logging.getLogger(__name__)

# Of a guest that is as it was wanted; one that is suspended is asked for, since hypervisors see it differently.
_POWER = {
    WantedPower.RUNNING: PowerState.RUNNING,
    WantedPower.PAUSED: PowerState.PAUSED,
    WantedPower.OFF: PowerState.SHUTDOWN,
}


class Acts:
    def __init__(
        self,
        service_id: ServiceId,
        driver: Driver,
        journal: Journal,
        files: Files,
        reporter: Reporter,
        look_again_soon: Callable[[InstanceId], None],
    ) -> None:
        self._service_id = service_id
        self._driver = driver
        self._journal = journal
        self._files = files
        self._reporter = reporter
        self._look_again_soon = look_again_soon

    def perform(self, order: Order, act: Act) -> None:
        """Raises:
        HypervisorUnreachable: what came of it is not known; look again later.
        LogUnavailable: it is known, and journalled, and could not be said.
        """
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
                case Act.PAUSE:
                    self._driver.pause(guest.instance_id)
                case Act.UNPAUSE:
                    self._driver.unpause(guest.instance_id)
                case Act.SUSPEND:
                    self._driver.suspend(guest.instance_id)
                case Act.RESUME:
                    self._driver.resume(guest.instance_id)
                case Act.SET_PASSWORD:
                    self._driver.set_password(guest, self._files.password(guest))
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

    def fail(self, order: Order, act: Act, message: str) -> None:
        """What is asked cannot be done, and need not be tried."""
        self._settle(order, act, succeeded=False, message=message)

    def _failed(self, order: Order, act: Act, message: str) -> None:
        log.warning("%s of guest %s failed: %s", act, order.guest.instance_id, message)
        if act is Act.PURGE:
            # Not settled: it is tried again for as long as the purge is wanted.
            report = outcome(
                order, self._service_id, act, succeeded=False, power_state=PowerState.NO_STATE, message=message
            )
            self._reporter.send(encode_report(report))
            self._look_again_soon(order.guest.instance_id)
            return
        self.fail(order, act, message)

    def _settle(self, order: Order, act: Act, *, succeeded: bool, message: str = "") -> None:
        instance_id = order.guest.instance_id
        report = encode_report(
            outcome(
                order,
                self._service_id,
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
        if succeeded and order.wanted in _POWER:
            return _POWER[order.wanted]
        try:
            observed = self._driver.observe_guest(order.guest.instance_id)
        except DriverError:
            return PowerState.NO_STATE  # not known; the next look tells
        return PowerState.NO_STATE if observed is None else observed.power_state
