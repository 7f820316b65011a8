"""What the guest reads about itself, as Nova lays it out: an ISO 9660 file labelled `config-2`, made only for
guests that asked for a config drive. `drivers/libvirt/` attaches the file as a CD-ROM.

Source: Nova, "Metadata service" and "Config drives" (nova/api/metadata/base.py); read by cloud-init's
ConfigDrive and by cloudbase-init. Pure but for the file written: the same guest, payload, seed and time give
the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from commands.orders import GuestSpec

if TYPE_CHECKING:
    from pycdlib import PyCdlib
    from pycdlib.dr import DirectoryRecord

LABEL = "config-2"
METADATA_VERSIONS = (
    "2018-08-27",
    "2020-10-14",
    "latest",
)  # the newest cloud-init knows, Nova's Victoria form
CPUS_SINCE = "2020-10-14"  # the first form that names dedicated_cpus
EC2_VERSIONS = ("2009-04-04", "latest")
RANDOM_SEED_BYTES = 512

_SECTOR = 2048
_DESCRIPTORS = (16, 17)  # sectors of the primary and the Joliet volume descriptor
_CREATED_AT, _MODIFIED_AT, _DATE_BYTES = 813, 830, 17  # ECMA-119, 8.4.26 and 8.4.27


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDrivePayload:
    """The guest's secrets, in the clear; held in memory only for as long as the drive is being written."""

    user_data: bytes | None = None
    admin_password: str | None = None
    injected_files: Sequence[tuple[str, bytes]] = ()  # path in the guest, content


def write_config_drive(
    path: Path,
    guest: GuestSpec,
    payload: ConfigDrivePayload,
    *,
    seed: bytes,
    now: datetime,
    dhcp_domain: str = "novalocal",
) -> None:
    """Write the drive to `path`, readable by its owner only.

    `seed` makes the guest's random_seed and must not be guessable; `dhcp_domain` is Nova's option of that
    name; `now` dates the files.
    """
    image = iso_image(drive_files(guest, payload, seed=seed, dhcp_domain=dhcp_domain), now)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as drive:
        drive.write(image)


def drive_files(
    guest: GuestSpec, payload: ConfigDrivePayload, *, seed: bytes, dhcp_domain: str = "novalocal"
) -> dict[str, bytes]:
    """Every file of the drive, by its path from the drive's root."""
    hostname = f"{guest.hostname}.{dhcp_domain}" if dhcp_domain else guest.hostname
    files: dict[str, bytes] = {}
    for version in METADATA_VERSIONS:
        folder = f"openstack/{version}"
        meta_data = openstack_meta_data(guest, payload, version=version, hostname=hostname, seed=seed)
        files[f"{folder}/meta_data.json"] = orjson.dumps(meta_data)
        if payload.user_data is not None:
            files[f"{folder}/user_data"] = payload.user_data
        files[f"{folder}/vendor_data.json"] = b"{}"
        files[f"{folder}/vendor_data2.json"] = b"{}"
        files[f"{folder}/network_data.json"] = orjson.dumps(network_data(guest))
    for number, (_, content) in enumerate(payload.injected_files):
        files[f"openstack/content/{number:04}"] = content
    ec2 = orjson.dumps(ec2_meta_data(guest, hostname=hostname))
    for version in EC2_VERSIONS:
        files[f"ec2/{version}/meta-data.json"] = ec2
        if payload.user_data is not None:
            files[f"ec2/{version}/user-data"] = payload.user_data
    return files


def openstack_meta_data(
    guest: GuestSpec, payload: ConfigDrivePayload, *, version: str, hostname: str, seed: bytes
) -> dict[str, Any]:
    """The content of openstack/<version>/meta_data.json. Absent things are left out, as Nova does."""
    data: dict[str, Any] = {"uuid": str(guest.instance_id)}
    if guest.metadata:
        data["meta"] = dict(guest.metadata)
    if payload.injected_files:
        data["files"] = [
            {"content_path": f"/content/{number:04}", "path": path}
            for number, (path, _) in enumerate(payload.injected_files)
        ]
    if payload.admin_password is not None:
        data["admin_pass"] = payload.admin_password
    if (key := guest.keypair) is not None:
        data["public_keys"] = {key.name: key.public_key}
        data["keys"] = [{"name": key.name, "type": key.type, "data": key.public_key}]
    data |= {
        "hostname": hostname,
        "name": guest.name,
        "launch_index": guest.launch_index,
        "availability_zone": guest.availability_zone,
        "random_seed": random_seed(guest, seed),
        "project_id": guest.project_id,
        "devices": [],  # tagged devices; none can be asked for yet
    }
    if version >= CPUS_SINCE:  # "latest" sorts after every date
        data["dedicated_cpus"] = []
    return data


def ec2_meta_data(guest: GuestSpec, *, hostname: str) -> dict[str, Any]:
    """The content of ec2/<version>/meta-data.json."""
    data: dict[str, Any] = {
        "ami-id": "" if guest.image is None else ec2_image_id(guest.image.image_id),
        "ami-launch-index": guest.launch_index,
        "ami-manifest-path": "FIXME",  # what Nova says, and guests expect
        "block-device-mapping": {"ami": "vda", "root": "/dev/vda"},
        "hostname": hostname,
        "instance-action": "none",
        "instance-id": ec2_instance_id(guest.instance_id),
        "instance-type": guest.flavor_name,
        "local-hostname": hostname,
        "local-ipv4": _first_ipv4(guest),
        "placement": {"availability-zone": guest.availability_zone},
        "public-hostname": hostname,
        "public-ipv4": "",
        "reservation-id": guest.reservation_id,
        "security-groups": list(guest.security_groups),
    }
    if guest.keypair is not None:
        data["public-keys"] = {"0": {"openssh-key": guest.keypair.public_key}}
    if guest.image is not None and guest.image.kernel is not None:
        data["kernel-id"] = ec2_image_id(guest.image.kernel.image_id, kind="aki")
    if guest.image is not None and guest.image.ramdisk is not None:
        data["ramdisk-id"] = ec2_image_id(guest.image.ramdisk.image_id, kind="ari")
    return data


