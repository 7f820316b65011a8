"""The driver over libvirt, for QEMU and KVM guests and for libvirt's test driver (`test:///…`), which has no
disks.

`guest_xml.py` says what a guest is, `disks.py` makes its files, `guest.py` has its power, `connection.py` the
wire, `capabilities.py` what the host can do.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from commands.orders import GuestSpec
from commands.reports import NodeFacts
from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from hostagent.drivers.libvirt import guest as guests
from hostagent.drivers.libvirt.capabilities import HostCapabilities, read_capabilities
from hostagent.drivers.libvirt.connection import Connection
from hostagent.drivers.libvirt.disks import GIB, make_disks, read_console, refuse_volumes, remove_disks
from hostagent.drivers.libvirt.guest_xml import GuestDisks, Machine, administrator_of, guest_xml
from hostagent.drivers.protocol import Diagnostics, DriverError, GuestFiles, ObservedGuest

TRAITS = (
    "COMPUTE_GRAPHICS_MODEL_VGA",
    "COMPUTE_GRAPHICS_MODEL_VIRTIO",
    "COMPUTE_IMAGE_TYPE_AMI",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_VIF_MODEL_E1000",
    "COMPUTE_NET_VIF_MODEL_RTL8139",
    "COMPUTE_NET_VIF_MODEL_VIRTIO",
    "COMPUTE_STORAGE_BUS_IDE",
    "COMPUTE_STORAGE_BUS_SATA",
    "COMPUTE_STORAGE_BUS_SCSI",
    "COMPUTE_STORAGE_BUS_USB",
    "COMPUTE_STORAGE_BUS_VIRTIO",
)

_STARTED = (libvirt.VIR_DOMAIN_EVENT_STARTED, libvirt.VIR_DOMAIN_EVENT_RESUMED)
_STOPPED = (
    libvirt.VIR_DOMAIN_EVENT_STOPPED,
    libvirt.VIR_DOMAIN_EVENT_SHUTDOWN,
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED,
    libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED,
    libvirt.VIR_DOMAIN_EVENT_CRASHED,
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtSettings:
    """Names and defaults are those of Nova's options where it has them."""

    connection_uri: str = "qemu:///system"
    instances_path: Path = Path("/var/lib/compute-ledger/instances")
    virt_type: str = "auto"  # "auto", "kvm" or "qemu"; auto is kvm where libvirt reports it
    machine_type: str | None = None
    cpu_mode: str | None = None  # none: host-model under kvm, QEMU's default in software
    bridge: str | None = None  # where interfaces are plugged; none: QEMU's user network
    vnc_listen: str | None = None
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_cpus: int = 0
    reserved_host_memory_mib: int = 512
    reserved_host_disk_gib: int = 0
    vcpus: int | None = None  # these three: what to declare, in place of what the host is found to have
    memory_mib: int | None = None
    disk_gib: int | None = None


