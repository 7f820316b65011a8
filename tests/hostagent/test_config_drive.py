import base64
import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pycdlib import PyCdlib

from domain.identifiers import InstanceId
from domain.instance.events import BootFile, KeypairUsed
from hostagent.config_drive import ConfigDrivePayload, iso_image, write_config_drive
from tests.support.hypervisors import guest_spec

NOW = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
SEED = b"a seed"
GUEST = replace(
    guest_spec(InstanceId(UUID("3f2504e0-4f89-41d3-9a0c-0305e82c3301")), name="Größe <1>", hostname="web-1"),
    metadata={"role": "front & back"},
    keypair=KeypairUsed(name="laptop", type="ssh", public_key="ssh-ed25519 AAAA me@laptop"),
    availability_zone="az-2",
    launch_index=3,
    reservation_id="r-12345678",
    security_groups=("default", "web"),
)
PAYLOAD = ConfigDrivePayload(
    user_data=b"#!/bin/sh\necho \xff\n",
    admin_password="s3cret",
    injected_files=(("/etc/motd", b"hello"), ("/etc/empty", b"")),
)


def read(drive: Path) -> dict[str, bytes]:
    """Every file by its Joliet path; its Rock Ridge name must be the same."""
    iso = PyCdlib()
    iso.open(str(drive))
    contents: dict[str, dict[str, bytes]] = {"joliet_path": {}, "rr_path": {}}
    for kind, files in contents.items():
        for folder, _, names in iso.walk(**{kind: "/"}):
            for name in names:
                path, content = f"{folder.rstrip('/')}/{name}", BytesIO()
                iso.get_file_from_iso_fp(content, **{kind: path})
                files[path.lstrip("/")] = content.getvalue()
    iso.close()
    assert contents["joliet_path"] == contents["rr_path"]
    return contents["joliet_path"]


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    path = tmp_path / "disk.config"
    write_config_drive(path, GUEST, PAYLOAD, seed=SEED, now=NOW)
    return path


@pytest.fixture
def files(drive: Path) -> dict[str, bytes]:
    return read(drive)


def meta_data(files: dict[str, bytes], version: str = "latest") -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files[f"openstack/{version}/meta_data.json"])
    return data


def test_the_drive_is_found_by_its_label_and_read_by_its_owner_only(drive: Path) -> None:
    found = subprocess.run(["/usr/sbin/blkid", "-o", "export", drive], capture_output=True, text=True, check=True)

    assert "LABEL=config-2" in found.stdout.splitlines()
    assert "TYPE=iso9660" in found.stdout.splitlines()
    assert drive.stat().st_mode & 0o777 == 0o600


def test_it_has_novas_folders(files: dict[str, bytes]) -> None:
    assert set(files) == {
        *(
            f"openstack/{version}/{name}"
            for version in ("2018-08-27", "2020-10-14", "latest")
            for name in (
                "meta_data.json",
                "user_data",
                "vendor_data.json",
                "vendor_data2.json",
                "network_data.json",
            )
        ),
        "openstack/content/0000",
        "openstack/content/0001",
        *(f"ec2/{version}/{name}" for version in ("2009-04-04", "latest") for name in ("meta-data.json", "user-data")),
    }


def test_it_tells_the_guest_what_it_is(files: dict[str, bytes]) -> None:
    data = meta_data(files)
    seed = base64.b64decode(data.pop("random_seed"))

    assert len(seed) == 512
    assert data == {
        "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "name": "Größe <1>",
        "hostname": "web-1.novalocal",
        "launch_index": 3,
        "availability_zone": "az-2",
        "project_id": "a-project",
        "meta": {"role": "front & back"},
        "public_keys": {"laptop": "ssh-ed25519 AAAA me@laptop"},
        "keys": [{"name": "laptop", "type": "ssh", "data": "ssh-ed25519 AAAA me@laptop"}],
        "admin_pass": "s3cret",
        "files": [
            {"path": "/etc/motd", "content_path": "/content/0000"},
            {"path": "/etc/empty", "content_path": "/content/0001"},
        ],
        "devices": [],
        "dedicated_cpus": [],
    }
    assert "dedicated_cpus" not in meta_data(files, "2018-08-27")


