"""Real guests in QEMU: what they say on their consoles is the proof. What every driver must do is in tests/contracts."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import libvirt
import pytest

from commands.orders import GuestSpec
from domain.instance.events import BlockDevice
from domain.instance.state import PowerState
from hostagent.config_drive import ConfigDrivePayload, write_config_drive
from hostagent.drivers.libvirt.driver import LibvirtDriver, LibvirtSettings
from hostagent.drivers.protocol import DriverError, GuestFiles, HypervisorUnreachable
from tests.support.hypervisors import (
    BOOT_LIMIT_S,
    GuestImages,
    PrivateLibvirtd,
    eventually,
    guest_spec,
    private_libvirtd,
)

pytestmark = pytest.mark.qemu


@pytest.fixture
def instances(tmp_path: Path) -> Path:
    return tmp_path / "instances"


@pytest.fixture
def driver(libvirtd: PrivateLibvirtd, instances: Path) -> Iterator[LibvirtDriver]:
    made = LibvirtDriver(LibvirtSettings(connection_uri=libvirtd.qemu_uri, instances_path=instances))
    made.open()
    yield made
    for instance_id in made.observe():
        made.destroy(instance_id)
    made.close()


def kernel_files(images: GuestImages) -> GuestFiles:
    return GuestFiles(root_image=images.blank, root_format="qcow2", kernel=images.kernel, ramdisk=images.ramdisk)


def wait_until_up(driver: LibvirtDriver, guest: GuestSpec, *, boots: int = 1) -> str:
    """What the guest has said, once it has come up this many times."""
    up = f"guest up {guest.instance_id}".encode()
    eventually(
        lambda: driver.console_output(guest.instance_id).count(up) == boots,
        f"the guest came up {boots} times",
        within_s=BOOT_LIMIT_S,
    )
    return driver.console_output(guest.instance_id).decode(errors="replace")


def test_a_guest_boots_with_its_disks_its_address_and_its_config_drive(
    driver: LibvirtDriver, guest_images: GuestImages, tmp_path: Path
) -> None:
    guest = guest_spec(
        hostname="web-1",
        root_gib=1,
        ephemeral_gib=2,
        swap_mib=256,
        mac_address="fa:16:3e:12:34:56",
        config_drive=True,
    )
    drive = tmp_path / "drive"
    payload = ConfigDrivePayload(user_data=b"#cloud-config\n\xff\n")
    write_config_drive(drive, guest, payload, seed=b"s", now=datetime.now(UTC))

    driver.create(guest, replace(kernel_files(guest_images), config_drive=drive))
    said = wait_until_up(driver, guest)

    assert "config-drive hostname=web-1.novalocal" in said
    assert f"config-drive uuid={guest.instance_id}" in said
    assert f"config-drive user_data sha256={hashlib.sha256(payload.user_data or b'').hexdigest()}" in said
    assert f"disk vda {1 << 30}" in said
    assert f"disk vdb {2 << 30}" in said
    assert f"disk vdc {256 << 20}" in said
    assert "fa:16:3e:12:34:56" in said


def test_a_guest_boots_from_its_disk_and_shuts_down_when_its_button_is_pressed(
    driver: LibvirtDriver, guest_images: GuestImages
) -> None:
    guest = guest_spec(memory_mib=160)
    driver.create(guest, GuestFiles(root_image=guest_images.bootable, root_format="qcow2"))
    wait_until_up(driver, guest)

    pressed_at = monotonic()
    driver.power_off(guest.instance_id, BOOT_LIMIT_S)

    assert driver.observe()[guest.instance_id].power_state == PowerState.SHUTDOWN
    assert monotonic() - pressed_at < BOOT_LIMIT_S
    assert b"power button" in driver.console_output(guest.instance_id)


def test_a_button_pressed_before_the_guest_is_up_is_pressed_again(
    driver: LibvirtDriver, guest_images: GuestImages
) -> None:
    guest = guest_spec()
    driver.create(guest, kernel_files(guest_images))

    driver.power_off(guest.instance_id, BOOT_LIMIT_S)

    assert b"power button" in driver.console_output(guest.instance_id)


def test_a_soft_reboot_lets_the_guest_end_and_begin_again(driver: LibvirtDriver, guest_images: GuestImages) -> None:
    guest = guest_spec()
    driver.create(guest, kernel_files(guest_images))
    wait_until_up(driver, guest)

    driver.reboot(guest.instance_id, hard=False, grace_s=BOOT_LIMIT_S)

    assert "power button" in wait_until_up(driver, guest, boots=2)


def test_a_guest_is_counted_and_a_suspended_one_goes_on_from_its_memory_unless_it_is_rebooted_hard(
    driver: LibvirtDriver, guest_images: GuestImages, libvirtd: PrivateLibvirtd
) -> None:
    guest = guest_spec()
    driver.create(guest, kernel_files(guest_images))
    wait_until_up(driver, guest)
    domain = libvirt.open(libvirtd.qemu_uri).lookupByUUIDString(str(guest.instance_id))
    used = driver.diagnostics(guest.instance_id)
    assert used.cpus[0].time_ns
    assert used.disks[0].device == "vda"
    assert used.nics[0].mac_address

    driver.suspend(guest.instance_id)
    driver.resume(guest.instance_id)
    assert domain.state() == [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_RESTORED]
    driver.suspend(guest.instance_id)
    driver.reboot(guest.instance_id, hard=True, grace_s=0)

    wait_until_up(driver, guest, boots=2)


def test_a_guest_that_ends_by_itself_is_heard_of(
    driver: LibvirtDriver, guest_images: GuestImages, libvirtd: PrivateLibvirtd
) -> None:
    heard: list[object] = []
    driver.watch(heard.append)
    guest = guest_spec()
    driver.create(guest, kernel_files(guest_images))
    wait_until_up(driver, guest)
    assert heard == []

    libvirt.open(libvirtd.qemu_uri).lookupByUUIDString(str(guest.instance_id)).shutdown()

    eventually(lambda: guest.instance_id in heard, "its end was told", within_s=BOOT_LIMIT_S)
    eventually(
        lambda: driver.observe()[guest.instance_id].power_state == PowerState.SHUTDOWN,
        "it was observed to be off",
        within_s=BOOT_LIMIT_S,
    )


def test_nothing_of_a_destroyed_guest_is_left(
    driver: LibvirtDriver, guest_images: GuestImages, instances: Path
) -> None:
    guest = guest_spec(swap_mib=16)
    driver.create(guest, kernel_files(guest_images))
    assert (instances / str(guest.instance_id) / "disk.swap").exists()

    driver.destroy(guest.instance_id)

    assert list(instances.iterdir()) == []
    assert driver.observe() == {}
    assert guest_images.kernel.exists()


def test_nothing_of_a_guest_that_cannot_be_started_is_left(
    libvirtd: PrivateLibvirtd, guest_images: GuestImages, instances: Path
) -> None:
    driver = LibvirtDriver(
        LibvirtSettings(connection_uri=libvirtd.qemu_uri, instances_path=instances, bridge="no-such-bridge")
    )

    with pytest.raises(DriverError, match="no-such-bridge"):
        driver.create(guest_spec(), kernel_files(guest_images))

    assert driver.observe() == {}
    assert list(instances.iterdir()) == []
    driver.close()


def test_an_image_larger_than_the_flavors_disk_is_refused(
    driver: LibvirtDriver, tmp_path: Path, instances: Path
) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate((1 << 30) + 1)

    with pytest.raises(DriverError, match="the flavor gives"):
        driver.create(guest_spec(root_gib=1), GuestFiles(root_image=image, root_format="raw"))

    assert list(instances.iterdir()) == []


def test_an_image_that_reaches_for_the_hosts_files_is_refused(driver: LibvirtDriver, tmp_path: Path) -> None:
    image = tmp_path / "image"
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-F", "raw", "-b", "/etc/passwd"]
    subprocess.run([*create, image, "1M"], check=True)

    with pytest.raises(DriverError, match="not safe"):
        driver.create(guest_spec(), GuestFiles(root_image=image, root_format="qcow2"))


def test_an_image_that_is_not_what_it_is_said_to_be_is_refused(driver: LibvirtDriver, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"\0" * 65536)

    with pytest.raises(DriverError, match="said to be qcow2"):
        driver.create(guest_spec(), GuestFiles(root_image=image, root_format="qcow2"))


def test_a_volume_is_refused_rather_than_left_out(driver: LibvirtDriver, guest_images: GuestImages) -> None:
    volume = BlockDevice(device_id="d", source_type="volume", destination_type="volume", boot_index=0)

    with pytest.raises(DriverError, match="volumes"):
        driver.create(replace(guest_spec(), block_devices=(volume,)), kernel_files(guest_images))


def test_what_an_interrupted_create_left_does_not_stand_in_the_way(
    driver: LibvirtDriver, guest_images: GuestImages, instances: Path
) -> None:
    guest = guest_spec()
    left = instances / str(guest.instance_id)
    left.mkdir(parents=True)
    (left / "disk").write_bytes(b"half")

    driver.create(guest, kernel_files(guest_images))

    assert driver.observe()[guest.instance_id].power_state == PowerState.RUNNING


def test_guests_run_on_while_the_daemon_is_away_and_the_driver_finds_it_again(
    guest_images: GuestImages, instances: Path
) -> None:
    with private_libvirtd("fragile") as daemon:
        driver = LibvirtDriver(LibvirtSettings(connection_uri=daemon.qemu_uri, instances_path=instances))
        driver.open()
        heard: list[object] = []
        driver.watch(heard.append)
        guest = guest_spec()
        driver.create(guest, kernel_files(guest_images))

        daemon.kill()
        with pytest.raises(HypervisorUnreachable):
            driver.observe()
        daemon.restart()

        eventually(
            lambda: driver.observe()[guest.instance_id].power_state == PowerState.RUNNING,
            "it is found running",
        )
        wait_until_up(driver, guest)
        libvirt.open(daemon.qemu_uri).lookupByUUIDString(str(guest.instance_id)).destroy()
        eventually(lambda: guest.instance_id in heard, "changes are heard again")
        driver.destroy(guest.instance_id)
        driver.close()
