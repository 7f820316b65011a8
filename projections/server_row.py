"""One server's row: its answer in parts, and the folded instance to go on from.

What was asked for is rendered once and kept (`Fixed`); the rest is rendered again when something happens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson

from domain.instance.events import ImageSpec, InstanceCreateRequested
from domain.instance.state import Instance, VmState
from domain.instance.status import STATUSES_WITH_FAULT, STATUSES_WITH_PROGRESS, status_of
from domain.serialization import from_plain, to_plain, to_plain_but
from projections.render import bookmark, links, member, members, precise, raw, zulu

COLUMNS = """
    sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, project_id TEXT NOT NULL, user_id TEXT NOT NULL,
    name TEXT NOT NULL, hostname TEXT NOT NULL, display_description TEXT, image_id TEXT NOT NULL,
    flavor_id TEXT NOT NULL, reservation_id TEXT NOT NULL, key_name TEXT, config_drive INTEGER NOT NULL,
    created_at TEXT NOT NULL, user_data TEXT, tags TEXT NOT NULL, metadata TEXT NOT NULL,
    access_ip_v4 TEXT, access_ip_v6 TEXT, auto_disk_config INTEGER NOT NULL, launch_index INTEGER NOT NULL,
    kernel_id TEXT NOT NULL, ramdisk_id TEXT NOT NULL, root_device_name TEXT NOT NULL,
    status TEXT NOT NULL, vm_state TEXT NOT NULL, task_state TEXT, power_state INTEGER NOT NULL, host TEXT,
    node_id TEXT, service_id TEXT, zone TEXT, deleted INTEGER NOT NULL, updated_at TEXT NOT NULL, launched_at TEXT,
    terminated_at TEXT, is_locked INTEGER NOT NULL, locked_by TEXT,
    ipv4 TEXT NOT NULL, ipv6 TEXT NOT NULL, networks TEXT NOT NULL,
    brief TEXT NOT NULL, base TEXT NOT NULL, addresses TEXT NOT NULL, extended TEXT NOT NULL, admin TEXT NOT NULL,
    fault TEXT NOT NULL, fault_admin TEXT NOT NULL, locked TEXT NOT NULL, locked_reason TEXT NOT NULL,
    flavor_link TEXT NOT NULL, flavor_whole TEXT NOT NULL, flavor_specs TEXT NOT NULL, image TEXT NOT NULL,
    image_whole TEXT NOT NULL, admin_more TEXT NOT NULL, description TEXT NOT NULL, tag_list TEXT NOT NULL,
    certificates TEXT NOT NULL, hostname_part TEXT NOT NULL, pinned_zone TEXT NOT NULL,
    hints TEXT NOT NULL, state TEXT NOT NULL
