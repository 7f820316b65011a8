"""`make up`: the ledger, a hypervisor for it, a first image and flavor, until Ctrl-C; then nothing of it runs any more.

From the environment, each optional: DATA (where all state is kept), LISTEN (HOST:PORT), DRIVER (fake, test, libvirt;
unset: libvirt if it can be had, else test, else fake), CONFIG (an oslo.config file). `deploy/set-up.sh` comes before.

The libvirtd of a machine is used where its QEMU can reach the guests' disks; else one of the ledger's own is started
(`deploy/libvirtd_private.py`), and that one's guests end with it.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
PROGRAM = Path(sys.executable).with_name("compute-ledger")
STOP_LIMIT_S = 90
PR_SET_PDEATHSIG = 1  # prctl(2)

IMAGE, FLAVOR = "tiny", "m1.tiny"
GUEST_ARGUMENTS = "console=ttyS0 no_timer_check quiet"  # of the tiny guest's kernel

WELCOME = """
Compute Ledger answers at {url}
  hypervisor: {hypervisor}
  state:      {data}
  log:        {data}/up.log

To log in, in another terminal:
  export OS_CLIENT_CONFIG_FILE={data}/clouds.yaml OS_CLOUD=demo
  export PATH={programs}:$PATH COMPUTE_LEDGER_DATA={data}

To try:
  openstack server create --image {image} --flavor {flavor} --wait first
  openstack console log show first
  openstack server delete --wait first
"""


class CannotStart(Exception):
    """One line that says why."""


@dataclass(frozen=True, slots=True)
class Hypervisor:
    driver: str
    said: str
    uri: str | None = None  # None: the driver's default


def main() -> int:
    data = Path(os.environ.get("DATA") or "~/.local/share/compute-ledger").expanduser().absolute()
    asked = os.environ.get("DRIVER") or None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        if asked not in (None, "fake", "test", "libvirt"):
            raise CannotStart(f"there is no driver {asked}; there are fake, test and libvirt")
        if is_running(data):
            say(f"A ledger with its state in {data} is running already; nothing was started or changed.")
            welcome(data, address_in(data), Hypervisor("", "as chosen when it was started"))
            return 0
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as started:
            hypervisor = choose(asked, data, started)
            ledger, url = started.enter_context(running(data, hypervisor))
            furnish(data, hypervisor)
            welcome(data, url, hypervisor)
            say("Ctrl-C stops it.")
            if code := ledger.wait():
                raise CannotStart(f"the ledger ended with code {code}: {last_line(data / 'up.log')}")
    except CannotStart as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    return 0


def say(line: str) -> None:
    print(line, flush=True)


def stop(_number: int, _frame: object) -> NoReturn:
    """Leave what is being done, and with it every block that ends what it started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    say("\nStopping.")
    raise SystemExit(0)


def welcome(data: Path, url: str, hypervisor: Hypervisor) -> None:
    programs = Path(sys.executable).parent
    say(
        WELCOME.format(
            url=url, hypervisor=hypervisor.said, data=data, programs=programs, image=IMAGE, flavor=FLAVOR
        ).rstrip()
        + "\n"
    )


# The hypervisor


def choose(asked: str | None, data: Path, started: ExitStack) -> Hypervisor:
    """Raises:
    CannotStart: what was asked for cannot be had.
    """
    if asked == "fake":
        return Hypervisor("fake", "simulated (driver fake)")
    reason = why_no_libvirt()
    if asked == "test":
        if reason:
            raise CannotStart(reason)
        return Hypervisor("test", "libvirt's test driver: guests are kept in memory only (driver test)")
    if reason is None:
        try:
            return real_guests(data, started)
        except CannotStart as error:
            reason = str(error)
    if asked == "libvirt":
        raise CannotStart(reason)
    say(f"No real guests: {reason}.")
    return choose("fake" if why_no_libvirt() else "test", data, started)


def why_no_libvirt() -> str | None:
    return None if importlib.util.find_spec("libvirt") else "libvirt-python is not installed"


def real_guests(data: Path, started: ExitStack) -> Hypervisor:
    """Raises:
    CannotStart
    """
    how = "with KVM" if kvm_works() else "in software"
    reason = why_not_the_machines(data)
    if reason is None:
        return Hypervisor("libvirt", f"QEMU {how}, by the libvirtd of this machine (driver libvirt)")
    uri = started.enter_context(libvirtd(data / "libvirt"))
    return Hypervisor("libvirt", f"QEMU {how}, by a libvirtd of its own: {reason} (driver libvirt)", uri)


def why_not_the_machines(data: Path) -> str | None:
    """Why qemu:///system is of no use, if it is not."""
    import libvirt

    if os.geteuid() != 0:
        return "only root can read the consoles of the machine's"
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        connection = libvirt.open("qemu:///system")
    except libvirt.libvirtError:
        return "the machine runs none"
    try:
        user, group = qemu_user(connection.getCapabilities())
    finally:
        connection.close()
    if user != 0 and not may_enter(user, group, data / "hosts" / "1"):
        return f"the machine's runs QEMU as user {user}, who may not enter {data}/hosts/1"
    return None


def qemu_user(capabilities: str) -> tuple[int, int]:
    """The user and group that QEMU runs as: what libvirt labels its files with (`+64055:+109`)."""
    for model in ET.fromstring(capabilities).iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            user, group = (int(part.lstrip("+")) for part in model.findtext("baselabel", "+0:+0").split(":"))
            return user, group
    return 0, 0


def may_enter(user: int, group: int, directory: Path) -> bool:
    """Whether this user may pass through it; asked as that user, as an access list may say so."""
    return (
        subprocess.run(["test", "-x", directory], user=user, group=group, extra_groups=[], check=False).returncode == 0
    )


