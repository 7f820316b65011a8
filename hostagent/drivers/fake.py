"""A hypervisor on a file, held to the same contract as a real one. It runs nothing, fast, and remembers all.

Its state is a SQLite file in the directory it is given: it survives its process being killed (not a power
cut), and other processes may look and interfere through `fake_controls.py`: switch a guest's power, make a
call fail, ask what happened. For tests, for trying out a ledger, and for load.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

from commands.orders import GuestSpec
from commands.reports import NodeFacts
from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from hostagent.drivers.fake_state import (
    FakeGuest,
    boot,
    connect,
    cut,
    fail_if_told,
    go_on,
    guest_of,
    hold,
    record,
    transaction,
)
from hostagent.drivers.protocol import (
    CpuUse,
    Diagnostics,
    DiskUse,
    DriverError,
    GuestFiles,
    HypervisorUnreachable,
    NicUse,
    ObservedGuest,
)

CONSOLE_BYTES = 100 * 1024
WATCH_INTERVAL_S = 0.05  # how soon a change from outside is noticed
BUTTON_INTERVAL_S = 0.01


class FakeDriver:
    """See `hostagent/drivers/protocol.py`. Amounts are what it claims to have; nothing enforces them."""

    name = "fake"
    boots_images = False

    def __init__(
        self,
        directory: Path,
        *,
        hostname: str = "fake",
        vcpus: int = 64,
        memory_mib: int = 262_144,
        disk_gib: int = 4096,
    ) -> None:
        self._directory = directory
        self._hostname = hostname
        self._inventories = {
            VCPU: Inventory(total=vcpus, max_unit=vcpus, allocation_ratio=4.0),
            MEMORY_MB: Inventory(total=memory_mib, max_unit=memory_mib),
            DISK_GB: Inventory(total=disk_gib, max_unit=disk_gib),
        }
        self._database: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # one connection, one thread at a time
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    def open(self) -> None:
        with self._lock:
            if self._database is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._closing.clear()
                self._database = connect(self._directory)

    def close(self) -> None:
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def facts(self) -> NodeFacts:
        with self._call("facts"):
            return NodeFacts(
                hypervisor_type="fake",
                hypervisor_version=1_000,
                hypervisor_hostname=self._hostname,
                cpu_info=json.dumps({"arch": "x86_64", "model": "fake", "vendor": "fake", "features": []}),
                inventories=self._inventories,
                traits=("COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_RAW", "HW_ARCH_X86_64"),
            )

    def observe(self) -> Mapping[InstanceId, ObservedGuest]:
        with self._call("observe") as database:
            rows = database.execute("SELECT instance_id, power FROM guests").fetchall()
        ids = ((InstanceId(UUID(text)), power) for text, power in rows)
        return {
            instance_id: ObservedGuest(instance_id=instance_id, power_state=PowerState(power))
            for instance_id, power in ids
        }

    def observe_guest(self, instance_id: InstanceId) -> ObservedGuest | None:
        with self._call("observe_guest") as database:
            row = database.execute("SELECT power FROM guests WHERE instance_id = ?", (str(instance_id),)).fetchone()
        return None if row is None else ObservedGuest(instance_id=instance_id, power_state=PowerState(row[0]))

    def unknown_guests(self) -> list[str]:
        with self._call("unknown_guests") as database:
            return [name for (name,) in database.execute("SELECT name FROM strangers ORDER BY name")]

    def create(self, guest: GuestSpec, files: GuestFiles) -> None:
        text = str(guest.instance_id)
        with self._call("create") as database:
            added = database.execute(
                "INSERT OR IGNORE INTO guests (instance_id, power, hostname, vcpus, memory_mib, boots)"
                " VALUES (?, ?, ?, ?, ?, 1)",
                (text, PowerState.RUNNING, guest.hostname, guest.vcpus, guest.memory_mib),
            ).rowcount
            if added:
                record(database, text, "create", PowerState.RUNNING)
            else:
                boot(database, text)
        if files.config_drive is not None:
            if added:
                shutil.move(files.config_drive, self._config_drive(guest.instance_id))
            else:
                files.config_drive.unlink(missing_ok=True)

    def power_on(self, guest: GuestSpec) -> None:
        with self._call("power_on") as database:
            boot(database, str(guest.instance_id))

    def power_off(self, instance_id: InstanceId, grace_s: int) -> None:
        text = str(instance_id)
        with self._call("power_off") as database:
            if guest_of(database, text).power == PowerState.SHUTDOWN:
                return
        self._press_button(text, grace_s)
        with self._call("power_off", faulty=False) as database:
            cut(database, text)

    def reboot(self, instance_id: InstanceId, *, hard: bool, grace_s: int) -> None:
        text = str(instance_id)
        with self._call("reboot") as database:
            running = guest_of(database, text).power == PowerState.RUNNING
        if running and not hard:
            self._press_button(text, grace_s)
        with self._call("reboot", faulty=False) as database:
            cut(database, text)
            boot(database, text)

    def pause(self, instance_id: InstanceId) -> None:
        with self._call("pause") as database:
            hold(database, str(instance_id), "pause", PowerState.PAUSED)

    def unpause(self, instance_id: InstanceId) -> None:
        with self._call("unpause") as database:
            go_on(database, str(instance_id), "unpause", PowerState.PAUSED)

    def suspend(self, instance_id: InstanceId) -> None:
        with self._call("suspend") as database:
            hold(database, str(instance_id), "suspend", PowerState.SUSPENDED)

    def resume(self, instance_id: InstanceId) -> None:
        with self._call("resume") as database:
            go_on(database, str(instance_id), "resume", PowerState.SUSPENDED)

    def destroy(self, instance_id: InstanceId) -> None:
        text = str(instance_id)
        with self._call("destroy") as database:
            gone = database.execute("DELETE FROM guests WHERE instance_id = ?", (text,)).rowcount
            if gone:
                record(database, text, "destroy", PowerState.NO_STATE)
        if gone:
            self._config_drive(instance_id).unlink(missing_ok=True)

    def set_password(self, guest: GuestSpec, password: str) -> None:
        text = str(guest.instance_id)
        with self._call("set_password") as database:
            if guest_of(database, text).power != PowerState.RUNNING:
                raise DriverError(f"guest instance-{text} does not run")
            record(database, text, "set_password", PowerState.RUNNING)

    def console_output(self, instance_id: InstanceId) -> bytes:
        with self._call("console_output") as database:
            guest = guest_of(database, str(instance_id))
        return _console(guest)[-CONSOLE_BYTES:]

    def diagnostics(self, instance_id: InstanceId) -> Diagnostics:
        """Its guests do nothing, and nothing is what they have done."""
        with self._call("diagnostics") as database:
            guest = guest_of(database, str(instance_id))
        return Diagnostics(
            power_state=guest.power,
            driver="libvirt",  # as Nova's own fake says: clients know few words
            hypervisor="fake",
            memory_maximum_kib=guest.memory_mib * 1024,
            memory_used_kib=guest.memory_mib * 1024,
            cpus=tuple(CpuUse(number=number, time_ns=0) for number in range(guest.vcpus)),
            disks=(DiskUse(device="vda", read_bytes=0, read_requests=0, write_bytes=0, write_requests=0, errors=0),),
            nics=(
                NicUse(
                    device="eth0",
                    rx_octets=0,
                    rx_packets=0,
                    rx_errors=0,
                    rx_drop=0,
                    tx_octets=0,
                    tx_packets=0,
                    tx_errors=0,
                    tx_drop=0,
                ),
            ),
        )

    def watch(self, changed: Callable[[InstanceId], None]) -> None:
        if self._watcher is None:
            with self._call("watch", faulty=False) as database:
                (after,) = database.execute("SELECT ifnull(max(sequence), 0) FROM history").fetchone()
            self._watcher = threading.Thread(target=self._watch, args=(changed, after), daemon=True, name="fake-watch")
            self._watcher.start()

    def _watch(self, changed: Callable[[InstanceId], None], after: int) -> None:
        with closing(connect(self._directory)) as database:
            version = 0
            while not self._closing.wait(WATCH_INTERVAL_S):
                # moves when another connection has committed: nearly free to ask
                (now,) = database.execute("PRAGMA data_version").fetchone()
                if now == version:
                    continue
                version = now
                rows = database.execute(
                    "SELECT sequence, instance_id FROM history WHERE sequence > ? AND from_outside", (after,)
                ).fetchall()
                for sequence, text in rows:
                    after = sequence
                    changed(InstanceId(UUID(text)))

    def _press_button(self, text: str, grace_s: int) -> None:
        """Wait until the guest is off, unless it takes longer than `grace_s`; most guests obey at once."""
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            with self._call("power_off", faulty=False) as database:
                guest = guest_of(database, text)
            if not guest.ignores_button or guest.power == PowerState.SHUTDOWN:
                return
            self._closing.wait(BUTTON_INTERVAL_S)

    @contextmanager
    def _call(self, name: str, *, faulty: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction, unless the next call of this name was told to fail."""
        with self._lock:
            if self._database is None:
                raise HypervisorUnreachable("the fake hypervisor is not open")
            try:
                if faulty:
                    fail_if_told(self._database, name)
                with transaction(self._database):
                    yield self._database
            except sqlite3.Error as error:
                raise DriverError(f"the fake hypervisor in {self._directory}: {error}") from error

    def _config_drive(self, instance_id: InstanceId) -> Path:
        return self._directory / f"{instance_id}.config"


_BOOT_TEXT = """\
[    0.000000] Linux version 6.1.0-fake-amd64 (gcc-12) #1 SMP PREEMPT_DYNAMIC
[    0.000000] Command line: root=/dev/vda console=tty0 console=ttyS0
[    0.000000] DMI: OpenStack Foundation OpenStack Nova, BIOS fake
[    0.004000] Memory: {memory_kib}K/{memory_kib}K available
[    0.012000] smp: Brought up 1 node, {vcpus} CPU(s)
[    0.480000] virtio_net virtio0 eth0: link becomes ready
[    1.337000] systemd[1]: Hostname set to <{hostname}>.
[    2.718000] cloud-init[312]: Cloud-init finished. Datasource DataSourceConfigDrive
guest up {instance_id}

{hostname} login: """


def _console(guest: FakeGuest) -> bytes:
    """What the guest said in each of its boots, the newest last; enough of them to fill what is shown."""
    text = _BOOT_TEXT.format(
        memory_kib=guest.memory_mib * 1024,
        vcpus=guest.vcpus,
        hostname=guest.hostname,
        instance_id=guest.instance_id,
    )
    shown = min(guest.boots, CONSOLE_BYTES // len(text) + 1)
    return "\n".join([text] * shown).encode()
