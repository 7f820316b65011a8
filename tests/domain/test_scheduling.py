"""Filters and weighers, one rule at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.identifiers import HostName
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from domain.scheduling.filters import FILTERS
from domain.scheduling.request_spec import GroupRule, HostState, RequestSpec
from domain.scheduling.weighers import weigh
from domain.server_group import GroupPolicy
from tests.support.decisions import HOST, NODE, SERVICE

RULES = dict(FILTERS)
host = HostState(
    host=HOST,
    node_id=NODE,
    service_id=SERVICE,
    node_name="alpha.example",
    availability_zone="nova",
    reachable=True,
    enabled=True,
    inventories={
        VCPU: Inventory(total=8, max_unit=4, allocation_ratio=2.0),
        MEMORY_MB: Inventory(total=1024, reserved=512, max_unit=1024),
    },
    used={VCPU: 4},
)
spec = RequestSpec(amounts={VCPU: 1})
APART, TOGETHER = GroupPolicy.ANTI_AFFINITY, GroupPolicy.AFFINITY
RATHER_APART, RATHER_TOGETHER = GroupPolicy.SOFT_ANTI_AFFINITY, GroupPolicy.SOFT_AFFINITY


def group(policy: GroupPolicy, most: int = 1, **others: int) -> GroupRule:
    return GroupRule(
        policy=policy, max_server_per_host=most, others={HostName(name): count for name, count in others.items()}
    )


CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], bool]] = [
    ("ComputeFilter", "a host that is up and enabled", {}, {}, True),
    ("ComputeFilter", "a host that is down", {}, {"reachable": False}, False),
    ("ComputeFilter", "a disabled host", {}, {"enabled": False}, False),
    ("ComputeFilter", "a disabled host, forced", {"forced_host": HOST}, {"enabled": False}, True),
    ("ComputeFilter", "a host that is down, forced", {"forced_host": HOST}, {"reachable": False}, False),
    ("HostFilter", "no host named", {}, {}, True),
    ("HostFilter", "the host asked for", {"requested_host": HOST}, {}, True),
    ("HostFilter", "another host asked for", {"requested_host": "beta"}, {}, False),
    ("HostFilter", "the host forced", {"forced_host": HOST}, {}, True),
    ("HostFilter", "another host forced", {"forced_host": "beta"}, {}, False),
    ("HostFilter", "the node asked for", {"requested_node": "alpha.example"}, {}, True),
    ("HostFilter", "the right host and a wrong node", {"requested_host": HOST, "requested_node": "beta"}, {}, False),
    ("HostFilter", "a wrong node forced", {"forced_node": "beta"}, {}, False),
    ("AvailabilityZoneFilter", "no zone asked for", {}, {}, True),
    ("AvailabilityZoneFilter", "its zone", {"availability_zone": "nova"}, {}, True),
    ("AvailabilityZoneFilter", "another zone", {"availability_zone": "cellar"}, {}, False),
    ("AvailabilityZoneFilter", "another zone, forced", {"availability_zone": "cellar", "forced_host": HOST}, {}, True),
    ("RetryFilter", "a host not tried", {"excluded_hosts": frozenset({"beta"})}, {}, True),
    ("RetryFilter", "a host tried before", {"excluded_hosts": frozenset({HOST})}, {}, False),
    ("DifferentHostFilter", "the servers are elsewhere", {"different_from": frozenset({"beta"})}, {}, True),
    ("DifferentHostFilter", "one is here", {"different_from": frozenset({HOST})}, {}, False),
    ("DifferentHostFilter", "forced", {"different_from": frozenset({HOST}), "forced_host": HOST}, {}, True),
    ("SameHostFilter", "no servers named", {}, {}, True),
    ("SameHostFilter", "one is here", {"same_as": frozenset({HOST, "beta"})}, {}, True),
    ("SameHostFilter", "the servers are elsewhere", {"same_as": frozenset({"beta"})}, {}, False),
    ("SameHostFilter", "the servers are nowhere", {"same_as": frozenset()}, {}, False),
    ("ServerGroupAntiAffinityFilter", "no group", {}, {}, True),
    ("ServerGroupAntiAffinityFilter", "others elsewhere", {"group": group(APART, beta=1)}, {}, True),
    ("ServerGroupAntiAffinityFilter", "another is there", {"group": group(APART, alpha=1)}, {}, False),
    ("ServerGroupAntiAffinityFilter", "forced", {"group": group(APART, alpha=1), "forced_host": HOST}, {}, False),
    ("ServerGroupAntiAffinityFilter", "two may be", {"group": group(APART, 2, alpha=1)}, {}, True),
    ("ServerGroupAntiAffinityFilter", "a preference", {"group": group(RATHER_APART, alpha=1)}, {}, True),
    ("ServerGroupAffinityFilter", "no others yet", {"group": group(TOGETHER)}, {}, True),
    ("ServerGroupAffinityFilter", "others are there", {"group": group(TOGETHER, alpha=1, beta=1)}, {}, True),
    ("ServerGroupAffinityFilter", "others elsewhere", {"group": group(TOGETHER, beta=1)}, {}, False),
    ("ServerGroupAffinityFilter", "a preference", {"group": group(RATHER_TOGETHER, beta=1)}, {}, True),
    ("CapacityFilter", "what still fits", {"amounts": {VCPU: 4}}, {"used": {VCPU: 12}}, True),
    ("CapacityFilter", "one too many", {"amounts": {VCPU: 4}}, {"used": {VCPU: 13}}, False),
    ("CapacityFilter", "more than one unit may be", {"amounts": {VCPU: 5}}, {}, False),
    ("CapacityFilter", "what is reserved", {"amounts": {MEMORY_MB: 513}}, {}, False),
    ("CapacityFilter", "a class it does not have", {"amounts": {DISK_GB: 1}}, {}, False),
]


@pytest.mark.parametrize(
    ("name", "wanted", "has", "passes"),
    [(name, wanted, has, passes) for name, _, wanted, has, passes in CASES],
    ids=[f"{name}: {what}" for name, what, *_ in CASES],
)
def test_a_filter_lets_through_only_what_satisfies_it(
    name: str, wanted: dict[str, Any], has: dict[str, Any], passes: bool
) -> None:
    assert RULES[name](replace(spec, **wanted), replace(host, **has)) is passes


def test_the_host_with_the_most_room_weighs_most() -> None:
    emptier, fuller = replace(host, used={VCPU: 0}), replace(host, used={VCPU: 8})

    weights = weigh([fuller, emptier, host])

    assert weights[1] > weights[2] > weights[0]


def test_each_class_counts_the_same_however_large_its_numbers() -> None:
    sizes = {VCPU: Inventory(total=10, max_unit=10), MEMORY_MB: Inventory(total=100_000, max_unit=100_000)}
    cpus, memory = (replace(host, inventories=sizes, used=used) for used in ({MEMORY_MB: 100_000}, {VCPU: 10}))

    assert weigh([cpus, memory]) == [1.0, 1.0]


def test_hosts_alike_weigh_the_same_and_no_hosts_weigh_nothing() -> None:
    assert weigh([host, host]) == [0.0, 0.0]
    assert weigh([]) == []


@pytest.mark.parametrize(
    ("policy", "weights"),
    [(RATHER_TOGETHER, [0.5, 1.0, 0.0]), (RATHER_APART, [0.5, 0.0, 1.0]), (APART, [0.0] * 3), (TOGETHER, [0.0] * 3)],
)
def test_a_soft_policy_weighs_hosts_by_how_many_members_they_have(policy: GroupPolicy, weights: list[float]) -> None:
    hosts = [replace(host, host=HostName(name)) for name in ("alpha", "beta", "gamma")]

    assert weigh(hosts, group(policy, alpha=1, beta=2)) == weights
