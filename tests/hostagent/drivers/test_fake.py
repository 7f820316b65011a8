import subprocess
import sys
import threading
from pathlib import Path

import pytest

from domain.instance.state import PowerState
from hostagent.drivers.fake import FakeDriver
from hostagent.drivers.fake_controls import (
    creates,
    fail_next,
    heal,
    history,
    ignore_power_button,
    ran_twice,
    switch_power,
)
from hostagent.drivers.protocol import DriverError, GuestFiles, HypervisorUnreachable
from tests.support.hypervisors import eventually, guest_spec


def opened(directory: Path) -> FakeDriver:
    driver = FakeDriver(directory, vcpus=8, memory_mib=4096, disk_gib=100)
    driver.open()
    return driver


def test_it_counts_how_often_each_guest_was_made(tmp_path: Path) -> None:
    driver, once, twice = opened(tmp_path), guest_spec(), guest_spec()

    driver.create(once, GuestFiles())
    driver.create(once, GuestFiles())
    driver.create(twice, GuestFiles())
    driver.destroy(twice.instance_id)
    driver.create(twice, GuestFiles())

    assert creates(tmp_path) == {once.instance_id: 1, twice.instance_id: 2}


def test_it_survives_its_process_being_killed(tmp_path: Path) -> None:
    guest = guest_spec()
    program = f"""
import os, signal
from pathlib import Path
from uuid import UUID
from hostagent.drivers.fake import FakeDriver
from hostagent.drivers.protocol import GuestFiles
from tests.support.hypervisors import guest_spec
driver = FakeDriver(Path({str(tmp_path)!r}))
driver.open()
driver.create(guest_spec(UUID({str(guest.instance_id)!r})), GuestFiles())
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[3])

    observed = opened(tmp_path).observe()

    assert observed[guest.instance_id].power_state == PowerState.RUNNING


def test_a_call_fails_as_often_as_it_is_told_to_and_does_nothing(tmp_path: Path) -> None:
    driver, guest = opened(tmp_path), guest_spec()
    fail_next(tmp_path, "create", "no space left", times=2)

    for _ in range(2):
        with pytest.raises(DriverError, match="no space left"):
            driver.create(guest, GuestFiles())
    assert driver.observe() == {}

    driver.create(guest, GuestFiles())
    assert guest.instance_id in driver.observe()


def test_it_can_be_unreachable_until_healed(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    fail_next(tmp_path, "observe", unreachable=True, times=1000)
    with pytest.raises(HypervisorUnreachable):
        driver.observe()

    heal(tmp_path)

    assert driver.observe() == {}


def test_a_guest_that_ignores_its_button_has_its_power_cut_when_the_grace_is_over(tmp_path: Path) -> None:
    driver, guest = opened(tmp_path), guest_spec()
    driver.create(guest, GuestFiles())
    ignore_power_button(tmp_path, guest.instance_id)

    stopping = threading.Thread(target=driver.power_off, args=(guest.instance_id, 3600), daemon=True)
    stopping.start()
    assert driver.observe()[guest.instance_id].power_state == PowerState.RUNNING
    switch_power(tmp_path, guest.instance_id, PowerState.SHUTDOWN)  # else this test would take an hour
    stopping.join(30)
    assert not stopping.is_alive()

    driver.power_on(guest)
    driver.power_off(guest.instance_id, 0)
    assert driver.observe()[guest.instance_id].power_state == PowerState.SHUTDOWN


def test_only_changes_from_outside_are_heard(tmp_path: Path) -> None:
    driver, guest = opened(tmp_path), guest_spec()
    heard: list[object] = []
    driver.watch(heard.append)

    driver.create(guest, GuestFiles())
    driver.power_off(guest.instance_id, 0)
    switch_power(tmp_path, guest.instance_id, PowerState.RUNNING)

    eventually(lambda: heard, "the change was told")
    assert heard == [guest.instance_id]
    driver.close()


def test_a_guest_on_two_hypervisors_is_found_out_only_if_it_ran_on_both_at_once(tmp_path: Path) -> None:
    one, two, moved, doubled = opened(tmp_path / "1"), opened(tmp_path / "2"), guest_spec(), guest_spec()

    one.create(moved, GuestFiles())
    one.power_off(moved.instance_id, 0)
    two.create(moved, GuestFiles())
    one.create(doubled, GuestFiles())
    two.create(doubled, GuestFiles())
    one.destroy(doubled.instance_id)

    assert ran_twice([tmp_path / "1", tmp_path / "2"]) == {doubled.instance_id}


def test_it_remembers_what_was_done_in_order(tmp_path: Path) -> None:
    driver, guest = opened(tmp_path), guest_spec()

    driver.create(guest, GuestFiles())
    driver.reboot(guest.instance_id, hard=True, grace_s=0)
    switch_power(tmp_path, guest.instance_id, PowerState.SHUTDOWN)
    driver.destroy(guest.instance_id)

    assert [(entry.did, entry.from_outside) for entry in history(tmp_path)] == [
        ("create", False),
        ("cut", False),
        ("boot", False),
        ("cut", True),
        ("destroy", False),
    ]


def test_a_console_tells_of_each_boot_and_stays_within_its_bound(tmp_path: Path) -> None:
    driver, guest = opened(tmp_path), guest_spec(hostname="web-1")
    driver.create(guest, GuestFiles())
    assert driver.console_output(guest.instance_id).endswith(b"web-1 login: ")

    for _ in range(300):
        driver.reboot(guest.instance_id, hard=True, grace_s=0)

    said = driver.console_output(guest.instance_id)
    assert len(said) == 100 * 1024
    assert said.count(f"guest up {guest.instance_id}".encode()) > 100
