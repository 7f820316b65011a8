"""What can be changed of an instance without its host: its name, what is written on it, who may touch it. `state.py` folds
these; none of them settles a request that waits for its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from domain.identifiers import InstanceId, UserId
from domain.marks import PERSONAL

Locker = Literal["owner", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRenamed:
    instance_id: InstanceId
    user_id: UserId
    name: Annotated[str, PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDescribed:
    instance_id: InstanceId
    user_id: UserId
    description: Annotated[str | None, PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceHostnameChanged:
    """What the guest is told that it is called; one that runs hears of it when it asks."""

    instance_id: InstanceId
    user_id: UserId
    hostname: Annotated[str, PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAccessAddressesChanged:
    """Where its owner says that it is reached: both addresses as they are now."""

    instance_id: InstanceId
    user_id: UserId
    access_ipv4: Annotated[str | None, PERSONAL]
    access_ipv6: Annotated[str | None, PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDiskConfigChanged:
    instance_id: InstanceId
    disk_config: str  # "AUTO" or "MANUAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceZonePinned:
    """It is not to leave the availability zone that it is in."""

    instance_id: InstanceId
    availability_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceZoneUnpinned:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMetadataSet:
    """Items that are new, or have another value."""

    instance_id: InstanceId
    user_id: UserId
    metadata: Annotated[Mapping[str, str], PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMetadataRemoved:
    instance_id: InstanceId
    user_id: UserId
    keys: Annotated[tuple[str, ...], PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTagsAdded:
    instance_id: InstanceId
    user_id: UserId
    tags: Annotated[tuple[str, ...], PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTagsRemoved:
    instance_id: InstanceId
    user_id: UserId
    tags: Annotated[tuple[str, ...], PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLocked:
    """Only administrators may act on it now. A reason that was given before stays where none is given."""

    instance_id: InstanceId
    user_id: UserId
    locked_by: Locker  # an administrator's lock is not its owner's to lift
    reason: Annotated[str | None, PERSONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUnlocked:
    instance_id: InstanceId


AttributeEvent = (
    InstanceRenamed
    | InstanceDescribed
    | InstanceHostnameChanged
    | InstanceAccessAddressesChanged
    | InstanceDiskConfigChanged
    | InstanceZonePinned
    | InstanceZoneUnpinned
    | InstanceMetadataSet
    | InstanceMetadataRemoved
    | InstanceTagsAdded
    | InstanceTagsRemoved
    | InstanceLocked
    | InstanceUnlocked
)

ATTRIBUTE_EVENTS = {
    "instance.renamed": InstanceRenamed,
    "instance.described": InstanceDescribed,
    "instance.hostname_changed": InstanceHostnameChanged,
    "instance.access_addresses_changed": InstanceAccessAddressesChanged,
    "instance.disk_config_changed": InstanceDiskConfigChanged,
    "instance.zone_pinned": InstanceZonePinned,
    "instance.zone_unpinned": InstanceZoneUnpinned,
    "instance.metadata_set": InstanceMetadataSet,
    "instance.metadata_removed": InstanceMetadataRemoved,
    "instance.tags_added": InstanceTagsAdded,
    "instance.tags_removed": InstanceTagsRemoved,
    "instance.locked": InstanceLocked,
    "instance.unlocked": InstanceUnlocked,
}
