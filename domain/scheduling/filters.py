"""Filters: a pure rule each, in the order they are applied. `commands/scheduling/columns.py` runs the same rules over
all hosts at once; a property test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable

from domain.scheduling.request_spec import HostState, RequestSpec

Rule = Callable[[RequestSpec, HostState], bool]


def compute(spec: RequestSpec, host: HostState) -> bool:
    """Nova's ComputeFilter: the service is up and enabled. A forced host need only be up."""
    return host.reachable and (host.enabled or spec.forced_host is not None)


def named_host(spec: RequestSpec, host: HostState) -> bool:
    """The host or node the request names, forced (zone:host:node) or asked for (Nova API 2.74)."""
    wanted = (
        (spec.forced_host, host.host),
        (spec.requested_host, host.host),
        (spec.forced_node, host.node_name),
        (spec.requested_node, host.node_name),
    )
    return all(name is None or name == has for name, has in wanted)


def availability_zone(spec: RequestSpec, host: HostState) -> bool:
    """The zone asked for. A forced host is taken whatever its zone, as in Nova."""
    return spec.availability_zone in (None, host.availability_zone) or spec.forced_host is not None


def retry(spec: RequestSpec, host: HostState) -> bool:
    """Not a host where this instance failed to start before."""
    return host.host not in spec.excluded_hosts


def different_host(spec: RequestSpec, host: HostState) -> bool:
    """Not where the servers of the hint are. A forced host is taken all the same, as in Nova."""
    return host.host not in spec.different_from or spec.forced_host is not None


def same_host(spec: RequestSpec, host: HostState) -> bool:
    """Where one of the servers of the hint is; forced likewise."""
    return spec.same_as is None or host.host in spec.same_as or spec.forced_host is not None


def anti_affinity(spec: RequestSpec, host: HostState) -> bool:
    """Of a server group that keeps its members apart: not too many of them are there. Holds for a forced host too."""
    return spec.group is None or spec.group.keeps_apart(host.host)


def affinity(spec: RequestSpec, host: HostState) -> bool:
    """Of a server group that keeps its members together: where they are."""
    return spec.group is None or spec.group.keeps_together(host.host)


def capacity(spec: RequestSpec, host: HostState) -> bool:
    """Room for every class asked for: (total − reserved) × ratio, unit sizes and steps (Placement)."""
    return all(
        name in host.inventories and host.inventories[name].admits(amount, host.used.get(name, 0))
        for name, amount in spec.amounts.items()
    )


FILTERS: tuple[tuple[str, Rule], ...] = (
    ("ComputeFilter", compute),
    ("HostFilter", named_host),
    ("AvailabilityZoneFilter", availability_zone),
    ("RetryFilter", retry),
    ("DifferentHostFilter", different_host),
    ("SameHostFilter", same_host),
    ("ServerGroupAntiAffinityFilter", anti_affinity),
    ("ServerGroupAffinityFilter", affinity),
    ("CapacityFilter", capacity),
)
