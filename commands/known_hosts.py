"""Which hosts the ledger has heard of, and under which ids: those that are registered, and those only enrolled so far."""

from __future__ import annotations

from dataclasses import dataclass

from commands.event_store import EventStore
from commands.records import Records
from commands.snapshots import Snapshots
from domain.compute_service import ComputeService
from domain.host_key import HostKey, service_of_name
from domain.identifiers import HostName, NodeId, ServiceId, service_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHost:
    service_id: ServiceId
    host: HostName
    node_id: NodeId
    service: ComputeService | None  # none: its agent has yet to say what it is
    key: HostKey | None  # none: it was never enrolled

    @property
    def epoch(self) -> int:
        """Of its last session; 0 before the first."""
        return 0 if self.service is None else self.service.epoch


def known_hosts(store: EventStore, snapshots: Snapshots, records: Records) -> list[KnownHost]:
    """Every live host, by name; costs as many look-ups as there are hosts."""
    services: dict[ServiceId, ComputeService] = {}
    for stream in store.streams("service"):
        service: ComputeService = snapshots.load(store, stream, records).state
        services[service.service_id] = service
    keys: dict[ServiceId, HostKey] = {}
    for stream in store.streams("host_key"):
        key: HostKey = snapshots.load(store, stream, records).state
        keys[key.service_id] = key
    found = [_known(services.get(one), keys.get(one)) for one in services.keys() | keys.keys()]
    live = (one for one in found if one.service is None or not one.service.deleted)
    return sorted(live, key=lambda one: (one.host, one.service_id))


def find_host(store: EventStore, snapshots: Snapshots, records: Records, host: HostName) -> KnownHost | None:
    """The live host of a name. It costs what all hosts cost: it is for operators, not for requests."""
    return next((one for one in known_hosts(store, snapshots, records) if one.host == host), None)


def next_service_of_name(store: EventStore, host: HostName) -> ServiceId:
    """The service that a host is to be enrolled as whose name no live one has."""
    turn = 1
    while store.read_stream(service_stream(service_of_name(host, turn))):  # none that lives has the name
        turn += 1
    return service_of_name(host, turn)


def _known(service: ComputeService | None, key: HostKey | None) -> KnownHost:
    said = service.registration if service is not None else None if key is None else key.enrollment
    assert said is not None
    return KnownHost(service_id=said.service_id, host=said.host, node_id=said.node_id, service=service, key=key)
