"""Weighers: which of the hosts that pass is best. Nova's defaults for RAM, CPU and disk: the most free; and for a server
group with a soft policy: the most or the fewest of its members. Each is scaled to 0..1 over the candidates, multiplied and
summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.resources import DISK_GB, MEMORY_MB, VCPU
from domain.scheduling.request_spec import GroupRule, HostState

MULTIPLIERS: Mapping[str, float] = {MEMORY_MB: 1.0, VCPU: 1.0, DISK_GB: 1.0}
SOFT_GROUP_MULTIPLIER = 1.0


def free(host: HostState, resource_class: str) -> float:
    """What is left of a class, in its unit; 0 where the host has none of it."""
    inventory = host.inventories.get(resource_class)
    return 0.0 if inventory is None else float(inventory.capacity - host.used.get(resource_class, 0))


def weigh(hosts: Sequence[HostState], group: GroupRule | None = None) -> list[float]:
    """A weight for each host; more is better."""
    weights = [0.0] * len(hosts)
    for resource_class, multiplier in MULTIPLIERS.items():
        _add(weights, [free(host, resource_class) for host in hosts], multiplier)
    if group is not None:
        _add(weights, [float(group.preference(host.host)) for host in hosts], SOFT_GROUP_MULTIPLIER)
    return weights


def _add(weights: list[float], raw: Sequence[float], multiplier: float) -> None:
    low, high = min(raw, default=0.0), max(raw, default=0.0)
    if high > low:
        for index, value in enumerate(raw):
            weights[index] += multiplier * (value - low) / (high - low)
