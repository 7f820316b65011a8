"""Host aggregates: made, renamed, described and filled by operators. A host that holds servers does not change its zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from commands.states import Decision, States
from domain.errors import (
    AggregateChangeRefused,
    AggregateExists,
    AggregateHostExists,
    AggregateHostNotFound,
    AggregateHostRefused,
    AggregateNotEmpty,
    AggregateNotFound,
    ComputeHostNotFound,
)
from domain.host_aggregate import (
    ZONE,
    HostAggregate,
    HostAggregateCreated,
    HostAggregateDeleted,
    HostAggregateHostAdded,
    HostAggregateHostRemoved,
    HostAggregateMetadataSet,
    HostAggregateRenamed,
    HostAggregates,
)
from domain.identifiers import HOST_AGGREGATES, HostName, NodeId, ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAggregate:
    aggregate_uuid: UUID
    name: str
    availability_zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAggregate:
    """Another name, another zone, or both. `nodes` are those of its hosts, to see whether they hold servers."""

    aggregate_id: int
    name: str | None = None
    metadata: Mapping[str, str | None] | None = None  # None for a value takes the item away
    nodes: Mapping[HostName, NodeId]
    action: str = "update"  # as a refusal names it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAggregate:
    aggregate_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAggregateHost:
    aggregate_id: int
    host: HostName
    service_id: ServiceId  # the host's


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAggregateHost:
    aggregate_id: int
    host: HostName
    service_id: ServiceId | None  # none: there is no such host any more


def decide_create_aggregate(command: CreateAggregate, states: States) -> Decision:
    """Nova API 2.1, POST /os-aggregates.

    Raises:
        AggregateExists: HTTP answers 409.
    """
    aggregates = states.host_aggregates()
    _require_free(command.name, aggregates)
    created = HostAggregateCreated(
        aggregate_id=aggregates.last_id + 1,
        aggregate_uuid=command.aggregate_uuid,
        name=command.name,
        metadata={ZONE: command.availability_zone} if command.availability_zone else {},
    )
    return [(HOST_AGGREGATES, created)]


def decide_update_aggregate(command: UpdateAggregate, states: States) -> Decision:
    """Nova API 2.1, PUT /os-aggregates/{id} and set_metadata.

    Raises:
        AggregateNotFound: HTTP answers 404.
        AggregateExists: HTTP answers 409.
        AggregateChangeRefused: no zone, or one that its hosts cannot be in; HTTP answers 400.
    """
    aggregates = states.host_aggregates()
    known = _known(command.aggregate_id, aggregates)
    events: Decision = []
    if command.name is not None and command.name != known.name:
        _require_free(command.name, aggregates)
        events.append((HOST_AGGREGATES, HostAggregateRenamed(aggregate_id=known.aggregate_id, name=command.name)))
    if command.metadata is not None:
        if ZONE in command.metadata:
            _require_zone(command, known, aggregates, states)
        changed = {**known.metadata, **command.metadata}
        metadata = {key: value for key, value in changed.items() if value is not None}
        if metadata != known.metadata:
            event = HostAggregateMetadataSet(aggregate_id=known.aggregate_id, metadata=metadata)
            events.append((HOST_AGGREGATES, event))
    return events


def _require_zone(command: UpdateAggregate, known: HostAggregate, aggregates: HostAggregates, states: States) -> None:
    zone = (command.metadata or {})[ZONE]

    def refused(reason: str) -> AggregateChangeRefused:
        return AggregateChangeRefused(command.action, known.aggregate_id, reason)

    if not zone:
        raise refused(f"Aggregate {known.name} does not support empty named availability zone")
    if others := _other_zones(known.hosts, zone, known.aggregate_id, aggregates):
        raise refused(f"One or more hosts already in availability zone(s) {others}")
    nodes = [command.nodes[host] for host in known.hosts if host in command.nodes]
    if zone != known.zone and any(_held(node_id, states) for node_id in nodes):
        raise refused("One or more hosts contain instances in this zone")


def decide_delete_aggregate(command: DeleteAggregate, states: States) -> Decision:
    """Nova API 2.1, DELETE /os-aggregates/{id}.

    Raises:
        AggregateNotFound: HTTP answers 404.
        AggregateNotEmpty: HTTP answers 400.
    """
    known = _known(command.aggregate_id, states.host_aggregates())
    if known.hosts:
        raise AggregateNotEmpty(known.aggregate_id)
    return [(HOST_AGGREGATES, HostAggregateDeleted(aggregate_id=known.aggregate_id))]


def decide_add_host(command: AddAggregateHost, states: States) -> Decision:
    """Nova API 2.1, add_host.

    Raises:
        AggregateNotFound, ComputeHostNotFound: HTTP answers 404.
        AggregateHostExists, AggregateHostRefused: it is in another zone, or its servers would be; HTTP answers 409.
    """
    service = states.service(command.service_id)
    if service is None or service.deleted or service.registration.host != command.host:
        raise ComputeHostNotFound(command.host)
    aggregates = states.host_aggregates()
    known = _known(command.aggregate_id, aggregates)
    if command.host in known.hosts:
        raise AggregateHostExists(known.aggregate_id, command.host)
    if known.zone:
        if others := _other_zones((command.host,), known.zone, known.aggregate_id, aggregates):
            reason = f"One or more hosts already in availability zone(s) {others}"
            raise AggregateHostRefused("add host to", known.aggregate_id, reason)
        _require_same_zone("add host to", known, command, aggregates.zone_of(command.host), known.zone, states)
    return [(HOST_AGGREGATES, HostAggregateHostAdded(aggregate_id=known.aggregate_id, host=command.host))]


def decide_remove_host(command: RemoveAggregateHost, states: States) -> Decision:
    """Nova API 2.1, remove_host.

    Raises:
        AggregateNotFound, AggregateHostNotFound: HTTP answers 404.
        AggregateHostRefused: its servers would be in another zone; HTTP answers 409.
    """
    aggregates = states.host_aggregates()
    known = _known(command.aggregate_id, aggregates)
    if command.host not in known.hosts:
        raise AggregateHostNotFound(known.aggregate_id, command.host)
    if known.zone:
        others = [one.zone for one in aggregates.of_host(command.host) if one is not known and one.zone]
        _require_same_zone("remove host from", known, command, known.zone, others[0] if others else None, states)
    return [(HOST_AGGREGATES, HostAggregateHostRemoved(aggregate_id=known.aggregate_id, host=command.host))]


def without_host(host: HostName, aggregates: HostAggregates) -> Decision:
    """The host is gone from all of them."""
    return [
        (HOST_AGGREGATES, HostAggregateHostRemoved(aggregate_id=aggregate.aggregate_id, host=host))
        for aggregate in aggregates.of_host(host)
    ]


def _require_same_zone(
    action: str,
    known: HostAggregate,
    command: AddAggregateHost | RemoveAggregateHost,
    before: str | None,
    after: str | None,
    states: States,
) -> None:
    if before == after or command.service_id is None:
        return
    service = states.service(command.service_id)
    held = 0 if service is None else _held(service.registration.node_id, states)
    if held:
        what = "added to" if action.startswith("add") else "removed from"
        raise AggregateHostRefused(
            action,
            known.aggregate_id,
            f"The host cannot be {what} the aggregate as the availability zone of the host would change from '{before}' "
            f"to '{after}' but the host already has {held} instance(s). Changing the AZ of an existing instance is not "
            "supported by this action. Move the instances away from this host then try again. If you need to move the "
            "instances between AZs then you can use shelve_offload and unshelve to achieve this.",
        )


def _held(node_id: NodeId, states: States) -> int:
    """How many claims there are on a node."""
    tree = states.provider(node_id)
    return 0 if tree is None else len(tree.claims)


def _other_zones(hosts: tuple[HostName, ...], zone: str, but: int, aggregates: HostAggregates) -> list[str]:
    return [
        one.zone
        for one in aggregates.by_id.values()
        if one.zone and one.zone != zone and one.aggregate_id != but and set(hosts) & set(one.hosts)
    ]


def _require_free(name: str, aggregates: HostAggregates) -> None:
    if any(aggregate.name == name for aggregate in aggregates.by_id.values()):
        raise AggregateExists(name)


def _known(aggregate_id: int, aggregates: HostAggregates) -> HostAggregate:
    known = aggregates.by_id.get(aggregate_id)
    if known is None:
        raise AggregateNotFound(aggregate_id)
    return known
