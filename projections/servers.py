"""Server list and detail. A row holds the folded instance, what lists filter and sort by, and its answer in parts."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import orjson

from domain.identifiers import category_of
from domain.instance.events import InstanceDeleted, InstanceSpawned
from domain.instance.state import Instance, evolve
from domain.instance.status import STATUSES_WITH_FAULT, STATUSES_WITH_PROGRESS, status_of
from domain.recorded import RecordedEvent
from domain.serialization import from_plain, to_plain
from projections.render import bookmark, links, member, members, precise, raw, zulu

REMEMBERED = 512

COLUMNS = """
    id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, project_id TEXT NOT NULL, user_id TEXT NOT NULL,
    name TEXT NOT NULL, hostname TEXT NOT NULL, status TEXT NOT NULL, vm_state TEXT NOT NULL, task_state TEXT,
    power_state INTEGER NOT NULL, host TEXT, node TEXT, service_id TEXT, zone TEXT, deleted INTEGER NOT NULL,
    image_id TEXT NOT NULL, flavor_id TEXT NOT NULL, flavor_name TEXT NOT NULL, reservation_id TEXT NOT NULL,
    key_name TEXT, config_drive INTEGER NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    launched_at TEXT, terminated_at TEXT, addresses TEXT NOT NULL, user_data TEXT, metadata TEXT NOT NULL,
    tags TEXT NOT NULL,
    brief TEXT NOT NULL, base TEXT NOT NULL, flavor_link TEXT NOT NULL, flavor_whole TEXT NOT NULL,
    image TEXT NOT NULL, image_whole TEXT NOT NULL, admin TEXT NOT NULL, admin_more TEXT NOT NULL,
    locked TEXT NOT NULL, description TEXT NOT NULL, tag_list TEXT NOT NULL, certificates TEXT NOT NULL,
    groups TEXT NOT NULL, locked_reason TEXT NOT NULL, hostname_part TEXT NOT NULL, pinned_zone TEXT NOT NULL,
    hints TEXT NOT NULL, fault TEXT NOT NULL, fault_admin TEXT NOT NULL, state TEXT NOT NULL
"""
_COUNT = len([c for c in COLUMNS.replace("\n", " ").split(",") if c.strip()])


class Servers:
    name = "servers"
    form = 1
    tables: Sequence[str] = ("servers",)

    def __init__(self) -> None:
        self._rows: OrderedDict[str, tuple[Instance, _Times]] = OrderedDict()

    def create(self, tables: dict[str, str]) -> list[str]:
        table = tables["servers"]
        return [
            f"CREATE TABLE {table} ({COLUMNS}) WITHOUT ROWID",
            f"CREATE INDEX {table}_project ON {table} (project_id, deleted, sequence)",
            f"CREATE INDEX {table}_sequence ON {table} (deleted, sequence)",
            f"CREATE INDEX {table}_host ON {table} (host, deleted)",
            f"CREATE INDEX {table}_updated ON {table} (updated_at)",
        ]

    def forget(self) -> None:
        self._rows.clear()

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        changed: dict[str, tuple[Instance, _Times]] = {}
        for record in records:
            if category_of(record.stream) == "instance":
                instance_id = record.stream[len("instance:") :]
                known = changed.get(instance_id) or self._known(db, tables["servers"], instance_id)
                changed[instance_id] = _applied(known, record)
        db.executemany(
            f"INSERT OR REPLACE INTO {tables['servers']} VALUES ({','.join('?' * _COUNT)})",
            [_row(instance, times) for instance, times in changed.values()],
        )
        for instance_id, row in changed.items():
            self._rows[instance_id] = row
            self._rows.move_to_end(instance_id)
        while len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)

    def _known(self, db: sqlite3.Connection, table: str, instance_id: str) -> tuple[Instance, _Times] | None:
        if (known := self._rows.get(instance_id)) is not None:
            return known
        row = db.execute(f"SELECT state FROM {table} WHERE id = ?", (instance_id,)).fetchone()
        if row is None:
            return None
        kept = orjson.loads(row[0])
        return from_plain(Instance, kept["instance"]), _Times.from_plain(kept["times"])


def _applied(known: tuple[Instance, _Times] | None, record: RecordedEvent) -> tuple[Instance, _Times]:
    if known is None:
        before, times = None, _Times(record.position, record.time)
    else:
        before, times = known[0], known[1].copy()
    instance = evolve(before, record.event)
    times.updated = record.time
    if isinstance(record.event, InstanceSpawned):
        times.launched = record.time
    if isinstance(record.event, InstanceDeleted):
        times.terminated = record.time
    if instance.fault is not None and (before is None or before.fault != instance.fault):
        times.fault = record.time
    return instance, times


class _Times:
    """When things happened to an instance: the recorded events' times."""

    __slots__ = ("created", "fault", "launched", "sequence", "terminated", "updated")

    def __init__(self, sequence: int, created: datetime) -> None:
        self.sequence = sequence  # the position of its create: the order of lists
        self.created = self.updated = created
        self.launched: datetime | None = None
        self.terminated: datetime | None = None
        self.fault: datetime | None = None

    def copy(self) -> _Times:
        """As it stands: a batch that is rolled back must not have touched what is remembered."""
        other = _Times(self.sequence, self.created)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def to_plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(self.__slots__)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> _Times:
        times = cls(plain["sequence"], datetime.fromisoformat(plain["created"]))
        for name in ("updated", "launched", "terminated", "fault"):
            value = plain[name]
            setattr(times, name, None if value is None else datetime.fromisoformat(value))
        return times


