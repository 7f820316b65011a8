"""A program on unmodified openstacksdk: everything the compute proxy offers of what is built, and one real guest."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openstack
import pytest
from openstack import exceptions
from openstack.connection import Connection

from tests.support.hypervisors import BOOT_LIMIT_S, GuestImages, PrivateLibvirtd, eventually
from tests.support.ledger_process import LedgerProcess, running_ledger

pytestmark = pytest.mark.filterwarnings("ignore:::openstack")  # the SDK's own about itself

WAIT_S = 120
USER_DATA = base64.b64encode(b"a program's own script").decode()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    with running_ledger(tmp_path_factory.mktemp("sdk")) as process:
        yield process


@pytest.fixture(scope="module")
def admin(ledger: LedgerProcess) -> Iterator[Connection]:
    with connected(ledger, "admin") as made:
        yield made


@pytest.fixture(scope="module")
def conn(ledger: LedgerProcess) -> Iterator[Connection]:
    with connected(ledger, "demo") as made:
        yield made


@contextmanager
def connected(ledger: LedgerProcess, cloud: str) -> Iterator[Connection]:
    config = openstack.config.OpenStackConfig(
        config_files=[str(ledger.directory / "clouds.yaml")], load_envvars=False
    ).get_one(cloud=cloud)
    with Connection(config=config) as made:
        yield made


@pytest.fixture(scope="module")
def flavor(admin: Connection) -> str:
    return str(admin.compute.create_flavor(name="m1.tiny", vcpus=1, ram=128, disk=1).id)


@pytest.fixture(scope="module")
def image(conn: Connection, tmp_path_factory: pytest.TempPathFactory) -> str:
    data = tmp_path_factory.mktemp("image") / "disk.raw"
    data.write_bytes(b"\0" * 1024)
    return str(conn.image.create_image("disk", filename=str(data), disk_format="raw", container_format="bare").id)


def test_a_server_from_create_to_delete(conn: Connection, flavor: str, image: str) -> None:
    keypair = conn.compute.create_keypair(name="made-here")
    assert keypair.private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    server = conn.compute.create_server(
        name="web-1", image_id=image, flavor_id=flavor, networks="auto", key_name="made-here",
        user_data=USER_DATA, metadata={"role": "web"},
    )  # fmt: skip
    assert server.admin_password
    server = conn.compute.wait_for_server(server, wait=WAIT_S)
    assert (server.status, server.key_name, server.metadata) == ("ACTIVE", "made-here", {"role": "web"})
    assert server.image.id == image
    assert [address["version"] for address in server.addresses["private"]] == [4]
    assert f"guest up {server.id}" in conn.compute.get_server_console_output(server)["output"]
    conn.compute.stop_server(server)
    conn.compute.wait_for_server(server, status="SHUTOFF", wait=WAIT_S)
    conn.compute.start_server(server)
    conn.compute.wait_for_server(server, status="ACTIVE", wait=WAIT_S)
    for kind in ("SOFT", "HARD"):
        conn.compute.reboot_server(server, kind)
        conn.compute.wait_for_server(server, status="ACTIVE", wait=WAIT_S)
    actions = [action.action for action in conn.compute.server_actions(server)]
    assert actions == ["reboot", "reboot", "start", "stop", "create"]
    conn.compute.delete_server(server)
    conn.compute.wait_for_delete(server, wait=WAIT_S)
    assert conn.compute.find_server("web-1") is None
    conn.compute.delete_keypair(keypair)
    assert list(conn.compute.keypairs()) == []


def test_servers_are_found_filtered_and_paged(conn: Connection, flavor: str, image: str) -> None:
    servers = [
        conn.compute.create_server(name=f"node-{number}", image_id=image, flavor_id=flavor, networks="auto")
        for number in range(5)
    ]
    for server in servers:
        conn.compute.wait_for_server(server, wait=WAIT_S)
    newest_first = [server.id for server in reversed(servers)]
    assert [server.id for server in conn.compute.servers(limit=2)] == newest_first
    assert [server.id for server in conn.compute.servers(details=False, name="node-[12]")] == newest_first[2:4]
    assert [server.id for server in conn.compute.servers(status="ACTIVE", all_projects=False)] == newest_first
    assert conn.compute.find_server("node-3").id == servers[3].id
    assert conn.compute.get_server(servers[0].id).compute_host is None  # for administrators only
    for server in servers:
        conn.compute.delete_server(server)
    for server in servers:
        conn.compute.wait_for_delete(server, wait=WAIT_S)
    assert list(conn.compute.servers()) == []


def test_what_is_refused_comes_as_the_sdks_own_errors(conn: Connection, flavor: str, image: str) -> None:
    with pytest.raises(exceptions.NotFoundException):
        conn.compute.get_server("7f0e8c1e-0000-4000-8000-000000000000")
    with pytest.raises(exceptions.BadRequestException, match="Can not find requested image"):
        conn.compute.create_server(
            name="x", image_id="7f0e8c1e-0000-4000-8000-000000000000", flavor_id=flavor, networks="auto"
        )
    with pytest.raises(exceptions.ForbiddenException, match="Quota exceeded for instances"):
        conn.compute.create_server(
            name="x", image_id=image, flavor_id=flavor, networks="auto", min_count=11, max_count=11
        )
    with pytest.raises(exceptions.ForbiddenException):
        conn.compute.create_flavor(name="mine", vcpus=1, ram=1, disk=1)
    server = conn.compute.create_server(name="x", image_id=image, flavor_id=flavor, networks="auto")
    conn.compute.wait_for_server(server, wait=WAIT_S)
    with pytest.raises(exceptions.ConflictException, match="while it is in vm_state active"):
        conn.compute.start_server(server)
    conn.compute.delete_server(server)
    conn.compute.wait_for_delete(server, wait=WAIT_S)


def test_flavors_limits_quotas_hosts_and_zones_read_as_the_sdk_expects(
    conn: Connection, admin: Connection, flavor: str
) -> None:
    found = conn.compute.find_flavor("m1.tiny")
    assert (found.id, found.vcpus, found.ram, found.disk) == (flavor, 1, 128, 1)
    others = [admin.compute.create_flavor(name=name, vcpus=1, ram=1, disk=1).id for name in ("m2", "m3")]
    assert {one.id for one in conn.compute.flavors()} == {flavor, *others}
    for key in ("name", "description", "vcpus"):  # page after page, also where they are alike or have none
        assert len(list(conn.compute.flavors(sort_key=key, limit=1))) == 3
    assert conn.compute.get_limits().absolute.instances == 10
    project = conn.current_project_id
    assert admin.compute.update_quota_set(project, instances=11).instances == 11
    assert conn.compute.get_quota_set(project).instances == 11
    (hypervisor,) = admin.compute.hypervisors(details=True)
    assert admin.compute.get_hypervisor(hypervisor.id).state == "up"
    (service,) = admin.compute.services()
    assert (service.state, service.status) == ("up", "enabled")
    assert admin.compute.disable_service(service, disabled_reason="maintenance").status == "disabled"
    assert admin.compute.enable_service(service).status == "enabled"
    assert [(zone.name, zone.state["available"]) for zone in conn.compute.availability_zones()] == [("nova", True)]


@pytest.mark.qemu
def test_a_real_guest_says_what_the_program_gave_it(
    libvirtd: PrivateLibvirtd, guest_images: GuestImages, tmp_path: Path
) -> None:
    with (
        running_ledger(tmp_path, driver="libvirt", libvirt_uri=libvirtd.qemu_uri) as real,
        connected(real, "admin") as admin,
        connected(real, "demo") as conn,
    ):
        flavor = admin.compute.create_flavor(name="m1.tiny", vcpus=1, ram=128, disk=1)

        def upload(file: Path, disk_format: str, **properties: str) -> str:
            made = conn.image.create_image(
                file.name, filename=str(file), disk_format=disk_format, container_format="bare", **properties
            )
            return str(made.id)

        kernel, ramdisk = upload(guest_images.kernel, "raw"), upload(guest_images.ramdisk, "raw")
        disk = upload(
            guest_images.blank,
            "qcow2",
            kernel_id=kernel,
            ramdisk_id=ramdisk,
            os_command_line="console=ttyS0 no_timer_check",
        )
        server = conn.compute.create_server(
            name="real-1", image_id=disk, flavor_id=flavor.id, networks="auto", user_data=USER_DATA
        )
        conn.compute.wait_for_server(server, wait=BOOT_LIMIT_S)

        def said() -> str:
            return str(conn.compute.get_server_console_output(server)["output"])

        eventually(lambda: f"guest up {server.id}" in said(), "the guest is up", within_s=BOOT_LIMIT_S)
        assert f"user_data sha256={hashlib.sha256(base64.b64decode(USER_DATA)).hexdigest()}" in said()
        conn.compute.delete_server(server)
        conn.compute.wait_for_delete(server, wait=BOOT_LIMIT_S)
        assert list((real.host_directory() / "instances").iterdir()) == []
