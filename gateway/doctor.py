"""`compute-ledger doctor`: what is here, what is missing, and how to get it. See also `doctor_distributed.py`."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FREE_GIB_WANTED = 5


@dataclass(frozen=True, slots=True)
class Found:
    what: str
    said: str
    weight: int = 0  # 0: fine; 1: something optional is missing; 2: the ledger cannot run

    @property
    def mark(self) -> str:
        return ("ok  ", "note", "FAIL")[self.weight]


def examine(data: Path) -> Iterator[Found]:
    yield Found("python", platform.python_version())
    yield Found("sqlite", sqlite3.sqlite_version)
    yield _directory(data)
    yield from _libvirt()
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("qemu-img", "qemu-utils")):
        path = shutil.which(program)
        if path is None:
            yield Found(program, f"missing; real guests need it: apt-get install {package}", 1)
        else:
            yield Found(program, path)
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and _virtualizes()
    yield Found("kvm", "usable" if usable else "not usable; guests run in software, slowly", int(not usable))
    client = shutil.which("openstack")
    yield Found("openstack client", client or "missing; pip install python-openstackclient", int(client is None))


def _virtualizes() -> bool:
    """Whether the processor says that it can run guests: a /dev/kvm that opens does not."""
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return "vmx" in words or "svm" in words or platform.machine() != "x86_64"


def _directory(data: Path) -> Found:
    place = data
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        return Found("data", f"{place} is not a directory", 2)
    if not os.access(place, os.W_OK):
        return Found("data", f"{place} cannot be written", 2)
    free_gib = shutil.disk_usage(place).free // 1024**3
    return Found("data", f"{data}, {free_gib} GiB free, {_kind(data)}", int(free_gib < FREE_GIB_WANTED))


def _kind(data: Path) -> str:
    if (data / "ledger.db").exists():
        return "an embedded ledger"
    if (data / "journal.db").exists():
        return "of a host's agent: its journal is there"
    if (data / "vault.key").exists() or (data / "views").exists():
        return "of roles of a distributed ledger, whose record is in its store"
    return "no ledger in it yet"


def _libvirt() -> Iterator[Found]:
    if importlib.util.find_spec("libvirt") is None:
        yield Found(
            "libvirt-python",
            "missing; only the fake driver works. apt-get install libvirt-dev pkg-config gcc, "
            "then pip install 'compute-ledger[libvirt]'",
            1,
        )
        return
    from hostagent.drivers.libvirt.driver import LibvirtDriver, LibvirtSettings
    from hostagent.drivers.protocol import DriverError

    driver = LibvirtDriver(LibvirtSettings())
    try:
        facts = driver.facts()
        yield Found("libvirtd", f"{facts.hypervisor_type} {facts.hypervisor_version} on {facts.hypervisor_hostname}")
    except DriverError as error:
        yield Found("libvirtd", f"{error}; apt-get install libvirt-daemon-system, or name one with --libvirt-uri", 1)
    finally:
        driver.close()