def kvm_works() -> bool:
    """The device alone does not tell: there are kernels that offer it and cannot run a PC's guests."""
    processor = re.search(r"\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text())
    return processor is not None and os.access("/dev/kvm", os.R_OK | os.W_OK)


@contextmanager
def libvirtd(directory: Path) -> Iterator[str]:
    """A libvirtd of one's own, by its URI; it ends with the block or with this process, and its guests with it.

    Raises:
        CannotStart
    """
    environment = dict(os.environ) | ({"LIBVIRTD_PRIVATE_KVM": "1"} if kvm_works() else {})
    keeper = subprocess.Popen(
        [sys.executable, DEPLOY / "libvirtd_private.py", "run", directory, socket.gethostname()],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process alone
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    try:
        uri = keeper.stdout.readline().strip()
        if not uri:
            lines = [line for line in keeper.stderr.read().splitlines() if line]
            raise CannotStart(": ".join(reversed(lines[-2:])) or "libvirtd did not start")
        yield uri
    finally:
        keeper.stdin.close()
        keeper.wait(STOP_LIMIT_S)


# The ledger


@contextmanager
def running(data: Path, hypervisor: Hypervisor) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The ledger's process and its URL, once it answers.

    Raises:
        CannotStart
    """
    command: list[str | Path] = [PROGRAM, "up", "--data", data, "--driver", hypervisor.driver]
    command += ["--listen", os.environ.get("LISTEN") or "127.0.0.1:8774"]
    command += ["--libvirt-uri", hypervisor.uri] if hypervisor.uri else []
    if hypervisor.driver == "libvirt" and not kvm_works():
        settings = data / "up.conf"
        settings.write_text("[libvirt]\nvirt_type = qemu\n")
        command += ["--config-file", settings]
    if own := os.environ.get("CONFIG"):
        command += ["--config-file", own]
    with (data / "up.log").open("ab") as log:
        ledger = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    assert ledger.stdout is not None
    try:
        word, _, said = ledger.stdout.readline().strip().partition(" ")
        if word != "ready":
            ledger.wait()
            raise CannotStart(last_line(data / "up.log"))
        yield ledger, said.partition(" ")[0]
    finally:
        ledger.terminate()
        try:
            ledger.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            ledger.kill()
            ledger.wait()


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("compute-ledger: ") if lines else "nothing was logged"


def is_running(data: Path) -> bool:
    """Whether some process has the ledger in this directory open."""
    try:
        with (data / "lock").open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except FileNotFoundError:
        pass
    return False


def address_in(data: Path) -> str:
    try:
        found = re.search(r"auth_url: *\"?(https?://[^/\s\"]+)", (data / "clouds.yaml").read_text())
    except OSError:
        found = None
    return found[1] if found else "an address that its clouds.yaml does not tell"


# What is in it at first


def furnish(data: Path, hypervisor: Hypervisor) -> None:
    """The image and the flavor that the welcome names, unless they are there."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        del os.environ[name]
    import openstack

    config = openstack.config.OpenStackConfig(config_files=[str(data / "clouds.yaml")], load_envvars=False)
    with openstack.connection.Connection(config=config.get_one("admin")) as cloud:
        if cloud.compute.find_flavor(FLAVOR) is None:
            cloud.compute.create_flavor(name=FLAVOR, ram=128, vcpus=1, disk=1)
        found = image(cloud, IMAGE)
        boots = found is not None and found.kernel_id is not None
        if found is not None and (boots or hypervisor.driver != "libvirt"):
            return
        guest = build_guest() if hypervisor.driver == "libvirt" else None
        if found is not None and guest is None:
            return
        if found is not None:
            cloud.image.delete_image(found)
        upload(cloud, data, guest)


def build_guest() -> Path | None:
    """Where the tiny guest's kernel, ramdisk and empty disk are."""
    say("Building a tiny guest from packages, once")
    done = subprocess.run(
        [DEPLOY / "guest-image.sh", ROOT / ".cache" / "guest-image"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return Path(done.stdout.strip())
    lines = done.stderr.strip().splitlines()
    say(f"The image {IMAGE} will be an empty disk, no guest could be built: {lines[-1] if lines else 'no word why'}")
    return None


def upload(cloud: Any, data: Path, guest: Path | None) -> None:
    properties = {}
    disk = data / "up.disk"
    if guest is None:
        disk.write_bytes(bytes(1 << 20))
    else:
        shutil.copyfile(guest / "blank.qcow2", disk)
        properties["os_command_line"] = GUEST_ARGUMENTS
        for name, file, property_name in (
            (f"{IMAGE}-kernel", "vmlinuz", "kernel_id"),
            (f"{IMAGE}-ramdisk", "initrd.gz", "ramdisk_id"),
        ):
            part = image(cloud, name) or add(cloud, name, guest / file, "raw", {})
            properties[property_name] = part.id
    add(cloud, IMAGE, disk, "qcow2" if guest else "raw", properties)
    disk.unlink()


def image(cloud: Any, name: str) -> Any:
    """The active image with this name; one whose upload was broken off is thrown away."""
    for found in cloud.image.images(name=name):
        if found.status == "active":
            return found
        cloud.image.delete_image(found)
    return None


def add(cloud: Any, name: str, file: Path, disk_format: str, properties: dict[str, str]) -> Any:
    return cloud.image.create_image(
        name=name,
        filename=str(file),
        disk_format=disk_format,
        container_format="bare",
        visibility="public",
        allow_duplicates=True,
        **properties,
    )


if __name__ == "__main__":
    raise SystemExit(main())
