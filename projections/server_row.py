"""One server's row: its answer in parts, and the folded instance to go on from.

What the create fixed for good is rendered once and kept (`Fixed`); the rest is rendered again when something happens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson

from domain.instance.events import InstanceCreateRequested
from domain.instance.state import Instance
from domain.instance.status import STATUSES_WITH_FAULT, STATUSES_WITH_PROGRESS, status_of
from domain.serialization import from_plain, to_plain, to_plain_but
from projections.render import bookmark, links, member, members, precise, raw, zulu

COLUMNS = """
    sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL, user_id TEXT NOT NULL,
    name TEXT NOT NULL, hostname TEXT NOT NULL, image_id TEXT NOT NULL, flavor_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL, key_name TEXT, config_drive INTEGER NOT NULL, created_at TEXT NOT NULL,
    user_data TEXT, tags TEXT NOT NULL,
    status TEXT NOT NULL, vm_state TEXT NOT NULL, task_state TEXT, power_state INTEGER NOT NULL, host TEXT, node TEXT,
    service_id TEXT, zone TEXT, deleted INTEGER NOT NULL, updated_at TEXT NOT NULL, launched_at TEXT,
    terminated_at TEXT, addresses TEXT NOT NULL,
    brief TEXT NOT NULL, base TEXT NOT NULL, admin TEXT NOT NULL, fault TEXT NOT NULL, fault_admin TEXT NOT NULL,
    flavor_link TEXT NOT NULL, flavor_whole TEXT NOT NULL, image TEXT NOT NULL, image_whole TEXT NOT NULL,
    admin_more TEXT NOT NULL, locked TEXT NOT NULL, description TEXT NOT NULL, tag_list TEXT NOT NULL,
    certificates TEXT NOT NULL, groups TEXT NOT NULL, locked_reason TEXT NOT NULL, hostname_part TEXT NOT NULL,
    pinned_zone TEXT NOT NULL, hints TEXT NOT NULL, state TEXT NOT NULL
"""
COUNT = len([column for column in COLUMNS.replace("\n", " ").split(",") if column.strip()])


@dataclass(slots=True)
class Row:
    """What is remembered of a server between two events."""

    instance: Instance
    times: Times
    fixed: Fixed

    def values(self) -> tuple[Any, ...]:
        """In the order of COLUMNS."""
        instance, times, fixed = self.instance, self.times, self.fixed
        residence, status = instance.residence, status_of(instance)
        host = None if residence is None else residence.host
        addresses = _addresses(instance)
        return (
            times.sequence,
            *fixed.columns,
            status,
            instance.vm_state,
            instance.task_state,
            instance.power_state,
            host,
            None if residence is None else str(residence.node_id),
            None if residence is None else str(residence.service_id),
            None if residence is None else residence.availability_zone,
            int(instance.deleted),
            precise(times.updated),
            precise(times.launched),
            precise(times.terminated),
            " ".join(a["addr"] for network in addresses.values() for a in network),
            fixed.brief,
            fixed.base + _base(instance, times, status, addresses),
            members(
                **{
                    "OS-EXT-SRV-ATTR:host": host,
                    "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
                    "OS-EXT-SRV-ATTR:instance_name": f"instance-{instance.id}",
                }
            ),
            _fault(instance, times, status, admin=False),
            _fault(instance, times, status, admin=True),
            *fixed.parts,
            self._state(),
        )

    def _state(self) -> str:
        kept = {"instance": to_plain_but(self.instance, "request"), "times": self.times.to_plain()}
        return f'{{"request":{self.fixed.request},"kept":{orjson.dumps(kept).decode()}}}'

    @classmethod
    def from_state(cls, state: str) -> Row:
        whole = orjson.loads(state)
        kept = whole["kept"]
        instance = from_plain(Instance, {**kept["instance"], "request": whole["request"]})
        times = Times.from_plain(kept["times"])
        return cls(instance, times, Fixed.of(instance.request, times.created))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Rendered once, when the server is created."""

    columns: tuple[Any, ...]
    brief: str
    base: str  # the beginning of the object, with its brace
    parts: tuple[str, ...]
    request: str

    @classmethod
    def of(cls, request: InstanceCreateRequested, created: datetime) -> Fixed:
        identifier = str(request.instance_id)
        key_name = None if request.keypair is None else request.keypair.name
        return cls(
            columns=(
                identifier,
                request.project_id,
                request.user_id,
                request.name,
                request.hostname,
                "" if request.image is None else request.image.image_id,
                request.flavor.flavor_id,
                request.reservation_id,
                key_name,
                int(request.config_drive),
                precise(created),
                request.user_data,
                orjson.dumps(request.tags).decode(),
            ),
            brief=f'{{"id":"{identifier}","name":{_json(request.name)},"links":{links("servers", identifier)}}}',
            base=_fixed_base(request, created, key_name),
            parts=_parts(request),
            request=orjson.dumps(to_plain(request)).decode(),
        )


class Times:
    """When things happened to an instance: the recorded events' times."""

    __slots__ = ("created", "fault", "launched", "sequence", "terminated", "updated")

    def __init__(self, sequence: int, created: datetime) -> None:
        self.sequence = sequence  # the position of its create: the order of lists
        self.created = self.updated = created
        self.launched: datetime | None = None
        self.terminated: datetime | None = None
        self.fault: datetime | None = None

    def copy(self) -> Times:
        """As it stands: a batch that is rolled back must not have touched what is remembered."""
        other = Times(self.sequence, self.created)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def to_plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(self.__slots__)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Times:
        times = cls(plain["sequence"], datetime.fromisoformat(plain["created"]))
        for name in ("updated", "launched", "terminated", "fault"):
            value = plain[name]
            setattr(times, name, None if value is None else datetime.fromisoformat(value))
        return times