def _row(instance: Instance, times: _Times) -> tuple[Any, ...]:
    request, residence = instance.request, instance.residence
    status = status_of(instance)
    host = None if residence is None else residence.host
    image_id = "" if request.image is None else request.image.image_id
    addresses = _addresses(instance)
    return (
        str(instance.id),
        times.sequence,
        request.project_id,
        request.user_id,
        request.name,
        request.hostname,
        status,
        instance.vm_state,
        instance.task_state,
        instance.power_state,
        host,
        None if residence is None else str(residence.node_id),
        None if residence is None else str(residence.service_id),
        None if residence is None else residence.availability_zone,
        int(instance.deleted),
        image_id,
        request.flavor.flavor_id,
        request.flavor.name,
        request.reservation_id,
        None if request.keypair is None else request.keypair.name,
        int(request.config_drive),
        precise(times.created),
        precise(times.updated),
        precise(times.launched),
        precise(times.terminated),
        " ".join(a["addr"] for network in addresses.values() for a in network),
        request.user_data,
        orjson.dumps(request.metadata).decode(),
        orjson.dumps(request.tags).decode(),
        _brief(instance),
        _base(instance, times, status, addresses),
        raw("flavor", f'{{"id":{_json(request.flavor.flavor_id)},"links":{_flavor_links(request.flavor.flavor_id)}}}'),
        member("flavor", _embedded_flavor(instance)),
        _image(instance, whole=False),
        _image(instance, whole=True),
        members(
            **{
                "OS-EXT-SRV-ATTR:host": host,
                "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
                "OS-EXT-SRV-ATTR:instance_name": f"instance-{instance.id}",
            }
        ),
        _admin_more(instance),
        members(locked=False),
        members(description=request.description),
        members(tags=request.tags),
        members(trusted_image_certificates=request.trusted_certificates),
        members(server_groups=[request.server_group_id] if request.server_group_id else []),
        members(locked_reason=None),
        member("OS-EXT-SRV-ATTR:hostname", request.hostname),
        members(pinned_availability_zone=request.pinned_availability_zone),
        members(scheduler_hints=_hints(instance)),
        _fault(instance, times, status, admin=False),
        _fault(instance, times, status, admin=True),
        orjson.dumps({"instance": to_plain(instance), "times": times.to_plain()}).decode(),
    )


