"""A user with the unmodified `openstack` client and a real guest in QEMU, from the first login to the last delete.

The tests are the chapters of one story, in order: they share a ledger, and the guest that the first of them boots. It is
told of an embedded ledger with one host, and of a distributed one: two gateways that the commands reach in turn, every other
role twice, two hosts with a libvirtd each.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import libvirt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support.hypervisors import BOOT_LIMIT_S, GuestImages, PrivateLibvirtd, eventually, private_libvirtd
from tests.support.ledger_process import LedgerProcess, running_ledger
from tests.support.region import RegionLedger, running_region

pytestmark = pytest.mark.qemu

OPENSTACK = Path(sys.executable).with_name("openstack")
LIMIT_S = BOOT_LIMIT_S + 60  # for one command; some wait for a guest to shut down
BOOT_ARGUMENTS = "console=ttyS0 no_timer_check"
USER_DATA = b"#!/bin/sh\necho the user's own script\n"

Openstack = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    ledger: LedgerProcess | RegionLedger
    libvirtds: Sequence[PrivateLibvirtd]  # one a host
    clouds_files: Sequence[Path]  # one a gateway


@pytest.fixture(scope="module", params=["embedded", "distributed"])
def deployment(
    request: pytest.FixtureRequest, libvirtd: PrivateLibvirtd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    if request.param == "embedded":
        directory = tmp_path_factory.mktemp("openstack")
        with running_ledger(directory, driver="libvirt", libvirt_uri=libvirtd.qemu_uri) as process:
            yield Deployment(process, [libvirtd], [process.directory / "clouds.yaml"])
        return
    with private_libvirtd("ledger-host-2") as second, running_region(hosts=0) as region:
        daemons = {"host-1": libvirtd, "host-2": second}
        more = {name: ("--driver", "libvirt", "--libvirt-uri", daemon.qemu_uri) for name, daemon in daemons.items()}
        region.add_agents(*daemons, arguments=more)
        yield Deployment(region, [libvirtd, second], region.clouds_files())


@pytest.fixture(scope="module")
def ledger(deployment: Deployment) -> LedgerProcess | RegionLedger:
    return deployment.ledger


@pytest.fixture(scope="module")
def openstack(deployment: Deployment) -> Openstack:
    """Run the client as one of the two users, and read its answer."""
    gateways = cycle(deployment.clouds_files)

    def run(cloud: str, *command: str, fails: bool = False) -> Any:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        environment |= {"OS_CLIENT_CONFIG_FILE": str(next(gateways)), "OS_CLOUD": cloud}
        done = subprocess.run(
            [OPENSTACK, *command], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        log = deployment.ledger.log_file.read_text()[-2000:]
        assert (done.returncode != 0) == fails, f"{command}: {done.stderr}{log}"
        if fails:
            return done.stderr
        return json.loads(done.stdout) if command[-2:] == ("-f", "json") else done.stdout

    return run


@pytest.fixture(scope="module")
def public_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    file = tmp_path_factory.mktemp("keys") / "id.pub"
    file.write_bytes(text + b" someone@somewhere\n")
    return file


@pytest.fixture(scope="module")
def cloud(openstack: Openstack, guest_images: GuestImages, public_key: Path) -> None:
    """What a server is made of: three images, a flavor, a key pair."""

    def image(name: str, file: Path, disk_format: str, *more: str) -> str:
        create = ("image", "create", "--file", str(file), "--disk-format", disk_format, "--container-format", "bare")
        made = openstack("demo", *create, *more, name, "-f", "json")
        assert made["status"] == "active"
        return str(made["id"])

    kernel = image("kernel", guest_images.kernel, "raw")
    ramdisk = image("ramdisk", guest_images.ramdisk, "raw")
    properties = {"kernel_id": kernel, "ramdisk_id": ramdisk, "os_command_line": BOOT_ARGUMENTS}
    image("disk", guest_images.blank, "qcow2", *(w for p in properties.items() for w in ("--property", "=".join(p))))
    openstack("admin", "flavor", "create", "--ram", "128", "--disk", "1", "--vcpus", "1", "m1.tiny")
    openstack("demo", "keypair", "create", "--public-key", str(public_key), "mine")


@pytest.fixture(scope="module")
def server(cloud: None, openstack: Openstack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a server that is ACTIVE: `openstack server create --wait` says so."""
    script = tmp_path_factory.mktemp("user-data") / "script"
    script.write_bytes(USER_DATA)
    made = openstack(
        "demo", "server", "create", "--wait", "--image", "disk", "--flavor", "m1.tiny", "--key-name", "mine",
        "--user-data", str(script), "--property", "role=web", "web-1", "-f", "json",
    )  # fmt: skip
    assert made["status"] == "ACTIVE"
    assert made["adminPass"]
    return str(made["id"])


