"""The columns answer as the pure rules do, for any hosts and any request; and they follow the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from commands.scheduling.columns import Columns
from commands.scheduling.decide import ALTERNATES, CANDIDATES_RECORDED, choose, no_valid_host
from commands.states import Folded
from domain.compute_service import ServiceDisabled, ServiceEnabled, ServiceForcedDown, ServiceWentDown
from domain.host_aggregate import HostAggregateCreated, HostAggregateHostAdded, HostAggregates
from domain.identifiers import HOST_AGGREGATES, HostName, NodeId, ServiceId, provider_stream, service_stream
from domain.recorded import Cause, RecordedEvent
from domain.resource_provider import ProviderClaimed, ProviderDeleted, ProviderInventorySet
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from domain.scheduling.filters import FILTERS
from domain.scheduling.request_spec import GroupRule, HostState, RequestSpec
from domain.scheduling.weighers import weigh
from domain.server_group import GroupPolicy
from tests.support.decisions import (
    NODE,
    PROJECT,
    SERVICE,
    USER,
    claimed,
    fold_streams,
    host_events,
    host_up,
    host_went_down,
    stream_of,
)
from tests.support.ledger import Clock, Ledger

NAMES = ("alpha", "beta", "gamma", "delta")
ZONES = ("nova", "cellar")
RULES = dict(FILTERS)
clock = Clock()


def node_id(number: int) -> NodeId:
    return NodeId(UUID(int=100 + number))


def service_id(number: int) -> ServiceId:
    return ServiceId(UUID(int=200 + number))


@st.composite
def hosts(draw: st.DrawFn) -> list[Any]:
    """The events of up to four hosts: of any size, up or down, with any claims, over-full ones too."""
    attic = HostAggregateCreated(
        aggregate_id=1, aggregate_uuid=UUID(int=1), name="attic", metadata={"availability_zone": "attic"}
    )
    events: list[Any] = [attic]
    for number in range(draw(st.integers(0, 4))):
        node, service = node_id(number), service_id(number)
        registered, made, _, came_up = host_events(
            HostName(NAMES[number]), node, service, zone=draw(st.sampled_from(ZONES))
        )
        inventories = {
            name: Inventory(
                total=draw(st.integers(1, 16)),
                reserved=draw(st.integers(0, 2)),
                max_unit=draw(st.integers(1, 16)),
                step_size=draw(st.integers(1, 2)),
                allocation_ratio=draw(st.sampled_from((1.0, 1.5, 4.0))),
            )
            for name in draw(st.sets(st.sampled_from((VCPU, MEMORY_MB, DISK_GB)), min_size=1))
        }
        events += [registered, made, ProviderInventorySet(node_id=node, provider_id=node, inventories=inventories)]
        events.append(came_up)
        if draw(st.integers(0, 3)) == 0:
            events.append(HostAggregateHostAdded(aggregate_id=1, host=registered.host))
        used = {name: draw(st.integers(1, 24)) for name in inventories}
        if draw(st.booleans()):
            consumer = UUID(int=300 + number)
            events.append(
                ProviderClaimed(
                    node_id=node, consumer_id=consumer, project_id=PROJECT, user_id=USER, amounts={node: used}
                )
            )
        for event in (
            ServiceWentDown(service_id=service, reason="silent"),
            ServiceDisabled(service_id=service),
            ServiceForcedDown(service_id=service),
        ):
            if draw(st.integers(0, 4)) == 0:
                events.append(event)
    return events


named = st.none() | st.sampled_from(NAMES)
specs = st.builds(
    RequestSpec,
    amounts=st.dictionaries(st.sampled_from((VCPU, MEMORY_MB, DISK_GB)), st.integers(1, 8), min_size=1),
    availability_zone=st.none() | st.sampled_from((*ZONES, "attic")),
    forced_host=named,
    forced_node=named,
    requested_host=named,
    requested_node=named,
    excluded_hosts=st.frozensets(st.sampled_from(NAMES), max_size=2),
    different_from=st.frozensets(st.sampled_from(NAMES), max_size=2),
    same_as=st.none() | st.frozensets(st.sampled_from(NAMES), max_size=2),
    group=st.none()
    | st.builds(
        GroupRule,
        policy=st.sampled_from(GroupPolicy),
        max_server_per_host=st.integers(1, 3),
        others=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)),
    ),
)


def recorded(events: list[Any]) -> list[RecordedEvent]:
    versions: dict[str, int] = {}
    records = []
    for position, event in enumerate(events, 1):
        stream = stream_of(event)
        versions[stream] = versions.get(stream, 0) + 1
        records.append(
            RecordedEvent(
                position=position,
                stream=stream,
                version=versions[stream],
                type="",
                time=clock(),
                cause=Cause(command_id=UUID(int=0), request_id="req-0"),  # type: ignore[arg-type]
                event=event,
            )
        )
    return records


def columns_of(events: list[Any]) -> Columns:
    columns = Columns()
    columns.apply(recorded(events))
    return columns


def host_states(events: list[Any]) -> list[HostState]:
    """What the pure rules look at, made without any columns."""
    states = fold_streams(events)
    zones = states.get(HOST_AGGREGATES, HostAggregates()).zones()
    found = []
    for stream, service in states.items():
        if not stream.startswith("service:"):
            continue
        registration = service.registration
        root = states[provider_stream(registration.node_id)].providers[registration.node_id]
        found.append(
            HostState(
                host=registration.host,
                node_id=registration.node_id,
                service_id=service.service_id,
                node_name=registration.hypervisor_hostname,
                availability_zone=zones.get(registration.host, registration.availability_zone),
                reachable=service.reachable,
                enabled=service.enabled,
                inventories=dict(root.inventories),
                used=dict(root.used),
            )
        )
    return found


@settings(max_examples=200)
@for_all(events=hosts(), spec=specs)
def test_the_choice_is_what_the_pure_rules_would_choose(events: list[Any], spec: RequestSpec) -> None:
    survivors = [host for host in host_states(events) if all(rule(spec, host) for rule in RULES.values())]

    placed = choose(spec, columns_of(events))

    passing_columns = bound_survivors(spec, host_states(events))
    weights = dict(zip([h.host for h in passing_columns], weigh(passing_columns, spec.group), strict=True))
    expected = sorted(survivors, key=lambda host: -weights[host.host])
    assert {c.host for c in placed.choices} <= {h.host for h in survivors}
    assert len(placed.choices) == min(ALTERNATES, len(survivors))
    assert [weights[c.host] for c in placed.choices] == pytest.approx([weights[h.host] for h in expected[:ALTERNATES]])
    assert (placed.row >= 0) is bool(survivors)


def bound_survivors(spec: RequestSpec, states: list[HostState]) -> list[HostState]:
    """Those the columns weigh: capacity is only a bound there."""

    def room(host: HostState) -> bool:
        return all(
            host.used.get(name, 0) + amount <= (host.inventories[name].capacity if name in host.inventories else 0)
            for name, amount in spec.amounts.items()
        )

    others = [rule for name, rule in RULES.items() if name != "CapacityFilter"]
    return [host for host in states if room(host) and all(rule(spec, host) for rule in others)]


@settings(max_examples=200)
@for_all(events=hosts(), spec=specs)
def test_each_column_filter_lets_through_what_its_rule_does(events: list[Any], spec: RequestSpec) -> None:
    columns, states = columns_of(events), host_states(events)

    for name, passing in columns.passing(spec):
        expected = [RULES[name](spec, host) for host in states]
        if name == "CapacityFilter":
            assert all(got or not exact for got, exact in zip(passing, expected, strict=True)), (
                "a bound keeps all that fit"
            )
        else:
            assert list(passing) == expected, name


@settings(max_examples=100)
@for_all(events=hosts(), cut=st.integers(0, 40), again=st.integers(0, 40))
def test_events_seen_again_or_loaded_before_change_nothing(events: list[Any], cut: int, again: int) -> None:
    records = recorded(events)
    before = fold_streams([r.event for r in records[:cut]])
    versions: dict[Any, int] = {}
    for record in records[:cut]:
        versions[record.stream] = record.version
    columns = Columns()
    columns.load(before, lambda stream: Folded(versions[stream], before[stream]))

    columns.apply(records)
    columns.apply(records[min(again, len(records)) :])

    whole = columns_of(events)
    assert sorted(map(repr, rows(columns))) == sorted(map(repr, rows(whole)))


def rows(columns: Columns) -> list[HostState]:
    return [columns.host_state(row) for row in range(len(columns))]


def test_a_reserved_choice_counts_until_it_is_taken_back() -> None:
    columns = columns_of(list(host_up))
    spec = RequestSpec(amounts={VCPU: 8})

    columns.reserve(0, {VCPU: 1})
    assert not choose(spec, columns).choices
    columns.reserve(0, {VCPU: 1}, -1)
    assert choose(spec, columns).choices


def test_a_gap_is_left_until_the_log_fills_it() -> None:
    records = recorded([*host_up, ServiceDisabled(service_id=SERVICE), ServiceEnabled(service_id=SERVICE)])
    columns = Columns()
    columns.apply(records[:4])

    columns.apply(records[5:])  # an answer of our own append, before the log brought what came between
    assert columns.host_state(0).enabled
    columns.apply(records[4:])
    assert columns.host_state(0).enabled


def test_a_deleted_provider_has_room_for_nothing() -> None:
    columns = columns_of([*host_up, ProviderDeleted(node_id=NODE)])

    assert not choose(RequestSpec(amounts={VCPU: 1}), columns).choices


def test_a_decision_records_why() -> None:
    events = [*host_up, *host_events(HostName("beta"), node_id(1), service_id(1), zone="cellar"), host_went_down]

    reason = choose(RequestSpec(amounts={VCPU: 1}, availability_zone="cellar"), columns_of(events)).reason

    assert reason.hosts_considered == 2
    assert [(f.filter, f.hosts_left) for f in reason.filters] == [
        ("ComputeFilter", 1),
        ("HostFilter", 1),
        ("AvailabilityZoneFilter", 1),
        ("RetryFilter", 1),
        ("DifferentHostFilter", 1),
        ("SameHostFilter", 1),
        ("ServerGroupAntiAffinityFilter", 1),
        ("ServerGroupAffinityFilter", 1),
        ("CapacityFilter", 1),
    ]
    assert [c.host for c in reason.candidates] == ["beta"]


def test_a_refusal_names_the_filter_that_left_nothing() -> None:
    reason = choose(RequestSpec(amounts={VCPU: 99}), columns_of(list(host_up))).reason

    assert "CapacityFilter: 0 of 1 hosts left" in no_valid_host(reason)
    assert "no host is registered" in no_valid_host(choose(RequestSpec(amounts={VCPU: 1}), Columns()).reason)


def test_a_host_whose_unit_is_too_small_is_no_candidate_though_it_has_room() -> None:
    inventory = {VCPU: Inventory(total=16, max_unit=2)}
    events = [*host_up, ProviderInventorySet(node_id=NODE, provider_id=NODE, inventories=inventory)]

    placed = choose(RequestSpec(amounts={VCPU: 4}), columns_of(events))

    assert not placed.choices
    assert placed.reason.filters[-1].hosts_left == 0


def test_only_the_best_candidates_are_recorded() -> None:
    events: list[Any] = []
    for number in range(12):
        events += host_events(HostName(f"h{number}"), node_id(number), service_id(number), vcpus=8 + number)

    placed = choose(RequestSpec(amounts={VCPU: 1}), columns_of(events))

    assert len(placed.reason.candidates) == CANDIDATES_RECORDED
    assert [c.host for c in placed.choices] == ["h11", "h10", "h9"]


def test_claims_of_the_ledger_show_in_the_columns(two_hosts: Ledger) -> None:
    two_hosts.running(3)
    columns = Columns()
    for category in ("service", "provider"):
        columns.load(two_hosts.store.streams(category), two_hosts.folded)

    for row in range(len(columns)):
        host = columns.host_state(row)
        assert host.used == {
            **dict.fromkeys((VCPU, MEMORY_MB, DISK_GB), 0),
            **two_hosts.provider(host.host).providers[host.node_id].used,
        }


def test_a_claim_on_a_service_that_is_not_known_yet_waits_for_it() -> None:
    records = recorded([*host_up, claimed])
    columns = Columns()

    columns.apply([r for r in records if r.stream == provider_stream(NODE)])
    assert len(columns) == 0
    columns.apply([r for r in records if r.stream == service_stream(SERVICE)])

    assert columns.host_state(0).used[VCPU] == 2
    assert replace(columns.host_state(0), used={}).reachable
