"""What every hypervisor driver promises (`hostagent/drivers/protocol.py`), held against each of them: the
fake, libvirt's test driver inside the process and inside a daemon, and QEMU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import libvirt
import pytest

from commands.orders import GuestSpec
from domain.identifiers import InstanceId
from domain.instance.state import PowerState
from domain.resources import DISK_GB, MEMORY_MB, VCPU
from hostagent.drivers.fake import FakeDriver
from hostagent.drivers.fake_controls import add_stranger, fail_next, lose_guest, switch_power
from hostagent.drivers.libvirt.driver import LibvirtDriver, LibvirtSettings
from hostagent.drivers.protocol import Driver, DriverError, GuestFiles, HypervisorUnreachable
from tests.support.hypervisors import GuestImages, PrivateLibvirtd, eventually, guest_spec


@dataclass
class Hypervisor:
    """A driver, and what a test may do to its hypervisor from outside."""

    driver: Driver
    another: Callable[[], Driver]  # a driver of the same hypervisor, as after an agent's restart
    unreachable: Driver  # one whose hypervisor does not answer
    cut_power: Callable[[InstanceId], None]
    undefine: Callable[[InstanceId], None]
    add_stranger: Callable[[], str]
    files: Callable[[], GuestFiles]
    remove_strangers: Callable[[], None] = lambda: None
    guests: list[InstanceId] = field(default_factory=list)

    def spec(self) -> GuestSpec:
        spec = guest_spec()
        self.guests.append(spec.instance_id)
        return spec

    def created(self) -> GuestSpec:
        spec = self.spec()
        self.driver.create(spec, self.files())
        return spec

    def power(self, instance_id: InstanceId) -> int | None:
        observed = self.driver.observe().get(instance_id)
        assert self.driver.observe_guest(instance_id) == observed
        return None if observed is None else observed.power_state


def fake_hypervisor(tmp_path: Path) -> Hypervisor:
    directory, dead = tmp_path / "fake", tmp_path / "dead"
    unreachable = FakeDriver(dead)
    unreachable.open()
    for call in ("observe", "observe_guest"):
        fail_next(dead, call, unreachable=True)

    def stranger() -> str:
        add_stranger(directory, "database-3")
        return "database-3"

    return Hypervisor(
        driver=FakeDriver(directory),
        another=lambda: FakeDriver(directory),
        unreachable=unreachable,
        cut_power=lambda instance_id: switch_power(directory, instance_id, PowerState.SHUTDOWN),
        undefine=lambda instance_id: lose_guest(directory, instance_id),
        add_stranger=stranger,
        files=GuestFiles,
    )


def libvirt_hypervisor(uri: str, tmp_path: Path, images: GuestImages | None = None) -> Hypervisor:
    instances = tmp_path / "instances"
    strangers: list[str] = []

    def driver(uri: str = uri) -> Driver:
        return LibvirtDriver(LibvirtSettings(connection_uri=uri, instances_path=instances))

    def domain(instance_id: InstanceId) -> libvirt.virDomain:
        return libvirt.open(uri).lookupByUUIDString(str(instance_id))

    def undefine(instance_id: InstanceId) -> None:
        found = domain(instance_id)
        found.destroy()
        found.undefine()

    def stranger() -> str:
        name = f"database-{uuid4()}"
        strangers.append(name)
        kind = "qemu" if images else "test"
        libvirt.open(uri).defineXML(
            f"<domain type='{kind}'><name>{name}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>"
        )
        return name

    def remove_strangers() -> None:
        connection = libvirt.open(uri)
        for name in strangers:
            connection.lookupByName(name).undefine()

    def files() -> GuestFiles:
        if images is None:
            return GuestFiles()
        return GuestFiles(root_image=images.blank, root_format="qcow2", kernel=images.kernel, ramdisk=images.ramdisk)

    return Hypervisor(
        driver=driver(),
        another=driver,
        unreachable=driver(f"test+unix:///default?socket={tmp_path}/nobody"),
        cut_power=lambda instance_id: domain(instance_id).destroy(),
        undefine=undefine,
        add_stranger=stranger,
        files=files,
        remove_strangers=remove_strangers,
    )


@pytest.fixture(params=["fake", "libvirt-test", "libvirt-test-daemon", pytest.param("qemu", marks=pytest.mark.qemu)])
def hypervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hypervisor]:
    match request.param:
        case "fake":
            made = fake_hypervisor(tmp_path)
        case "libvirt-test":
            made = libvirt_hypervisor("test:///default", tmp_path)
        case "libvirt-test-daemon":
            daemon: PrivateLibvirtd = request.getfixturevalue("libvirtd")
            made = libvirt_hypervisor(daemon.test_uri, tmp_path)
        case _:
            daemon = request.getfixturevalue("libvirtd")
            made = libvirt_hypervisor(daemon.qemu_uri, tmp_path, request.getfixturevalue("guest_images"))
    made.driver.open()
    yield made
    for instance_id in made.guests:
        made.driver.destroy(instance_id)
    made.remove_strangers()
    made.driver.close()


def test_a_host_says_what_it_has(hypervisor: Hypervisor) -> None:
    facts = hypervisor.driver.facts()

    assert facts.hypervisor_hostname
    assert facts.hypervisor_version > 0
    assert facts.cpu_info.startswith("{")
    for resource_class in (VCPU, MEMORY_MB, DISK_GB):
        inventory = facts.inventories[resource_class]
        assert inventory.total >= inventory.max_unit > 0
        assert inventory.capacity > 0


def test_a_created_guest_runs(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_creating_a_guest_that_runs_changes_nothing(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    hypervisor.driver.create(guest, hypervisor.files())

    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING
    assert list(hypervisor.driver.observe()).count(guest.instance_id) == 1


def test_creating_a_guest_that_is_off_starts_it(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    hypervisor.driver.power_off(guest.instance_id, 0)

    hypervisor.driver.create(guest, hypervisor.files())

    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_a_config_drive_is_taken_over_by_a_new_guest_and_by_one_that_is_there(
    hypervisor: Hypervisor, tmp_path: Path
) -> None:
    guest = hypervisor.spec()
    files = hypervisor.files()
    for _ in range(2):
        drive = tmp_path / "drive"
        drive.write_bytes(b"\0" * 65536)

        hypervisor.driver.create(
            guest,
            GuestFiles(
                root_image=files.root_image,
                root_format=files.root_format,
                kernel=files.kernel,
                ramdisk=files.ramdisk,
                config_drive=drive,
            ),
        )

        assert not drive.exists()


def test_a_guest_is_switched_off_and_on_again_and_twice_is_once(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    for _ in range(2):
        hypervisor.driver.power_off(guest.instance_id, 0)
        assert hypervisor.power(guest.instance_id) == PowerState.SHUTDOWN
    for _ in range(2):
        hypervisor.driver.power_on(guest)
        assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_a_guest_runs_after_a_reboot_whether_it_ran_before_or_not(hypervisor: Hypervisor, hard: bool) -> None:
    guest = hypervisor.created()

    hypervisor.driver.reboot(guest.instance_id, hard=hard, grace_s=1)
    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING

    hypervisor.driver.power_off(guest.instance_id, 0)
    hypervisor.driver.reboot(guest.instance_id, hard=hard, grace_s=1)
    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


HELD = (PowerState.SUSPENDED, PowerState.SHUTDOWN)


def test_a_guest_is_paused_and_goes_on_and_twice_is_once(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    for _ in range(2):
        hypervisor.driver.pause(guest.instance_id)
        assert hypervisor.power(guest.instance_id) == PowerState.PAUSED
    for _ in range(2):
        hypervisor.driver.unpause(guest.instance_id)
        assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_a_guest_is_suspended_and_goes_on_and_twice_is_once(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    for _ in range(2):
        hypervisor.driver.suspend(guest.instance_id)
        assert hypervisor.power(guest.instance_id) in HELD
    for _ in range(2):
        hypervisor.driver.resume(guest.instance_id)
        assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_a_guest_that_is_off_can_be_neither_paused_nor_suspended(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    hypervisor.driver.power_off(guest.instance_id, 0)

    for call in (hypervisor.driver.pause, hypervisor.driver.unpause, hypervisor.driver.suspend):
        with pytest.raises(DriverError):
            call(guest.instance_id)

    assert hypervisor.power(guest.instance_id) == PowerState.SHUTDOWN


@pytest.mark.parametrize("held", ["pause", "suspend"])
def test_a_guest_that_is_held_boots_anew_when_it_is_rebooted_hard(hypervisor: Hypervisor, held: str) -> None:
    guest = hypervisor.created()
    getattr(hypervisor.driver, held)(guest.instance_id)

    hypervisor.driver.reboot(guest.instance_id, hard=True, grace_s=0)
    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING

    hypervisor.driver.power_off(guest.instance_id, 0)
    with pytest.raises(DriverError):  # nothing is left of what it was held with
        hypervisor.driver.unpause(guest.instance_id)


@pytest.mark.parametrize("held", ["pause", "suspend"])
def test_a_guest_that_is_held_can_be_destroyed(hypervisor: Hypervisor, held: str) -> None:
    guest = hypervisor.created()
    getattr(hypervisor.driver, held)(guest.instance_id)

    hypervisor.driver.destroy(guest.instance_id)

    assert hypervisor.power(guest.instance_id) is None


def test_a_destroyed_guest_is_gone_and_destroying_it_again_succeeds(hypervisor: Hypervisor) -> None:
    guest, bystander = hypervisor.created(), hypervisor.created()

    for _ in range(2):
        hypervisor.driver.destroy(guest.instance_id)

        assert hypervisor.power(guest.instance_id) is None
        assert hypervisor.power(bystander.instance_id) == PowerState.RUNNING


def test_a_guest_that_is_off_can_be_destroyed(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    hypervisor.driver.power_off(guest.instance_id, 0)

    hypervisor.driver.destroy(guest.instance_id)

    assert hypervisor.power(guest.instance_id) is None


def test_a_destroyed_guest_can_be_created_again(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    hypervisor.driver.destroy(guest.instance_id)

    hypervisor.driver.create(guest, hypervisor.files())

    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_a_guest_that_is_not_there_can_be_neither_switched_nor_read(hypervisor: Hypervisor) -> None:
    absent = guest_spec()
    driver = hypervisor.driver

    for call in (
        lambda: driver.power_on(absent),
        lambda: driver.power_off(absent.instance_id, 0),
        lambda: driver.reboot(absent.instance_id, hard=True, grace_s=0),
        lambda: driver.pause(absent.instance_id),
        lambda: driver.unpause(absent.instance_id),
        lambda: driver.suspend(absent.instance_id),
        lambda: driver.resume(absent.instance_id),
        lambda: driver.set_password(absent, "secret"),
        lambda: driver.diagnostics(absent.instance_id),
        lambda: driver.console_output(absent.instance_id),
    ):
        with pytest.raises(DriverError, match=str(absent.instance_id)):
            call()
    assert hypervisor.power(absent.instance_id) is None


def test_a_guest_with_a_console_can_be_read_at_once(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    assert len(hypervisor.driver.console_output(guest.instance_id)) <= 100 * 1024


def test_what_a_guest_uses_is_told(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    found = hypervisor.driver.diagnostics(guest.instance_id)

    assert found.power_state == PowerState.RUNNING
    assert found.memory_maximum_kib == guest.memory_mib * 1024
    assert [cpu.number for cpu in found.cpus] == list(range(guest.vcpus))
    assert found.nics
    hypervisor.driver.power_off(guest.instance_id, 0)
    assert hypervisor.driver.diagnostics(guest.instance_id).power_state == PowerState.SHUTDOWN


def test_a_password_that_nobody_can_set_is_not_told_again(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    hypervisor.driver.power_off(guest.instance_id, 0)

    with pytest.raises(DriverError) as refused:
        hypervisor.driver.set_password(guest, "correct horse")

    assert "correct horse" not in str(refused.value)


def test_a_guest_that_is_not_the_ledgers_is_named_and_never_observed(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()
    stranger = hypervisor.add_stranger()

    assert stranger in hypervisor.driver.unknown_guests()
    assert guest.domain_name not in hypervisor.driver.unknown_guests()
    assert hypervisor.power(guest.instance_id) == PowerState.RUNNING


def test_power_cut_from_outside_is_observed_and_heard(hypervisor: Hypervisor) -> None:
    heard: list[InstanceId] = []
    hypervisor.driver.watch(heard.append)
    guest = hypervisor.created()

    hypervisor.cut_power(guest.instance_id)

    assert hypervisor.power(guest.instance_id) == PowerState.SHUTDOWN
    eventually(lambda: guest.instance_id in heard, "the change was told")


def test_a_guest_undefined_from_outside_is_no_longer_observed(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    hypervisor.undefine(guest.instance_id)

    assert hypervisor.power(guest.instance_id) is None


def test_guests_outlive_the_driver_that_made_them(hypervisor: Hypervisor) -> None:
    guest = hypervisor.created()

    successor = hypervisor.another()
    successor.open()
    hypervisor.driver.close()
    observed = successor.observe()
    successor.close()
    hypervisor.driver.open()

    assert observed[guest.instance_id].power_state == PowerState.RUNNING


def test_several_guests_are_handled_at_once(hypervisor: Hypervisor) -> None:
    specs = [hypervisor.spec() for _ in range(4)]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda spec: hypervisor.driver.create(spec, hypervisor.files()), specs))
        assert all(hypervisor.power(spec.instance_id) == PowerState.RUNNING for spec in specs)
        list(threads.map(lambda spec: hypervisor.driver.power_off(spec.instance_id, 0), specs))
        assert all(hypervisor.power(spec.instance_id) == PowerState.SHUTDOWN for spec in specs)
        list(threads.map(lambda spec: hypervisor.driver.destroy(spec.instance_id), specs))

    assert not {spec.instance_id for spec in specs} & set(hypervisor.driver.observe())


def test_a_hypervisor_that_does_not_answer_is_unreachable_not_empty(hypervisor: Hypervisor) -> None:
    with pytest.raises(HypervisorUnreachable):
        hypervisor.unreachable.observe()
    with pytest.raises(HypervisorUnreachable):
        hypervisor.unreachable.observe_guest(guest_spec().instance_id)