def console(openstack: Openstack, server: str) -> str:
    text: str = openstack("demo", "console", "log", "show", server)
    return text


def wait_for_boot(openstack: Openstack, server: str, boots: int) -> str:
    """What the guest has said, once it has come up so many times."""
    said: list[str] = []

    def up() -> bool:
        said[:] = [console(openstack, server)]
        return said[0].count(f"guest up {server}") >= boots

    eventually(up, f"the guest came up {boots} times", within_s=BOOT_LIMIT_S)
    return said[0]


def wait_for_status(openstack: Openstack, server: str, status: str) -> None:
    def reached() -> bool:
        shown = openstack("demo", "server", "show", server, "-f", "json")
        return (shown["status"], shown["OS-EXT-STS:task_state"]) == (status, None)

    eventually(reached, f"the server is {status}", within_s=BOOT_LIMIT_S)


def domains(deployment: Deployment) -> set[str]:
    found: set[str] = set()
    for libvirtd in deployment.libvirtds:
        with closing(libvirt.open(libvirtd.qemu_uri)) as connection:
            found |= {domain.name() for domain in connection.listAllDomains()}
    return found


def folders(deployment: Deployment) -> list[str]:
    """Of guests' files, on every host."""
    hosts = range(1, len(deployment.libvirtds) + 1)
    instances = [deployment.ledger.host_directory(number) / "instances" for number in hosts]
    return [folder.name for directory in instances if directory.exists() for folder in directory.iterdir()]


def test_a_user_logs_in_and_finds_the_compute_service(openstack: Openstack) -> None:
    token = openstack("demo", "token", "issue", "-f", "json")
    assert token["id"]
    assert token["project_id"]
    catalog = openstack("demo", "catalog", "list", "-f", "json")
    assert "compute" in {one["Type"] for one in catalog}


def test_the_guest_boots_and_reads_its_name_and_user_data_from_its_config_drive(
    openstack: Openstack, server: str
) -> None:
    said = wait_for_boot(openstack, server, 1)
    assert "config-drive hostname=web-1" in said
    assert f"config-drive uuid={server}" in said
    assert f"config-drive user_data sha256={hashlib.sha256(USER_DATA).hexdigest()}" in said
    assert "disk vda 1073741824" in said  # as large as the flavor says, not as the image


def test_lists_name_the_image_and_the_flavor(openstack: Openstack, server: str) -> None:
    (row,) = openstack("demo", "server", "list", "-f", "json")
    assert (row["ID"], row["Name"], row["Status"]) == (server, "web-1", "ACTIVE")
    assert (row["Image"], row["Flavor"]) == ("disk", "m1.tiny")
    assert list(row["Networks"]) == ["private"]
    assert openstack("admin", "server", "list", "-f", "json") == []  # another project sees nothing
    (seen,) = openstack("admin", "server", "list", "--all-projects", "-f", "json")
    assert seen["ID"] == server


def test_a_server_shows_what_it_was_made_of(openstack: Openstack, server: str) -> None:
    shown = openstack("demo", "server", "show", "web-1", "-f", "json")
    assert shown["key_name"] == "mine"
    assert shown["properties"] == {"role": "web"}
    assert shown["image"].startswith("disk (")
    assert shown["flavor"]["name"] == "m1.tiny"
    assert shown["OS-EXT-STS:power_state"] in (1, "Running")
    assert openstack("demo", "keypair", "list", "-f", "json")[0]["Name"] == "mine"


def test_a_stopped_guest_starts_again(openstack: Openstack, server: str) -> None:
    openstack("demo", "server", "stop", server)
    wait_for_status(openstack, server, "SHUTOFF")
    assert "power button" in console(openstack, server)  # it was asked, and obeyed
    openstack("demo", "server", "start", server)
    wait_for_status(openstack, server, "ACTIVE")
    wait_for_boot(openstack, server, 2)


def test_a_guest_reboots_softly_and_hard(openstack: Openstack, server: str) -> None:
    openstack("demo", "server", "reboot", "--soft", "--wait", server)
    wait_for_boot(openstack, server, 3)
    openstack("demo", "server", "reboot", "--hard", "--wait", server)
    wait_for_boot(openstack, server, 4)
    wait_for_status(openstack, server, "ACTIVE")
    assert "already" not in openstack("demo", "server", "start", server, fails=True).lower()


