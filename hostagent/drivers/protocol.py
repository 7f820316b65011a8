"""What any driver does. Every call is idempotent: find before create, and destroying what is not there succeeds.

A driver knows nothing of orders or of the ledger; `hostagent/agent.py` decides what to call. Calls may block; the agent
runs them on worker threads, never two at once for one guest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from commands.orders import GuestSpec
from commands.reports import NodeFacts
from domain.identifiers import InstanceId


class DriverError(Exception):
    """The hypervisor refused or failed; the message helps an operator."""


class HypervisorUnreachable(DriverError):
    """Nothing is known of any guest: an empty list would be a lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGuest:
    instance_id: InstanceId
    power_state: int  # domain.instance.state.PowerState


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFiles:
    """What the agent put in place before a create: local paths, complete and checked."""

    root_image: Path | None = None
    root_format: str = "raw"  # "raw", "qcow2", …: Glance's disk_format
    kernel: Path | None = None
    ramdisk: Path | None = None
    config_drive: Path | None = None  # an ISO 9660 image; the driver takes the file over


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    number: int
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    device: str  # "vda"
    read_bytes: int | None = None
    read_requests: int | None = None
    write_bytes: int | None = None
    write_requests: int | None = None
    errors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NicUse:
    """Bytes and packets, as the guest sees their direction."""

    device: str | None  # of the host's, where it has one
    mac_address: str | None = None
    rx_octets: int | None = None
    rx_packets: int | None = None
    rx_errors: int | None = None
    rx_drop: int | None = None
    tx_octets: int | None = None
    tx_packets: int | None = None
    tx_errors: int | None = None
    tx_drop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What is not known is None; as `gateway/server_diagnostics.py` shows it."""

    power_state: int
    driver: str  # Nova's word for it: "libvirt"
    hypervisor: str  # "kvm", "qemu"
    memory_maximum_kib: int | None = None
    memory_used_kib: int | None = None
    cpus: tuple[CpuUse, ...] = ()
    disks: tuple[DiskUse, ...] = ()
    nics: tuple[NicUse, ...] = ()


class Driver(Protocol):
    name: str  # "libvirt", "fake"
    boots_images: bool  # whether it needs `GuestFiles`; a simulated hypervisor has no use for them

    def open(self) -> None:
        """Connect; safe to repeat.

        Raises:
            HypervisorUnreachable: nobody answers.
        """

    def close(self) -> None: ...

    def facts(self) -> NodeFacts:
        """What the hypervisor says of itself, its inventory before any guest."""

    def observe(self) -> Mapping[InstanceId, ObservedGuest]:
        """Every guest of the ledger's that the hypervisor holds, running or not.

        Raises:
            HypervisorUnreachable: it cannot be asked; the answer is unknown, not empty.
        """

    def observe_guest(self, instance_id: InstanceId) -> ObservedGuest | None:
        """One guest, as in `observe`; None when the hypervisor says that it holds none of this id."""

    def unknown_guests(self) -> list[str]:
        """Names of guests that are not the ledger's (whose name is not instance-<uuid>); never touched."""

    def create(self, guest: GuestSpec, files: GuestFiles) -> None:
        """Make the guest's disks, define it and start it. A guest that is there already is started if it is off.

        Raises:
            DriverError: it could not be made; nothing of it is left.
        """

    def power_on(self, guest: GuestSpec) -> None:
        """Start a guest that is off; one that runs is left alone. Its disks and its definition stay as they are."""

    def power_off(self, instance_id: InstanceId, grace_s: int) -> None:
        """Ask the guest to shut down; after `grace_s` seconds cut its power. 0 cuts it at once."""

    def reboot(self, instance_id: InstanceId, *, hard: bool, grace_s: int) -> None:
        """Soft: shut down within `grace_s` seconds and start; if it does not, as hard. Hard: cut power and start.

        A guest that was off, paused or suspended is running afterwards; what was in its memory is given up.
        """

    def pause(self, instance_id: InstanceId) -> None:
        """Hold a running guest in memory; one that is paused is left alone.

        Raises:
            DriverError: it is off.
        """

    def unpause(self, instance_id: InstanceId) -> None:
        """Let a paused guest go on; one that runs is left alone.

        Raises:
            DriverError: it is off.
        """

    def suspend(self, instance_id: InstanceId) -> None:
        """Put a guest's memory on disk and hold it there, through reboots of the host; one that is suspended is left alone.

        Its power is then SUSPENDED, or SHUTDOWN where the hypervisor knows no other word.

        Raises:
            DriverError: it is off.
        """

    def resume(self, instance_id: InstanceId) -> None:
        """Let a suspended guest go on from where it was; one that runs is left alone."""

    def set_password(self, guest: GuestSpec, password: str) -> None:
        """Give the administrator of a running guest this password.

        Raises:
            DriverError: it does not run, or nobody in it can; the message does not tell the password.
        """

    def destroy(self, instance_id: InstanceId) -> None:
        """Cut the guest's power, undefine it, remove its disks and its files. Nothing of it is left."""

    def console_output(self, instance_id: InstanceId) -> bytes:
        """The guest's serial console, the last 100 KiB of it; empty when it has said nothing.

        Raises:
            DriverError: no such guest, or it has no console that can be read.
        """

    def diagnostics(self, instance_id: InstanceId) -> Diagnostics:
        """What a guest uses, and has done.

        Raises:
            DriverError: no such guest.
        """

    def watch(self, changed: Callable[[InstanceId], None]) -> None:
        """Call `changed`, from any thread, whenever a guest's power may have changed without a call of ours.

        A driver that cannot hear of changes need not call it: the agent also observes from time to time.
        """
