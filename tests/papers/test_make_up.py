"""`make up`: what it starts, what it says, and that nothing of it is left."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest

from tests.support.hypervisors import BOOT_LIMIT_S, GuestImages, eventually, why_no_libvirtd
from tests.support.make_up import STOP_LIMIT_S, MakeUp, made_up, processes_of, start, wait_until_ready

pytestmark = pytest.mark.filterwarnings("ignore:::openstack")  # of its own parts


@pytest.fixture
def data() -> Iterator[Path]:
    """Short: there are sockets in it."""
    with tempfile.TemporaryDirectory(prefix="up-", ignore_cleanup_errors=True) as directory:
        yield Path(directory) / "data"


def cloud(ledger: MakeUp) -> Any:
    config = openstack.config.OpenStackConfig(config_files=[str(ledger.data / "clouds.yaml")], load_envvars=False)
    return openstack.connection.Connection(config=config.get_one("demo"))


def boot(demo: Any) -> Any:
    image, flavor = demo.image.find_image("tiny"), demo.compute.find_flavor("m1.tiny")
    server = demo.compute.create_server(name="first", image_id=image.id, flavor_id=flavor.id, networks="auto")
    return demo.compute.wait_for_server(server, interval=0.2, wait=BOOT_LIMIT_S)


def test_it_has_an_image_and_a_flavor_to_boot_from_and_has_them_once(data: Path) -> None:
    for _ in range(2):
        with made_up(data, driver="fake") as ledger, cloud(ledger) as demo:
            assert [image.name for image in demo.image.images()] == ["tiny"]
            assert [flavor.name for flavor in demo.compute.flavors()] == ["m1.tiny"]
    with made_up(data, driver="fake") as ledger, cloud(ledger) as demo:
        assert boot(demo).status == "ACTIVE"
        assert processes_of(data) != []
    assert processes_of(data) == []


def test_a_second_one_on_the_same_directory_says_where_the_first_answers(data: Path) -> None:
    with made_up(data, driver="fake") as ledger:
        second = start(data, DRIVER="fake")
        said, _ = second.communicate(timeout=STOP_LIMIT_S)
        assert second.returncode == 0
        assert f"answers at {ledger.url}\n" in said.decode()


def test_an_address_that_is_taken_is_said_in_one_line(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(data, DRIVER="fake", LISTEN=f"127.0.0.1:{port}")
        said, _ = process.communicate(timeout=STOP_LIMIT_S)
    assert process.returncode == 1
    assert said.decode() == f"make up: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert processes_of(data) == []


def test_a_driver_that_there_is_not_is_refused(data: Path) -> None:
    process = start(data, DRIVER="xen")
    said, _ = process.communicate(timeout=STOP_LIMIT_S)
    assert process.returncode == 1
    assert said.decode() == "make up: there is no driver xen; there are fake, test and libvirt\n"


@pytest.mark.qemu
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_real_guests_end_with_it(data: Path, guest_images: GuestImages, end: signal.Signals) -> None:
    if (reason := why_no_libvirtd()) is not None:
        pytest.skip(reason)
    process = start(data, DRIVER="libvirt")
    try:
        ledger = MakeUp(data, wait_until_ready(process), process)
        with cloud(ledger) as demo:
            assert demo.image.find_image("tiny").kernel_id
            assert boot(demo).status == "ACTIVE"
        assert any("qemu-system" in line for line in processes_of(data))
    finally:
        process.send_signal(end)
        said, _ = process.communicate(timeout=STOP_LIMIT_S)
    if end == signal.SIGINT:
        assert (process.returncode, said.decode().strip()) == (0, "Stopping.")
    eventually(lambda: not processes_of(data), "all that was started has ended", within_s=60)


def test_a_libvirtd_of_its_own_needs_no_root() -> None:
    if (reason := why_no_libvirtd()) is not None:
        pytest.skip(reason)
    script = Path(__file__).parents[2] / "deploy" / "libvirtd_private.py"
    with tempfile.TemporaryDirectory(prefix="session-") as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "home").mkdir()
        for path in (place, place / "home"):
            subprocess.run(["chown", "nobody", path], check=True)
        (place / "script.py").write_bytes(script.read_bytes())
        inner = Path(f"{place}/home/a-name-as-long-as-the-ones-of-peoples-homes-and-what-is-in-them")

        def run(*command: str | Path) -> str:
            return subprocess.run(
                [
                    "/usr/bin/env",
                    "-i",
                    f"HOME={place}/home",
                    "PATH=/usr/bin:/bin",
                    "python3",
                    place / "script.py",
                    *command,
                ],
                user="nobody",
                group="nogroup",
                extra_groups=[],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=STOP_LIMIT_S,
                check=True,
            ).stdout

        uri = run("start", inner, "a-host").strip()
        try:
            assert uri == f"qemu+unix:///session?socket={inner}/run/libvirt-sock"
            capabilities = subprocess.run(
                [sys.executable, "-c", f"import libvirt; print(libvirt.open({uri!r}).getCapabilities())"],
                capture_output=True,
                text=True,
                timeout=STOP_LIMIT_S,
                check=True,
            ).stdout
            assert "<domain type='qemu'" in capabilities
        finally:
            run("stop", inner)
        assert processes_of(inner) == []