"""
COUNT = len([column for column in COLUMNS.replace("\n", " ").split(",") if column.strip()])
ROOT_DEVICE = "/dev/vda"


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
        networks = _networks(instance)
        shown = {} if instance.vm_state is VmState.BUILDING else networks
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
            _zone(instance) or None,
            int(instance.deleted),
            precise(times.updated),
            precise(times.launched),
            precise(times.terminated),
            int(instance.locked_by is not None),
            instance.locked_by,
            _of_version(shown, 4),
            _of_version(shown, 6),
            _dumps(_plain(networks)),
            fixed.brief,
            fixed.base + _base(instance, times, status),
            members(addresses=shown),
            fixed.extended + _extended(instance, times),
            members(
                **{
                    "OS-EXT-SRV-ATTR:host": host,
                    "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
                    "OS-EXT-SRV-ATTR:instance_name": f"instance-{instance.id}",
                }
            ),
            _fault(instance, times, status, admin=False),
            _fault(instance, times, status, admin=True),
            members(locked=instance.locked_by is not None),
            members(locked_reason=instance.locked_reason),
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
    """What was asked for: rendered when the server is created, and again when that is changed."""

    columns: tuple[Any, ...]
    brief: str
    base: str  # the beginning of the object, with its brace
    extended: str
    parts: tuple[str, ...]
    request: str

    @classmethod
    def of(cls, request: InstanceCreateRequested, created: datetime) -> Fixed:
        identifier, image = str(request.instance_id), request.image
        return cls(
            columns=(
                identifier,
                request.project_id,
                request.user_id,
                request.name,
                request.hostname,
                request.description,
                "" if image is None else image.image_id,
                request.flavor.flavor_id,
                request.reservation_id,
                None if request.keypair is None else request.keypair.name,
                int(request.config_drive),
                precise(created),
                request.user_data,
                _dumps(request.tags),
                _dumps(request.metadata),
                request.access_ipv4,
                request.access_ipv6,
                int(request.disk_config == "AUTO"),
                request.launch_index,
                _kernel(image),
                _ramdisk(image),
                ROOT_DEVICE,
            ),
            brief=f'{{"id":"{identifier}","name":{_dumps(request.name)},"links":{links("servers", identifier)}}}',
            base=_fixed_base(request, created),
            extended=_fixed_extended(request),
            parts=_parts(request),
            request=_dumps(to_plain(request)),
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


def _fixed_base(request: InstanceCreateRequested, created: datetime) -> str:
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
    }
    return _dumps(fields)[:-1] + raw("links", links("servers", identifier))


def _base(instance: Instance, times: Times, status: str) -> str:
    """What every answer shows and that may change."""
    residence = instance.residence
    fields: dict[str, Any] = {
        "status": status,
        "hostId": host_id(instance.project_id, None if residence is None else residence.host),
        "updated": zulu(times.updated),
    }
    if status in STATUSES_WITH_PROGRESS:
        fields["progress"] = 0
    return members(**fields)


def _fixed_extended(request: InstanceCreateRequested) -> str:
    fields: dict[str, Any] = {
        "config_drive": "True" if request.config_drive else "",
        "key_name": None if request.keypair is None else request.keypair.name,
        "os-extended-volumes:volumes_attached": [],
    }
    if request.security_groups:
        fields["security_groups"] = [{"name": name} for name in request.security_groups]
    return members(**fields)


def _extended(instance: Instance, times: Times) -> str:
    """What an update answers from 2.75 on only."""
    return members(
        **{
            "OS-EXT-AZ:availability_zone": _zone(instance),
            "OS-SRV-USG:launched_at": precise(times.launched),
            "OS-SRV-USG:terminated_at": precise(times.terminated),
            "OS-EXT-STS:task_state": instance.task_state,
            "OS-EXT-STS:vm_state": instance.vm_state,
            "OS-EXT-STS:power_state": instance.power_state,
        }
    )


def _zone(instance: Instance) -> str:
    """Where it is; before it is anywhere, where it was asked to be."""
    if instance.residence is not None:
        return instance.residence.availability_zone
    return (instance.request.availability_zone or "").partition(":")[0]


def _parts(request: InstanceCreateRequested) -> tuple[str, ...]:
    """What single microversions show, in the order of COLUMNS."""
    flavor_id = request.flavor.flavor_id
    flavor_links = bookmark("flavors", quote(flavor_id, safe=""))
    flavor = _embedded_flavor(request)
    return (
        raw("flavor", f'{{"id":{_dumps(flavor_id)},"links":{flavor_links}}}'),
        member("flavor", flavor),
        member("flavor", {**flavor, "extra_specs": request.flavor.extra_specs}),
        _image(request, whole=False),
        _image(request, whole=True),
        _admin_more(request),
        members(description=request.description),
        members(tags=request.tags),
        members(trusted_image_certificates=request.trusted_certificates),
        member("OS-EXT-SRV-ATTR:hostname", request.hostname),
        members(pinned_availability_zone=request.pinned_availability_zone),
        members(scheduler_hints={k: v[0] if len(v) == 1 else v for k, v in request.scheduler_hints.items()}),
    )


def host_id(project_id: str, host: str | None) -> str:
    """Stable for a project and a host, and tells neither (Nova: SHA-224 over both)."""
    return "" if host is None else hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _networks(instance: Instance) -> dict[str, list[dict[str, Any]]]:
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


def _plain(networks: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {
        label: [{"version": one["version"], "addr": one["addr"]} for one in addresses]
        for label, addresses in networks.items()
    }


def _of_version(networks: dict[str, list[dict[str, Any]]], version: int) -> str:
    return _dumps([one["addr"] for addresses in networks.values() for one in addresses if one["version"] == version])


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
    }


def _image(request: InstanceCreateRequested, *, whole: bool) -> str:
    image = request.image
    if image is None:
        return raw("image", '""')
    properties = member("properties", image.properties) if whole else ""  # Nova API 2.98
    return raw("image", f'{{"id":{_dumps(image.image_id)},"links":{bookmark("images", image.image_id)}{properties}}}')


def _admin_more(request: InstanceCreateRequested) -> str:
    """Nova API 2.3, for administrators; user data is not here, a reader takes it from the vault."""
    return members(
        **{
            "OS-EXT-SRV-ATTR:reservation_id": request.reservation_id,
            "OS-EXT-SRV-ATTR:launch_index": request.launch_index,
            "OS-EXT-SRV-ATTR:ramdisk_id": _ramdisk(request.image),
            "OS-EXT-SRV-ATTR:kernel_id": _kernel(request.image),
            "OS-EXT-SRV-ATTR:root_device_name": ROOT_DEVICE,
        }
    )


def _kernel(image: ImageSpec | None) -> str:
    return image.kernel.image_id if image is not None and image.kernel is not None else ""


def _ramdisk(image: ImageSpec | None) -> str:
    return image.ramdisk.image_id if image is not None and image.ramdisk is not None else ""


def _fault(instance: Instance, times: Times, status: str, *, admin: bool) -> str:
    if instance.fault is None or status not in STATUSES_WITH_FAULT:
        return ""
    fault: dict[str, Any] = {"code": 500, "created": zulu(times.fault), "message": instance.fault}
    if admin:
        fault["details"] = instance.fault
    return member("fault", fault)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