class LibvirtDriver:
    """See `hostagent/drivers/protocol.py`."""

    name = "libvirt"

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings
        self._connection = Connection(settings.connection_uri, self._heard)
        self._test = settings.connection_uri.partition(":")[0].partition("+")[0] == "test"
        self.boots_images = not self._test
        self._host: HostCapabilities | None = None
        self._changed: Callable[[InstanceId], None] | None = None
        self._waiting: dict[InstanceId, threading.Event] = {}  # a shutdown of ours is being waited for
        self._expected: dict[InstanceId, bool] = {}  # what a call of ours made of a guest: running or not

    def open(self) -> None:
        with self._connection.calls() as connection:
            self._capabilities(connection)

    def close(self) -> None:
        self._connection.close()

    def facts(self) -> NodeFacts:
        with self._connection.calls() as connection:
            host = self._capabilities(connection)
            information = connection.getInfo()  # model, MiB, processors, …
            return NodeFacts(
                hypervisor_type=str(connection.getType()),
                hypervisor_version=int(connection.getVersion()),
                hypervisor_hostname=str(connection.getHostname()),
                cpu_info=host.cpu_info,
                inventories=self._inventories(cpus=int(information[2]), memory_mib=int(information[1])),
                traits=(*TRAITS, "HW_ARCH_X86_64") if host.arch == "x86_64" else TRAITS,
            )

    def observe(self) -> Mapping[InstanceId, ObservedGuest]:
        observed = {}
        for domain, power in self._domains():
            if (instance_id := guests.instance_of(domain)) is not None:
                observed[instance_id] = ObservedGuest(instance_id=instance_id, power_state=power)
        return observed

    def observe_guest(self, instance_id: InstanceId) -> ObservedGuest | None:
        with self._connection.calls() as connection:
            found = guests.find(connection, instance_id)
            power = None if found is None else found.power_state()
        return None if power is None else ObservedGuest(instance_id=instance_id, power_state=power)

    def unknown_guests(self) -> list[str]:
        return sorted(str(domain.name()) for domain, _ in self._domains() if guests.instance_of(domain) is None)

    def create(self, guest: GuestSpec, files: GuestFiles) -> None:
        with self._expecting(guest.instance_id, running=True), self._connection.calls() as connection:
            found = guests.find(connection, guest.instance_id)
            if found is None:
                self._make(connection, guest, files)
            else:
                found.start()
        if files.config_drive is not None:  # a new guest with disks has it already
            files.config_drive.unlink(missing_ok=True)

    def power_on(self, guest: GuestSpec) -> None:
        with self._guest(guest.instance_id, running=True) as found:
            found.start()

    def power_off(self, instance_id: InstanceId, grace_s: int) -> None:
        with self._guest(instance_id, running=False) as found:
            self._shut_down(found, instance_id, grace_s)

    def reboot(self, instance_id: InstanceId, *, hard: bool, grace_s: int) -> None:
        with self._guest(instance_id, running=True) as found:
            if hard:
                found.cut()
                found.forget_memory()
            else:
                self._shut_down(found, instance_id, grace_s)
            found.start()

    def pause(self, instance_id: InstanceId) -> None:
        with self._guest(instance_id, running=False) as found:
            found.pause()

    def unpause(self, instance_id: InstanceId) -> None:
        with self._guest(instance_id, running=True) as found:
            found.unpause()

    def suspend(self, instance_id: InstanceId) -> None:
        with self._guest(instance_id, running=False) as found:
            found.suspend()

    def resume(self, instance_id: InstanceId) -> None:
        with self._guest(instance_id, running=True) as found:
            found.start()  # from its memory, where that was kept

    def destroy(self, instance_id: InstanceId) -> None:
        with self._expecting(instance_id, running=False), self._connection.calls() as connection:
            if not self._destroy(connection, instance_id):
                self._expected.pop(instance_id, None)  # no event will come of it

    def set_password(self, guest: GuestSpec, password: str) -> None:
        with self._connection.calls() as connection:
            self._found(connection, guest.instance_id).set_password(administrator_of(guest), password)

    def diagnostics(self, instance_id: InstanceId) -> Diagnostics:
        with self._connection.calls() as connection:
            found = self._found(connection, instance_id)
            return found.diagnostics(connection, self._capabilities(connection).virt_type)

    def console_output(self, instance_id: InstanceId) -> bytes:
        with self._connection.calls() as connection:
            self._found(connection, instance_id)
        try:
            return read_console(self._settings.instances_path, instance_id)
        except OSError as error:
            raise DriverError(f"the console of instance-{instance_id} cannot be read: {error}") from error

    def watch(self, changed: Callable[[InstanceId], None]) -> None:
        self._changed = changed

    def _make(self, connection: libvirt.virConnect, guest: GuestSpec, files: GuestFiles) -> None:
        refuse_volumes(guest)
        machine = self._machine(connection)
        disks = GuestDisks() if self._test else make_disks(self._settings.instances_path, guest, files)
        try:
            guests.Guest(connection.defineXML(guest_xml(guest, machine, disks))).boot()
        except BaseException:
            # If libvirt is gone the guest may be there, and its disks with it: the next create or destroy
            # sees.
            with suppress(libvirt.libvirtError, DriverError):
                self._destroy(connection, guest.instance_id)
            raise

    def _destroy(self, connection: libvirt.virConnect, instance_id: InstanceId) -> bool:
        """Whether it was there. Files last: a guest that is defined always has its disks."""
        found = guests.find(connection, instance_id)
        if found is not None:
            found.cut()
            found.forget(whole=not self._test)
        if not self._test:
            remove_disks(self._settings.instances_path, instance_id)
        return found is not None

    def _shut_down(self, found: guests.Guest, instance_id: InstanceId, grace_s: int) -> None:
        heard = self._waiting[instance_id] = threading.Event()
        try:
            found.shut_down(grace_s, heard)
        finally:
            self._waiting.pop(instance_id, None)

    @contextmanager
    def _guest(self, instance_id: InstanceId, *, running: bool) -> Iterator[guests.Guest]:
        with self._expecting(instance_id, running=running), self._connection.calls() as connection:
            yield self._found(connection, instance_id)

    def _found(self, connection: libvirt.virConnect, instance_id: InstanceId) -> guests.Guest:
        found = guests.find(connection, instance_id)
        if found is None:
            raise DriverError(f"there is no guest instance-{instance_id}")
        return found

    @contextmanager
    def _expecting(self, instance_id: InstanceId, *, running: bool) -> Iterator[None]:
        """Events that only tell what this call does are not passed on to the watcher."""
        self._expected[instance_id] = running
        try:
            yield
        except BaseException:
            self._expected.pop(instance_id, None)
            raise

    def _heard(self, domain: Any, event: int) -> None:
        instance_id = guests.instance_of(domain)
        running = event in _STARTED
        if instance_id is None or not (running or event in _STOPPED):
            return
        if (waiting := self._waiting.get(instance_id)) is not None:
            waiting.set()
        ours = self._expected.get(instance_id) is running
        if not ours or event == libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
            self._expected.pop(instance_id, None)
        if not ours and self._changed is not None:
            self._changed(instance_id)

    def _domains(self) -> list[tuple[Any, PowerState]]:
        """All of them with their power, in one round trip."""
        with self._connection.calls() as connection:
            stats = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
        return [
            (domain, guests.POWER_STATES.get(values["state.state"], PowerState.NO_STATE)) for domain, values in stats
        ]

    def _machine(self, connection: libvirt.virConnect) -> Machine:
        host = self._capabilities(connection)
        settings = self._settings
        return Machine(
            virt_type=host.virt_type,
            arch=host.arch,
            machine_type=settings.machine_type,
            cpu_mode=settings.cpu_mode or ("host-model" if host.virt_type == "kvm" else None),
            bridge=settings.bridge,
            vnc_listen=settings.vnc_listen,
        )

    def _capabilities(self, connection: libvirt.virConnect) -> HostCapabilities:
        if self._host is None:
            self._host = read_capabilities(
                str(connection.getCapabilities()), "test" if self._test else self._settings.virt_type
            )
        return self._host

    def _inventories(self, *, cpus: int, memory_mib: int) -> dict[str, Inventory]:
        settings = self._settings
        path = next(path for path in (settings.instances_path, *settings.instances_path.parents) if path.exists())
        disk_gib = shutil.disk_usage(path).total // GIB
        rows = (
            (VCPU, settings.vcpus or cpus, settings.reserved_host_cpus, settings.cpu_allocation_ratio),
            (
                MEMORY_MB,
                settings.memory_mib or memory_mib,
                settings.reserved_host_memory_mib,
                settings.ram_allocation_ratio,
            ),
            (
                DISK_GB,
                settings.disk_gib or disk_gib,
                settings.reserved_host_disk_gib,
                settings.disk_allocation_ratio,
            ),
        )
        return {
            name: Inventory(total=total, reserved=min(reserved, total), max_unit=total, allocation_ratio=ratio)
            for name, total, reserved, ratio in rows
        }
