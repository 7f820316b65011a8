"""One guest that libvirt holds: its power, and its end. Every call here may raise libvirtError."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import libvirt

from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from hostagent.drivers.libvirt.connection import error_code
from hostagent.drivers.libvirt.diagnostics import read_diagnostics
from hostagent.drivers.protocol import Diagnostics

PRESS_INTERVAL_S = 5.0  # a press of the power button is lost on a guest that has not booted yet
POLL_INTERVAL_S = 1.0  # how long a shutdown goes unnoticed when its event is lost

POWER_STATES = {  # as Nova maps them
    libvirt.VIR_DOMAIN_NOSTATE: PowerState.NO_STATE,
    libvirt.VIR_DOMAIN_RUNNING: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: PowerState.PAUSED,
    libvirt.VIR_DOMAIN_SHUTDOWN: PowerState.SHUTDOWN,
    libvirt.VIR_DOMAIN_SHUTOFF: PowerState.SHUTDOWN,
    libvirt.VIR_DOMAIN_CRASHED: PowerState.CRASHED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: PowerState.SUSPENDED,
}

_UNDEFINE = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
_UNDEFINE_WHOLE = _UNDEFINE | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM


def find(connection: libvirt.virConnect, instance_id: InstanceId) -> Guest | None:
    try:
        return Guest(connection.lookupByUUIDString(str(instance_id)))
    except libvirt.libvirtError as error:
        if error_code(error) == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def instance_of(domain: libvirt.virDomain) -> InstanceId | None:
    """Whose guest a domain is, or none if it is not the ledger's; asks nobody."""
    uuid = str(domain.UUIDString())
    return InstanceId(UUID(uuid)) if domain.name() == f"instance-{uuid}" else None


class Guest:
    def __init__(self, domain: libvirt.virDomain) -> None:
        self._domain = domain

    def power_state(self) -> PowerState | None:
        """None if it has gone since it was found."""
        with _allowing(libvirt.VIR_ERR_NO_DOMAIN):
            return POWER_STATES.get(self._state(), PowerState.NO_STATE)
        return None

    def start(self) -> None:
        """Have it running, whatever it was."""
        state = self._state()
        if state in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
            return
        if state == libvirt.VIR_DOMAIN_PAUSED:
            self._domain.resume()
        elif state == libvirt.VIR_DOMAIN_PMSUSPENDED:
            self._domain.pMWakeup()
        else:
            if state != libvirt.VIR_DOMAIN_SHUTOFF:  # crashed, or on its way down
                self.cut()
            self._domain.create()

    def boot(self) -> None:
        """Start one that was just defined: it is off."""
        self._domain.create()

    def cut(self) -> None:
        """Cut its power; nothing happens to one that is off, or gone."""
        with _allowing(libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            self._domain.destroyFlags(libvirt.VIR_DOMAIN_DESTROY_DEFAULT)

    def pause(self) -> None:
        if self._state() != libvirt.VIR_DOMAIN_PAUSED:
            self._domain.suspend()

    def unpause(self) -> None:
        if self._state() not in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
            self._domain.resume()

    def suspend(self) -> None:
        """Its memory to disk (virDomainManagedSave): its next start goes on from there."""
        if not (self._state() == libvirt.VIR_DOMAIN_SHUTOFF and self._domain.hasManagedSaveImage()):
            self._domain.managedSave()

    def forget_memory(self) -> None:
        """So that its next start is a boot."""
        if self._domain.hasManagedSaveImage():
            self._domain.managedSaveRemove()

    def set_password(self, user: str, password: str) -> None:
        """Through the agent in the guest."""
        self._domain.setUserPassword(user, password, 0)

    def diagnostics(self, connection: libvirt.virConnect, hypervisor: str) -> Diagnostics:
        return read_diagnostics(connection, self._domain, POWER_STATES, hypervisor)

    def off(self) -> bool:
        return self._state() in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_NOSTATE)

    def shut_down(self, grace_s: int, heard: threading.Event) -> None:
        """Press its power button until it is off; after `grace_s` seconds cut its power.

        `heard` is set whenever libvirt tells of this guest, so that its end is seen at once.
        """
        now = time.monotonic()
        deadline = press_at = now + grace_s
        if grace_s > 0:
            press_at = now
        while now < deadline:
            heard.clear()
            state = self._state()
            if state == libvirt.VIR_DOMAIN_SHUTOFF:
                return
            if state not in (
                libvirt.VIR_DOMAIN_RUNNING,
                libvirt.VIR_DOMAIN_BLOCKED,
                libvirt.VIR_DOMAIN_SHUTDOWN,
            ):
                break  # paused or crashed: it cannot hear the button
            if now >= press_at:
                self._press()
                press_at = now + PRESS_INTERVAL_S
            heard.wait(max(0.0, min(deadline - now, press_at - now, POLL_INTERVAL_S)))
            now = time.monotonic()
        self.cut()

    def forget(self, *, whole: bool) -> None:
        """Remove its definition, with its saved state and its snapshots' descriptions.

        `whole`: its checkpoints and firmware variables too, which libvirt's test driver has no word for.
        """
        with _allowing(libvirt.VIR_ERR_NO_DOMAIN):
            self._domain.undefineFlags(_UNDEFINE_WHOLE if whole else _UNDEFINE)

    def _press(self) -> None:
        # refused while it is on its way down already, or its guest agent is away: the power is cut in the end
        with _allowing(
            libvirt.VIR_ERR_OPERATION_INVALID,
            libvirt.VIR_ERR_OPERATION_FAILED,
            libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
        ):
            self._domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_DEFAULT)

    def _state(self) -> int:
        return int(self._domain.state()[0])


@contextmanager
def _allowing(*codes: int) -> Iterator[None]:
    try:
        yield
    except libvirt.libvirtError as error:
        if error_code(error) not in codes:
            raise
