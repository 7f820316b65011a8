"""All nodes as numpy columns, folded from service and provider events: what the scheduler looks at, kept in memory.

Rows are never removed, only made unreachable. Each stream's version is kept, so an event that was seen already (read
again, or taken from an append's own answer before the log brought it) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commands.states import Folded, kind_of
from domain.compute_service import ComputeService
from domain.host_aggregate import HostAggregates
from domain.identifiers import HostName, StreamId, category_of, provider_stream
from domain.recorded import RecordedEvent
from domain.resource_provider import ProviderTree
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Amounts
from domain.scheduling.request_spec import GroupRule, HostState, RequestSpec
from domain.scheduling.weighers import MULTIPLIERS, SOFT_GROUP_MULTIPLIER

CATEGORIES = ("service", "provider", "host_aggregate")  # of the streams that are looked at
CLASSES = (VCPU, MEMORY_MB, DISK_GB)
Bools = NDArray[np.bool_]
Numbers = NDArray[np.float64]


class Columns:
    def __init__(self) -> None:
        self._streams: dict[StreamId, Folded] = {}
        self._rows: dict[StreamId, int] = {}  # provider stream → row
        self._services: list[ComputeService] = []
        self._zones: Mapping[HostName, str] = {}  # of hosts that an aggregate puts in one
        self._reachable: Bools = np.zeros(0, dtype=bool)
        self._enabled: Bools = np.zeros(0, dtype=bool)
        self._capacity: Numbers = np.zeros((len(CLASSES), 0))
        self._used: Numbers = np.zeros((len(CLASSES), 0))

    def __len__(self) -> int:
        return len(self._services)

    def load(self, streams: Iterable[StreamId], load: Callable[[StreamId], Folded]) -> None:
        """Take these streams as they are now."""
        for stream in streams:
            self._take(stream, load(stream))

    def apply(self, records: Iterable[RecordedEvent]) -> None:
        for record in records:
            if category_of(record.stream) not in CATEGORIES:
                continue
            folded = self._streams.get(record.stream) or Folded(0, None)
            if record.version != folded.version + 1:
                continue  # seen already
            state = kind_of(record.stream).evolve(folded.state, record.event)
            self._take(record.stream, Folded(record.version, state))

    def reserve(self, row: int, amounts: Amounts, sign: int = 1) -> None:
        """Count a choice that is not claimed yet, so that the next of the same batch sees it; −1 takes it back."""
        for index, name in enumerate(CLASSES):
            self._used[index, row] += sign * amounts.get(name, 0)

    def host_state(self, row: int) -> HostState:
        service = self._services[row]
        tree: ProviderTree = self._streams[provider_stream(service.registration.node_id)].state
        root = tree.providers[tree.node_id]
        used = {name: int(self._used[index, row]) for index, name in enumerate(CLASSES)}
        return HostState(
            host=service.registration.host,
            node_id=service.registration.node_id,
            service_id=service.service_id,
            node_name=service.registration.hypervisor_hostname,
            availability_zone=self.zone_of(service),
            reachable=service.reachable,
            enabled=service.enabled,
            inventories=dict(root.inventories),
            used={**root.used, **used},
        )

    def zone_of(self, service: ComputeService) -> str:
        registration = service.registration
        return self._zones.get(registration.host, registration.availability_zone)

    def passing(self, spec: RequestSpec) -> Iterable[tuple[str, Bools]]:
        """Each filter's name with the rows that pass it: the rules of `domain/scheduling/filters.py`, over columns.

        Capacity is only a bound here (unit sizes and steps are not looked at); survivors are checked by the rule.
        """
        forced = spec.forced_host is not None
        yield "ComputeFilter", self._reachable & (self._enabled | forced)
        yield "HostFilter", self._where(spec, _named)
        yield "AvailabilityZoneFilter", self._where(spec, self._in_zone)
        yield "RetryFilter", self._where(spec, _not_tried)
        yield "DifferentHostFilter", self._where(spec, _different)
        yield "SameHostFilter", self._where(spec, _same)
        yield "ServerGroupAntiAffinityFilter", self._where(spec, _apart)
        yield "ServerGroupAffinityFilter", self._where(spec, _together)
        fits = np.ones(len(self), dtype=bool)
        for index, name in enumerate(CLASSES):
            amount = spec.amounts.get(name, 0)
            if amount:
                fits &= self._used[index] + amount <= self._capacity[index]
        yield "CapacityFilter", fits

    def weights(self, rows: NDArray[np.intp], group: GroupRule | None = None) -> Numbers:
        """As `domain/scheduling/weighers.py`, for the rows given."""
        weights = np.zeros(len(rows))
        for index, name in enumerate(CLASSES):
            _add(weights, (self._capacity[index] - self._used[index])[rows], MULTIPLIERS[name])
        if group is not None:
            preferences = [group.preference(self._services[row].registration.host) for row in rows]
            _add(weights, np.array(preferences, dtype=np.float64), SOFT_GROUP_MULTIPLIER)
        return weights

    def _where(self, spec: RequestSpec, rule: Callable[[RequestSpec, ComputeService], bool] | None) -> Bools:
        if rule is None or rule(spec, _ANY):
            return np.ones(len(self), dtype=bool)
        return np.fromiter((rule(spec, s) for s in self._services), dtype=bool, count=len(self))

    def _in_zone(self, spec: RequestSpec, service: ComputeService) -> bool:
        if spec.availability_zone is None or spec.forced_host is not None:
            return True
        return service is not _ANY and self.zone_of(service) == spec.availability_zone

    def _take(self, stream: StreamId, folded: Folded) -> None:
        if folded.state is None:
            return
        self._streams[stream] = folded
        if isinstance(folded.state, ComputeService):
            self._take_service(folded.state)
        elif isinstance(folded.state, HostAggregates):
            self._zones = folded.state.zones()
        else:
            row = self._rows.get(stream)
            if row is not None:
                self._take_provider(row, folded.state)

    def _take_service(self, service: ComputeService) -> None:
        stream = provider_stream(service.registration.node_id)
        row = self._rows.get(stream)
        if row is None:
            row = self._rows[stream] = len(self._services)
            self._services.append(service)
            self._reachable = np.append(self._reachable, False)
            self._enabled = np.append(self._enabled, False)
            self._capacity = np.append(self._capacity, np.zeros((len(CLASSES), 1)), axis=1)
            self._used = np.append(self._used, np.zeros((len(CLASSES), 1)), axis=1)
            provider = self._streams.get(stream)
            if provider is not None:
                self._take_provider(row, provider.state)
        self._services[row] = service
        self._reachable[row] = service.reachable
        self._enabled[row] = service.enabled

    def _take_provider(self, row: int, tree: ProviderTree) -> None:
        root = tree.providers[tree.node_id]
        for index, name in enumerate(CLASSES):
            inventory = root.inventories.get(name)
            self._capacity[index, row] = 0 if inventory is None or tree.deleted else inventory.capacity
            self._used[index, row] = root.used.get(name, 0)


class _AnyService:
    """Stands for a service nobody named: a rule that passes it asks for nothing, and needs no look at each row."""

    registration: Mapping[str, Any] | None = None


_ANY: Any = _AnyService()


def _named(spec: RequestSpec, service: ComputeService) -> bool:
    wanted = (spec.forced_host, spec.requested_host, spec.forced_node, spec.requested_node)
    if service is _ANY:
        return wanted == (None, None, None, None)
    host, node = service.registration.host, service.registration.hypervisor_hostname
    return all(name is None or name == has for name, has in zip(wanted, (host, host, node, node), strict=True))


def _not_tried(spec: RequestSpec, service: ComputeService) -> bool:
    if not spec.excluded_hosts:
        return True
    return service is not _ANY and service.registration.host not in spec.excluded_hosts


def _different(spec: RequestSpec, service: ComputeService) -> bool:
    if not spec.different_from or spec.forced_host is not None:
        return True
    return service is not _ANY and service.registration.host not in spec.different_from


def _same(spec: RequestSpec, service: ComputeService) -> bool:
    if spec.same_as is None or spec.forced_host is not None:
        return True
    return service is not _ANY and service.registration.host in spec.same_as


def _apart(spec: RequestSpec, service: ComputeService) -> bool:
    if spec.group is None:
        return True
    return service is not _ANY and spec.group.keeps_apart(service.registration.host)


def _together(spec: RequestSpec, service: ComputeService) -> bool:
    if spec.group is None:
        return True
    return service is not _ANY and spec.group.keeps_together(service.registration.host)


def _add(weights: Numbers, raw: Numbers, multiplier: float) -> None:
    spread = raw.max() - raw.min()
    if spread > 0:
        weights += multiplier * (raw - raw.min()) / spread
