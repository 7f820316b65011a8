"""Hypervisors for tests: a private libvirtd, the guest images, and guests to make. `tests/conftest.py` offers
the fixtures to every test.

Nothing outlives the session: the daemon and its guests end when the pipe to their keeper closes, however the
tests end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from commands.orders import GuestSpec
from domain.identifiers import InstanceId, ProjectId, UserId
from domain.instance.events import AttachedInterface, ImageSpec

ROOT = Path(__file__).parents[2]
LIBVIRTD = ROOT / "deploy" / "libvirtd_private.py"
GUEST_IMAGE = ROOT / "deploy" / "guest-image.sh"
GUEST_MEMORY_MIB = 128
BOOT_LIMIT_S = 180  # a guest in software boots in 5 to 20 s on an idle machine


@dataclass(frozen=True, slots=True)
class PrivateLibvirtd:
    directory: Path

    @property
    def socket(self) -> Path:
        return self.directory / "run" / "libvirt-sock"

    @property
    def qemu_uri(self) -> str:
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def test_uri(self) -> str:
        """libvirt's test driver, held by the daemon: shared between processes, and lost with its last client."""
        return f"test+unix:///default?socket={self.socket}"

    def restart(self) -> None:
        """Kill the daemon alone and start another; QEMU guests go on running."""
        subprocess.run([LIBVIRTD, "restart", self.directory], check=True, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill the daemon alone; `restart` brings it back."""
        os.kill(int((self.directory / "daemon.pid").read_text()), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class GuestImages:
    """See deploy/guest-image.sh for what this guest says on its console."""

    directory: Path

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def ramdisk(self) -> Path:
        return self.directory / "initrd.gz"

    @property
    def blank(self) -> Path:
        """An empty qcow2 disk, the root image of a guest that boots from the kernel."""
        return self.directory / "blank.qcow2"

    @property
    def bootable(self) -> Path:
        """A qcow2 disk that boots by itself."""
        return self.directory / "disk.qcow2"


@contextmanager
def private_libvirtd(name: str = "ledger-host") -> Iterator[PrivateLibvirtd]:
    """A libvirtd in a folder of its own, for as long as the block lasts. Raises RuntimeError when it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="libvirtd-"))  # short: a socket's path has at most 107 bytes
    with (directory / "errors").open("w+") as errors:
        keeper = subprocess.Popen(
            [LIBVIRTD, "run", directory, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            if not keeper.stdout.readline():
                raise RuntimeError((directory / "errors").read_text())
            yield PrivateLibvirtd(directory)
        finally:
            keeper.stdin.close()
            keeper.wait(timeout=120)
            keeper.stdout.close()
            shutil.rmtree(directory, ignore_errors=True)


def build_guest_images() -> GuestImages:
    """Built once for the working copy, in a few seconds; needs Debian's packages."""
    directory = ROOT / ".cache" / "guest-image"
    subprocess.run([GUEST_IMAGE, directory], check=True, stdout=subprocess.DEVNULL)
    return GuestImages(directory)


def why_no_libvirtd() -> str | None:
    if os.geteuid() != 0:
        return "a private libvirtd needs root"
    for program in ("libvirtd", "qemu-system-x86_64", "qemu-img"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


@pytest.fixture(scope="session")
def libvirtd() -> Iterator[PrivateLibvirtd]:
    """One for the session. Tests that restart or kill a daemon start their own with `private_libvirtd`."""
    if (reason := why_no_libvirtd()) is not None:
        pytest.skip(reason)
    with private_libvirtd() as daemon:
        yield daemon


@pytest.fixture(scope="session")
def guest_images() -> GuestImages:
    if shutil.which("apt-get") is None:
        pytest.skip("the guest is built from Debian packages")
    return build_guest_images()


def guest_spec(
    instance_id: InstanceId | None = None,
    *,
    name: str = "a guest",
    hostname: str = "a-guest",
    memory_mib: int = GUEST_MEMORY_MIB,
    root_gib: int = 0,
    ephemeral_gib: int = 0,
    swap_mib: int = 0,
    properties: dict[str, str] | None = None,
    mac_address: str = "fa:16:3e:00:00:01",
    config_drive: bool = False,
) -> GuestSpec:
    """A small guest with one interface."""
    return GuestSpec(
        instance_id=instance_id or InstanceId(uuid4()),
        project_id=ProjectId("a-project"),
        user_id=UserId("a-user"),
        name=name,
        hostname=hostname,
        flavor_name="m1.test",
        vcpus=1,
        memory_mib=memory_mib,
        root_gib=root_gib,
        ephemeral_gib=ephemeral_gib,
        swap_mib=swap_mib,
        image=ImageSpec(image_id=str(uuid4()), properties=properties or {}, disk_format="qcow2"),
        interfaces=(AttachedInterface(network_id="net", network_name="private", mac_address=mac_address),),
        config_drive=config_drive,
    )


def eventually(condition: Callable[[], object], what: str, *, within_s: float = 30) -> None:
    """Return as soon as the condition holds; fail with `what` if it never does."""
    pause, deadline = threading.Event(), monotonic() + within_s
    while not condition():
        if monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        pause.wait(0.02)