def network_data(guest: GuestSpec) -> dict[str, Any]:
    """The content of network_data.json. Addresses come by DHCP: an order has no masks or routes."""
    links, networks = [], []
    for number, interface in enumerate(guest.interfaces):
        link = f"tap{(interface.port_id or f'interface{number}')[:11]}"
        links.append(
            {
                "id": link,
                "vif_id": interface.port_id or "",
                "type": "phy",
                "mtu": None,
                "ethernet_mac_address": interface.mac_address,
            }
        )
        networks.append(
            {
                "id": f"network{number}",
                "type": "ipv4_dhcp",
                "link": link,
                "network_id": interface.network_id,
            }
        )
    return {"links": links, "networks": networks, "services": []}


def random_seed(guest: GuestSpec, seed: bytes) -> str:
    """512 bytes for the guest's entropy pool, in base64; its own for each guest."""
    stream = hashlib.shake_256(seed + guest.instance_id.bytes)
    return base64.b64encode(stream.digest(RANDOM_SEED_BYTES)).decode()


def ec2_instance_id(instance_id: UUID) -> str:
    """`i-xxxxxxxx`, derived from the instance's id, so that it needs no table of its own."""
    return f"i-{instance_id.hex[:8]}"


def ec2_image_id(image_id: str, *, kind: str = "ami") -> str:
    try:
        return f"{kind}-{UUID(image_id).hex[:8]}"
    except ValueError:
        return f"{kind}-{hashlib.sha256(image_id.encode()).hexdigest()[:8]}"


def _first_ipv4(guest: GuestSpec) -> str:
    addresses = (address for interface in guest.interfaces for address in interface.addresses)
    return next((address for address in addresses if ":" not in address), "")


def iso_image(files: Mapping[str, bytes], now: datetime) -> bytes:
    """An ISO 9660 image with Rock Ridge and Joliet names; equal contents are stored once."""
    from pycdlib import PyCdlib  # imported late: most guests have no config drive, and it is slow to load

    iso = PyCdlib()
    iso.new(interchange_level=3, vol_ident=LABEL, joliet=3, rock_ridge="1.09")
    names = {"": ""}  # folder → its ISO 9660 path
    for folder in sorted({parent for path in files for parent in _parents(path)}):
        names[folder] = f"{names[folder.rpartition('/')[0]]}/D{len(names):07}"
        iso.add_directory(names[folder], rr_name=folder.rpartition("/")[2], joliet_path=f"/{folder}")
    stored: dict[bytes, str] = {}
    for number, (path, content) in enumerate(sorted(files.items())):
        folder, _, name = path.rpartition("/")
        iso_path, joliet_path = f"{names[folder]}/F{number:07}.;1", f"/{path}"
        if (first := stored.setdefault(content, iso_path)) is not iso_path:
            iso.add_hard_link(iso_old_path=first, iso_new_path=iso_path, rr_name=name)
            iso.add_hard_link(iso_old_path=first, joliet_new_path=joliet_path)
        else:
            iso.add_fp(BytesIO(content), len(content), iso_path, rr_name=name, joliet_path=joliet_path)
    _date(iso, now)
    image = BytesIO()
    iso.write_fp(image)
    iso.close()
    return _same_dates(bytearray(image.getvalue()))


def _parents(path: str) -> list[str]:
    """The folders above a path, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _date(iso: PyCdlib, now: datetime) -> None:
    """Give every record the one time: pycdlib takes the clock's."""
    from pycdlib.dates import DirectoryRecordDate, VolumeDescriptorDate

    when, volume = DirectoryRecordDate(), VolumeDescriptorDate()
    when.new(now.timestamp())
    volume.new(now.timestamp())
    for descriptor in (iso.pvd, iso.joliet_vd):
        if descriptor is None:
            continue
        descriptor.volume_creation_date = descriptor.volume_effective_date = volume
        folders: list[DirectoryRecord] = [descriptor.root_directory_record()]
        while folders:
            folder = folders.pop()
            folder.date = when
            for record in folder.children:
                record.date = when
                if record.rock_ridge is not None:
                    for entries in (record.rock_ridge.dr_entries, record.rock_ridge.ce_entries):
                        if entries is not None and (times := entries.tf_record) is not None:
                            times.access_time = times.modification_time = times.attribute_change_time = when
                if record.is_dir() and not (record.is_dot() or record.is_dotdot()):
                    folders.append(record)


def _same_dates(image: bytearray) -> bytes:
    """Copy each descriptor's creation date over its modification date, which pycdlib stamps while writing."""
    for sector in _DESCRIPTORS:
        start = sector * _SECTOR
        created = image[start + _CREATED_AT : start + _CREATED_AT + _DATE_BYTES]
        image[start + _MODIFIED_AT : start + _MODIFIED_AT + _DATE_BYTES] = created
    return bytes(image)