def test_user_data_and_injected_files_arrive_byte_for_byte(files: dict[str, bytes]) -> None:
    assert files["openstack/latest/user_data"] == PAYLOAD.user_data
    assert files["ec2/latest/user-data"] == PAYLOAD.user_data
    assert files["openstack/content/0000"] == b"hello"
    assert files["openstack/content/0001"] == b""


def test_it_names_the_guests_interfaces(files: dict[str, bytes]) -> None:
    network = json.loads(files["openstack/latest/network_data.json"])

    [link], [net] = network["links"], network["networks"]
    assert link["ethernet_mac_address"] == "fa:16:3e:00:00:01"
    assert net["type"] == "ipv4_dhcp"
    assert net["link"] == link["id"]
    assert network["services"] == []


def test_it_has_the_ec2_form(files: dict[str, bytes]) -> None:
    data = json.loads(files["ec2/latest/meta-data.json"])

    assert data["instance-id"] == "i-3f2504e0"
    assert data["ami-id"].startswith("ami-")
    assert data["public-keys"] == {"0": {"openssh-key": "ssh-ed25519 AAAA me@laptop"}}
    assert data["local-hostname"] == "web-1.novalocal"
    assert data["placement"] == {"availability-zone": "az-2"}
    assert data["reservation-id"] == "r-12345678"
    assert data["security-groups"] == ["default", "web"]
    assert data["ami-launch-index"] == 3
    assert data["instance-type"] == "m1.test"
    assert "kernel-id" not in data


def test_a_kernel_has_an_ec2_name_too(tmp_path: Path) -> None:
    assert GUEST.image is not None
    image = replace(GUEST.image, kernel=BootFile(image_id="0badcafe-4f89-41d3-9a0c-0305e82c3301"))

    write_config_drive(tmp_path / "d", replace(GUEST, image=image), PAYLOAD, seed=SEED, now=NOW)

    assert json.loads(read(tmp_path / "d")["ec2/latest/meta-data.json"])["kernel-id"] == "aki-0badcafe"


def test_what_was_not_asked_for_is_left_out(tmp_path: Path) -> None:
    plain = guest_spec()

    write_config_drive(tmp_path / "d", plain, ConfigDrivePayload(), seed=SEED, now=NOW, dhcp_domain="")

    files = read(tmp_path / "d")
    assert meta_data(files)["hostname"] == "a-guest"
    assert not {"meta", "files", "admin_pass", "public_keys", "keys"} & set(meta_data(files))
    assert not any(name.endswith(("user_data", "user-data")) for name in files)


def test_the_same_asked_again_gives_the_same_bytes_and_another_seed_another_random_seed(
    drive: Path, tmp_path: Path
) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    write_config_drive(again, GUEST, PAYLOAD, seed=SEED, now=NOW)
    write_config_drive(other, GUEST, PAYLOAD, seed=b"another", now=NOW)

    assert drive.read_bytes() == again.read_bytes()
    assert meta_data(read(other))["random_seed"] != meta_data(read(drive))["random_seed"]


def test_no_date_but_the_given_one_is_on_the_drive() -> None:
    image = iso_image({"folder/file": b"content"}, NOW)

    assert str(datetime.now(UTC).year).encode() not in image
    assert image.count(b"2031050") == 6  # three dates in each of two volume descriptors


def test_user_data_may_be_as_large_as_nova_allows(tmp_path: Path) -> None:
    user_data = bytes(range(256)) * 256  # 64 KiB

    write_config_drive(tmp_path / "d", GUEST, ConfigDrivePayload(user_data=user_data), seed=SEED, now=NOW)

    assert read(tmp_path / "d")["openstack/latest/user_data"] == user_data