def _brief(instance: Instance) -> str:
    identifier = str(instance.id)
    return f'{{"id":"{identifier}","name":{_json(instance.request.name)},"links":{links("servers", identifier)}}}'


def _base(instance: Instance, times: _Times, status: str, addresses: dict[str, Any]) -> str:
    """What every microversion shows; the first part of the object, with its brace."""
    request = instance.request
    zone = None if instance.residence is None else instance.residence.availability_zone
    fields: dict[str, Any] = {
        "id": instance.id,
        "name": request.name,
        "status": status,
        "tenant_id": request.project_id,
        "user_id": request.user_id,
        "metadata": request.metadata,
        "hostId": host_id(request.project_id, None if instance.residence is None else instance.residence.host),
        "created": zulu(times.created),
        "updated": zulu(times.updated),
        "addresses": addresses,
        "accessIPv4": request.access_ipv4 or "",
        "accessIPv6": request.access_ipv6 or "",
        "OS-DCF:diskConfig": request.disk_config,
        "OS-EXT-AZ:availability_zone": zone or "",
        "config_drive": "True" if request.config_drive else "",
        "key_name": None if request.keypair is None else request.keypair.name,
        "OS-SRV-USG:launched_at": precise(times.launched),
        "OS-SRV-USG:terminated_at": precise(times.terminated),
        "OS-EXT-STS:task_state": instance.task_state,
        "OS-EXT-STS:vm_state": instance.vm_state,
        "OS-EXT-STS:power_state": instance.power_state,
        "os-extended-volumes:volumes_attached": [],
    }
    if status in STATUSES_WITH_PROGRESS:
        fields["progress"] = 0
    if request.security_groups:
        fields["security_groups"] = [{"name": name} for name in request.security_groups]
    return orjson.dumps(fields).decode()[:-1] + raw("links", links("servers", str(instance.id)))


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


def _flavor_links(flavor_id: str) -> str:
    return bookmark("flavors", quote(flavor_id, safe=""))


def _embedded_flavor(instance: Instance) -> dict[str, Any]:
    """Nova API 2.47."""
    flavor = instance.request.flavor
    return {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mib,
        "disk": flavor.root_gib,
        "ephemeral": flavor.ephemeral_gib,
        "swap": flavor.swap_mib,
        "original_name": flavor.name,
        "extra_specs": flavor.extra_specs,
    }


def _image(instance: Instance, *, whole: bool) -> str:
    image = instance.request.image
    if image is None:
        return raw("image", '""')
    properties = member("properties", image.properties) if whole else ""  # Nova API 2.98
    return raw("image", f'{{"id":{_json(image.image_id)},"links":{bookmark("images", image.image_id)}{properties}}}')


def _admin_more(instance: Instance) -> str:
    """Nova API 2.3, for administrators; user data is not here, a reader takes it from the vault."""
    image = instance.request.image
    return members(
        **{
            "OS-EXT-SRV-ATTR:reservation_id": instance.request.reservation_id,
            "OS-EXT-SRV-ATTR:launch_index": instance.request.launch_index,
            "OS-EXT-SRV-ATTR:ramdisk_id": image.ramdisk.image_id if image and image.ramdisk else "",
            "OS-EXT-SRV-ATTR:kernel_id": image.kernel.image_id if image and image.kernel else "",
            "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
        }
    )


def _hints(instance: Instance) -> dict[str, Any]:
    return {k: v[0] if len(v) == 1 else v for k, v in instance.request.scheduler_hints.items()}


def _fault(instance: Instance, times: _Times, status: str, *, admin: bool) -> str:
    if instance.fault is None or status not in STATUSES_WITH_FAULT:
        return ""
    fault: dict[str, Any] = {"code": 500, "created": zulu(times.fault), "message": instance.fault}
    if admin:
        fault["details"] = instance.fault
    return member("fault", fault)


def _json(text: str) -> str:
    return orjson.dumps(text).decode()