def _fixed_base(request: InstanceCreateRequested, created: datetime, key_name: str | None) -> str:
    identifier = str(request.instance_id)
    fields: dict[str, Any] = {
        "id": identifier,
        "name": request.name,
        "tenant_id": request.project_id,
        "user_id": request.user_id,
        "metadata": request.metadata,
        "created": zulu(created),
        "accessIPv4": request.access_ipv4 or "",
        "accessIPv6": request.access_ipv6 or "",
        "OS-DCF:diskConfig": request.disk_config,
        "config_drive": "True" if request.config_drive else "",
        "key_name": key_name,
        "os-extended-volumes:volumes_attached": [],
    }
    if request.security_groups:
        fields["security_groups"] = [{"name": name} for name in request.security_groups]
    return orjson.dumps(fields).decode()[:-1] + raw("links", links("servers", identifier))


def _base(instance: Instance, times: Times, status: str, addresses: dict[str, Any]) -> str:
    """What every microversion shows and that may change."""
    residence = instance.residence
    fields: dict[str, Any] = {
        "status": status,
        "hostId": host_id(instance.project_id, None if residence is None else residence.host),
        "updated": zulu(times.updated),
        "addresses": addresses,
        "OS-EXT-AZ:availability_zone": "" if residence is None else residence.availability_zone,
        "OS-SRV-USG:launched_at": precise(times.launched),
        "OS-SRV-USG:terminated_at": precise(times.terminated),
        "OS-EXT-STS:task_state": instance.task_state,
        "OS-EXT-STS:vm_state": instance.vm_state,
        "OS-EXT-STS:power_state": instance.power_state,
    }
    if status in STATUSES_WITH_PROGRESS:
        fields["progress"] = 0
    return members(**fields)


def _parts(request: InstanceCreateRequested) -> tuple[str, ...]:
    """What single microversions show, in the order of COLUMNS."""
    flavor_id = request.flavor.flavor_id
    flavor_links = bookmark("flavors", quote(flavor_id, safe=""))
    return (
        raw("flavor", f'{{"id":{_json(flavor_id)},"links":{flavor_links}}}'),
        member("flavor", _embedded_flavor(request)),
        _image(request, whole=False),
        _image(request, whole=True),
        _admin_more(request),
        members(locked=False),
        members(description=request.description),
        members(tags=request.tags),
        members(trusted_image_certificates=request.trusted_certificates),
        members(server_groups=[request.server_group_id] if request.server_group_id else []),
        members(locked_reason=None),
        member("OS-EXT-SRV-ATTR:hostname", request.hostname),
        members(pinned_availability_zone=request.pinned_availability_zone),
        members(scheduler_hints={k: v[0] if len(v) == 1 else v for k, v in request.scheduler_hints.items()}),
    )


def host_id(project_id: str, host: str | None) -> str:
    """Stable for a project and a host, and tells neither (Nova: SHA-224 over both)."""
    return "" if host is None else hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _addresses(instance: Instance) -> dict[str, list[dict[str, Any]]]:
    networks: dict[str, list[dict[str, Any]]] = {}
    for interface in instance.interfaces:
        for address in interface.addresses:
            networks.setdefault(interface.network_name, []).append(
                {
                    "version": 6 if ":" in address else 4,
                    "addr": address,
                    "OS-EXT-IPS:type": "fixed",
                    "OS-EXT-IPS-MAC:mac_addr": interface.mac_address,
                }
            )
    return networks


def _embedded_flavor(request: InstanceCreateRequested) -> dict[str, Any]:
    """Nova API 2.47."""
    flavor = request.flavor
    return {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mib,
        "disk": flavor.root_gib,
        "ephemeral": flavor.ephemeral_gib,
        "swap": flavor.swap_mib,
        "original_name": flavor.name,
        "extra_specs": flavor.extra_specs,
    }


def _image(request: InstanceCreateRequested, *, whole: bool) -> str:
    image = request.image
    if image is None:
        return raw("image", '""')
    properties = member("properties", image.properties) if whole else ""  # Nova API 2.98
    return raw("image", f'{{"id":{_json(image.image_id)},"links":{bookmark("images", image.image_id)}{properties}}}')


def _admin_more(request: InstanceCreateRequested) -> str:
    """Nova API 2.3, for administrators; user data is not here, a reader takes it from the vault."""
    image = request.image
    return members(
        **{
            "OS-EXT-SRV-ATTR:reservation_id": request.reservation_id,
            "OS-EXT-SRV-ATTR:launch_index": request.launch_index,
            "OS-EXT-SRV-ATTR:ramdisk_id": image.ramdisk.image_id if image and image.ramdisk else "",
            "OS-EXT-SRV-ATTR:kernel_id": image.kernel.image_id if image and image.kernel else "",
            "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
        }
    )


def _fault(instance: Instance, times: Times, status: str, *, admin: bool) -> str:
    if instance.fault is None or status not in STATUSES_WITH_FAULT:
        return ""
    fault: dict[str, Any] = {"code": 500, "created": zulu(times.fault), "message": instance.fault}
    if admin:
        fault["details"] = instance.fault
    return member("fault", fault)


def _json(text: str) -> str:
    return orjson.dumps(text).decode()