def test_every_action_is_in_the_servers_event_list(openstack: Openstack, server: str) -> None:
    events = openstack("demo", "server", "event", "list", server, "-f", "json")
    assert [event["Action"] for event in events] == ["reboot", "reboot", "start", "stop", "create"]
    assert all(event["Request ID"].startswith("req-") for event in events)
    created = openstack("demo", "server", "event", "show", server, events[-1]["Request ID"], "-f", "json")
    assert created["action"] == "create"
    assert {event["result"] for event in created["events"]} == {"Success"}


def test_an_operator_sees_hosts_services_and_zones(openstack: Openstack, server: str, deployment: Deployment) -> None:
    hypervisors = openstack("admin", "hypervisor", "list", "-f", "json")
    assert len(hypervisors) == len(deployment.libvirtds)
    assert {(h["Hypervisor Type"], h["State"]) for h in hypervisors} == {("QEMU", "up")}
    shown = openstack("admin", "hypervisor", "show", hypervisors[0]["Hypervisor Hostname"], "-f", "json")
    assert shown["id"] == hypervisors[0]["ID"]
    assert held(openstack) == (1, 1, 128, 1)
    services = openstack("admin", "compute", "service", "list", "-f", "json")
    assert len(services) == len(hypervisors)
    assert {(s["Binary"], s["State"], s["Status"]) for s in services} == {("nova-compute", "up", "enabled")}
    zones = openstack("demo", "availability", "zone", "list", "--compute", "-f", "json")
    assert zones == [{"Zone Name": "nova", "Zone Status": "available"}]


def test_quota_is_shown_changed_and_counted(openstack: Openstack, server: str) -> None:
    def quota() -> dict[str, Any]:
        rows = openstack("demo", "quota", "show", "--compute", "--usage", "-f", "json")
        return {row["Resource"]: (row["Limit"], row["In Use"]) for row in rows}

    assert quota()["instances"] == (10, 1)
    openstack("admin", "quota", "set", "--instances", "12", "demo")
    assert quota()["instances"] == (12, 1)
    limits = absolute_limits(openstack)
    assert (limits["max_total_instances"], limits["total_instances_used"]) == (12, 1)
    assert (limits["total_cores_used"], limits["total_ram_used"]) == (1, 128)


def test_a_deleted_server_leaves_nothing(openstack: Openstack, server: str, deployment: Deployment) -> None:
    ledger = deployment.ledger
    assert domains(deployment) == {f"instance-{server}"}
    assert folders(deployment) == [server]
    assert ledger.payloads() > 0
    openstack("demo", "server", "delete", "--wait", server)
    assert "No Server found" in openstack("demo", "server", "show", server, fails=True)
    assert openstack("demo", "server", "list", "-f", "json") == []
    assert domains(deployment) == set()
    assert folders(deployment) == []
    assert held(openstack) == (0, 0, 0, 0)
    assert claims(ledger) == {}
    limits = absolute_limits(openstack)
    assert (limits["total_instances_used"], limits["total_cores_used"], limits["total_ram_used"]) == (0, 0, 0)
    eventually(lambda: ledger.payloads() == 0, "user data and password are gone from the vault")
    assert base64.b64encode(USER_DATA).decode() not in ledger.log_file.read_text()
    assert ledger.command("verify").stdout.endswith(", 0 wrong\n")


def held(openstack: Openstack) -> tuple[int, ...]:
    """Servers, vCPUs, MiB and GiB that the ledger counts as used on all hosts; 2.87 is the last version that shows them."""
    reserved_mib = 512
    sums = [0, 0, 0, 0]
    for hypervisor in openstack("admin", "hypervisor", "list", "-f", "json"):
        show = ("--os-compute-api-version", "2.87", "hypervisor", "show", hypervisor["ID"], "-f", "json")
        shown = openstack("admin", *show)
        used = (
            shown["running_vms"],
            shown["vcpus_used"],
            shown["memory_mb_used"] - reserved_mib,
            shown["local_gb_used"],
        )
        sums = [one + more for one, more in zip(sums, used, strict=True)]
    return tuple(sums)


def absolute_limits(openstack: Openstack) -> dict[str, int]:
    return {row["Name"]: row["Value"] for row in openstack("demo", "limits", "show", "--absolute", "-f", "json")}


def claims(ledger: LedgerProcess | RegionLedger) -> dict[str, Any]:
    """Who holds what of any host, told from the events alone."""
    held_by: dict[str, Any] = {}
    for event in ledger.events():
        if event["type"] == "provider.claimed":
            held_by[event["event"]["consumer_id"]] = event["event"]["amounts"]
        if event["type"] == "provider.released":
            del held_by[event["event"]["consumer_id"]]
    return held_by
