"""UpdateInstance: a server's name, description, host name, addresses, disk configuration and pinned zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domain.errors import ZoneNotPinnable
from domain.identifiers import InstanceId, ProjectId
from domain.instance.attributes import (
    InstanceAccessAddressesChanged,
    InstanceDescribed,
    InstanceDiskConfigChanged,
    InstanceHostnameChanged,
    InstanceRenamed,
    InstanceZonePinned,
    InstanceZoneUnpinned,
)
from domain.instance.events import InstanceEvent
from domain.instance.state import Instance

ADDRESSES = ("access_ipv4", "access_ipv6")
ZONE = "pinned_availability_zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateInstance:
    """What is not among the changes stays. A key is a field of InstanceCreateRequested."""

    instance_id: InstanceId
    project_id: ProjectId | None
    changes: Mapping[str, str | None]


def decide_update(command: UpdateInstance, instance: Instance) -> list[InstanceEvent]:
    """In any state, locked or not (Nova API 2.1, PUT /servers/{id}); what is as it was records nothing.

    Raises:
        ZoneNotPinnable: HTTP answers 409.
    """
    request = instance.request
    changed: dict[str, Any] = {k: v for k, v in command.changes.items() if getattr(request, k) != v}
    named: dict[str, Any] = {"instance_id": instance.id, "user_id": request.user_id}
    events: list[InstanceEvent] = []
    if ZONE in changed:
        events.append(_pinned(instance, changed[ZONE]))
    if "name" in changed:
        events.append(InstanceRenamed(**named, name=changed["name"]))
    if "description" in changed:
        events.append(InstanceDescribed(**named, description=changed["description"]))
    if "hostname" in changed:
        events.append(InstanceHostnameChanged(**named, hostname=changed["hostname"]))
    if changed.keys() & set(ADDRESSES):
        addresses = {name: changed.get(name, getattr(request, name)) for name in ADDRESSES}
        events.append(InstanceAccessAddressesChanged(**named, **addresses))
    if "disk_config" in changed:
        events.append(InstanceDiskConfigChanged(instance_id=instance.id, disk_config=changed["disk_config"]))
    return events


def _pinned(instance: Instance, zone: str | None) -> InstanceZonePinned | InstanceZoneUnpinned:
    """The zone is another than the one pinned: to none from any, and from none to the zone that the server is in."""
    if zone is None:
        return InstanceZoneUnpinned(instance_id=instance.id)
    if instance.request.pinned_availability_zone is not None:
        raise ZoneNotPinnable(
            "Cannot change pinned availability zone directly. Unpin first by setting pinned_availability_zone to null."
        )
    current = None if instance.residence is None else instance.residence.availability_zone
    if zone != current:
        raise ZoneNotPinnable(
            f"Server can only be pinned to its current availability zone '{current}', but '{zone}' was requested."
        )
    return InstanceZonePinned(instance_id=instance.id, availability_zone=zone)
