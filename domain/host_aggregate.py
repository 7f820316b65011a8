"""Host aggregates: hosts that an operator groups, some of them as an availability zone. One stream for all, so that names
are unique and no host is in two zones.

A zone is nothing but an aggregate's metadata item of that name; a host in no such aggregate has the zone it registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never
from uuid import UUID

from domain.identifiers import HostName

ZONE = "availability_zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateCreated:
    aggregate_id: int  # counts; Nova shows an integer beside the UUID
    aggregate_uuid: UUID
    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateRenamed:
    aggregate_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateMetadataSet:
    aggregate_id: int
    metadata: Mapping[str, str]  # all of it, after the change


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateHostAdded:
    aggregate_id: int
    host: HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateHostRemoved:
    aggregate_id: int
    host: HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregateDeleted:
    aggregate_id: int


HostAggregateEvent = (
    HostAggregateCreated
    | HostAggregateRenamed
    | HostAggregateMetadataSet
    | HostAggregateHostAdded
    | HostAggregateHostRemoved
    | HostAggregateDeleted
)

HOST_AGGREGATE_EVENTS = {
    "host_aggregate.created": HostAggregateCreated,
    "host_aggregate.renamed": HostAggregateRenamed,
    "host_aggregate.metadata_set": HostAggregateMetadataSet,
    "host_aggregate.host_added": HostAggregateHostAdded,
    "host_aggregate.host_removed": HostAggregateHostRemoved,
    "host_aggregate.deleted": HostAggregateDeleted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregate:
    aggregate_id: int
    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[HostName, ...] = ()

    @property
    def zone(self) -> str | None:
        return self.metadata.get(ZONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregates:
    by_id: Mapping[int, HostAggregate] = field(default_factory=dict)
    last_id: int = 0

    def of_host(self, host: HostName) -> list[HostAggregate]:
        return [aggregate for aggregate in self.by_id.values() if host in aggregate.hosts]

    def zone_of(self, host: HostName) -> str | None:
        """The zone that an aggregate puts the host in."""
        return next((aggregate.zone for aggregate in self.of_host(host) if aggregate.zone), None)

    def zones(self) -> dict[HostName, str]:
        """Of all hosts that are put in one."""
        return {host: one.zone for one in self.by_id.values() if one.zone for host in one.hosts}


def evolve_host_aggregates(aggregates: HostAggregates | None, event: HostAggregateEvent) -> HostAggregates:
    aggregates = aggregates or HostAggregates()
    if isinstance(event, HostAggregateCreated):
        made = HostAggregate(aggregate_id=event.aggregate_id, name=event.name, metadata=event.metadata)
        return HostAggregates(by_id={**aggregates.by_id, event.aggregate_id: made}, last_id=event.aggregate_id)
    known = aggregates.by_id[event.aggregate_id]
    match event:
        case HostAggregateRenamed():
            changed = replace(known, name=event.name)
        case HostAggregateMetadataSet():
            changed = replace(known, metadata=event.metadata)
        case HostAggregateHostAdded():
            changed = replace(known, hosts=(*known.hosts, event.host))
        case HostAggregateHostRemoved():
            changed = replace(known, hosts=tuple(host for host in known.hosts if host != event.host))
        case HostAggregateDeleted():
            left = {k: v for k, v in aggregates.by_id.items() if k != event.aggregate_id}
            return replace(aggregates, by_id=left)
        case _:
            assert_never(event)
    return replace(aggregates, by_id={**aggregates.by_id, event.aggregate_id: changed})
