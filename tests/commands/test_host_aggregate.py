"""Host aggregates: names are unique, a host is in one zone, and one that holds servers stays in its zone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from commands.compute_service import DeleteService, ForceServiceDown, RegisterHost
from commands.host_aggregate import (
    AddAggregateHost,
    CreateAggregate,
    DeleteAggregate,
    RemoveAggregateHost,
    UpdateAggregate,
)
from commands.instance.schedule import Choice, ScheduleInstance
from commands.reports import HostReport, NodeFacts
from domain.compute_service import ServiceDeleted, ServiceForcedDown, ServiceForcedDownLifted
from domain.errors import (
    AggregateChangeRefused,
    AggregateExists,
    AggregateHostExists,
    AggregateHostNotFound,
    AggregateHostRefused,
    AggregateNotEmpty,
    AggregateNotFound,
    ClaimDoesNotFit,
    ComputeHostNotFound,
    ServiceInUse,
    ServiceNotFound,
)
from domain.host_aggregate import (
    HostAggregateCreated,
    HostAggregateDeleted,
    HostAggregateHostAdded,
    HostAggregateHostRemoved,
    HostAggregateMetadataSet,
    HostAggregateRenamed,
)
from domain.resource_provider import ProviderCreated, ProviderDeleted, ProviderInventorySet
from tests.support.decisions import HOST, INSTANCE, NODE, REASON, SERVICE, building, claimed, given, host_up

UUIDS = [UUID(int=n) for n in range(3)]
plain = HostAggregateCreated(aggregate_id=1, aggregate_uuid=UUIDS[1], name="plain")
attic = HostAggregateCreated(
    aggregate_id=2, aggregate_uuid=UUIDS[2], name="attic", metadata={"availability_zone": "attic"}
)
in_plain = HostAggregateHostAdded(aggregate_id=1, host=HOST)
in_attic = HostAggregateHostAdded(aggregate_id=2, host=HOST)
registered, _, inventory_set, _ = host_up


def adds(aggregate_id: int) -> AddAggregateHost:
    return AddAggregateHost(aggregate_id=aggregate_id, host=HOST, service_id=SERVICE)


def removes(aggregate_id: int) -> RemoveAggregateHost:
    return RemoveAggregateHost(aggregate_id=aggregate_id, host=HOST, service_id=SERVICE)


def zoned(aggregate_id: int, zone: str | None, **more: Any) -> UpdateAggregate:
    metadata = {"availability_zone": zone}
    return UpdateAggregate(aggregate_id=aggregate_id, metadata=metadata, nodes={HOST: NODE}, **more)


def test_an_aggregate_is_made_with_the_next_number_and_a_name_of_its_own() -> None:
    command = CreateAggregate(aggregate_uuid=UUIDS[2], name="attic", availability_zone="attic")

    given(plain).when(command).then(attic)
    given(plain).when(replace(command, name="plain")).then_refused(AggregateExists, "Aggregate plain already exists.")
    gone = HostAggregateDeleted(aggregate_id=1)
    assert given(plain, gone).when(replace(command, name="plain")).events[0].aggregate_id == 2


def test_an_aggregate_is_renamed_and_put_in_a_zone_at_once() -> None:
    decided = given(plain).when(zoned(1, "cellar", name="new"))

    decided.then(
        HostAggregateRenamed(aggregate_id=1, name="new"),
        HostAggregateMetadataSet(aggregate_id=1, metadata={"availability_zone": "cellar"}),
    )
    decided.and_then().when(zoned(1, "cellar", name="new")).then_nothing()
    given(plain, attic).when(zoned(1, "cellar", name="attic")).then_refused(AggregateExists)


def test_metadata_is_set_beside_what_there_is_and_null_takes_away() -> None:
    known = HostAggregateMetadataSet(aggregate_id=1, metadata={"a": "1", "b": "2"})
    command = UpdateAggregate(aggregate_id=1, metadata={"a": None, "c": "3"}, nodes={})

    given(plain, known).when(command).then(HostAggregateMetadataSet(aggregate_id=1, metadata={"b": "2", "c": "3"}))


@pytest.mark.parametrize("zone", [None, ""])
def test_a_zone_is_never_taken_away(zone: str | None) -> None:
    given(attic).when(zoned(2, zone)).then_refused(AggregateChangeRefused, "does not support empty named")


def test_a_host_is_in_one_zone() -> None:
    given(*host_up, plain, attic, in_attic, in_plain).when(zoned(1, "cellar")).then_refused(
        AggregateChangeRefused, r"already in availability zone\(s\) \['attic'\]"
    )
    cellar = HostAggregateMetadataSet(aggregate_id=1, metadata={"availability_zone": "cellar"})
    given(*host_up, plain, cellar, attic, in_attic).when(adds(1)).then_refused(AggregateHostRefused, "attic")


def test_a_host_that_holds_servers_stays_in_its_zone() -> None:
    holding = (*host_up, claimed, plain, attic)

    given(*holding).when(adds(2)).then_refused(AggregateHostRefused, "already has 1 instance")
    given(*holding, in_attic).when(removes(2)).then_refused(AggregateHostRefused, "from 'attic' to 'None'")
    given(*holding, in_attic).when(zoned(2, "other")).then_refused(AggregateChangeRefused, "contain instances")
    given(*holding, in_attic).when(zoned(2, "attic", name="new")).then(HostAggregateRenamed(aggregate_id=2, name="new"))
    given(*holding).when(adds(1)).then(in_plain)
    given(*holding, in_plain).when(removes(1)).then(HostAggregateHostRemoved(aggregate_id=1, host=HOST))


def test_hosts_are_added_and_removed_once() -> None:
    given(*host_up, plain, in_plain).when(adds(1)).then_refused(AggregateHostExists)
    given(*host_up, plain).when(removes(1)).then_refused(AggregateHostNotFound)
    given(plain).when(adds(1)).then_refused(ComputeHostNotFound)
    given(*host_up, plain, ServiceDeleted(service_id=SERVICE)).when(adds(1)).then_refused(ComputeHostNotFound)


def test_an_aggregate_with_hosts_is_not_deleted() -> None:
    given(plain, in_plain).when(DeleteAggregate(aggregate_id=1)).then_refused(AggregateNotEmpty)
    given(plain).when(DeleteAggregate(aggregate_id=1)).then(HostAggregateDeleted(aggregate_id=1))


def test_what_is_not_there_is_not_found() -> None:
    for command in (zoned(9, "z"), DeleteAggregate(aggregate_id=9), adds(9), removes(9)):
        given(*host_up).when(command).then_refused(AggregateNotFound, "Aggregate 9 could not be found.")


def test_a_host_whose_zone_has_changed_since_it_was_chosen_is_not_claimed() -> None:
    chosen = Choice(host=HOST, node_id=NODE, service_id=SERVICE, availability_zone="nova")
    schedule = ScheduleInstance(instance_id=INSTANCE, attempt=1, choices=(chosen,), reason=REASON)
    moved = (*building, attic, in_attic)

    given(*moved).when(schedule).then_refused(ClaimDoesNotFit)
    now = replace(schedule, choices=(replace(chosen, availability_zone="attic"),))
    assert given(*moved).when(now).events[1].availability_zone == "attic"


# services


def test_a_host_is_forced_down_and_up_again() -> None:
    down, up = (ForceServiceDown(service_id=SERVICE, forced_down=forced) for forced in (True, False))
    decided = given(*host_up).when(down)

    decided.then(ServiceForcedDown(service_id=SERVICE))
    decided.and_then().when(down).then_nothing()
    decided.and_then().when(up).then(ServiceForcedDownLifted(service_id=SERVICE))
    given().when(down).then_refused(ServiceNotFound)


def test_a_service_is_deleted_with_all_it_offered_and_leaves_its_aggregates() -> None:
    delete = DeleteService(service_id=SERVICE)
    decided = given(*host_up, plain, in_plain).when(delete)

    decided.then(
        HostAggregateHostRemoved(aggregate_id=1, host=HOST),
        ServiceDeleted(service_id=SERVICE),
        ProviderDeleted(node_id=NODE),
    )
    decided.and_then().when(delete).then_refused(ServiceNotFound)
    given(*host_up, claimed).when(delete).then_refused(ServiceInUse, "hosting instances")


def test_a_host_that_was_deleted_and_opens_a_session_is_registered_anew() -> None:
    facts = NodeFacts(
        hypervisor_type="fake",
        hypervisor_version=1000,
        hypervisor_hostname=HOST,
        cpu_info="{}",
        inventories=inventory_set.inventories,
    )
    report = HostReport(
        service_id=SERVICE,
        host=HOST,
        node_id=NODE,
        epoch=2,
        host_ip="127.0.0.1",
        availability_zone="nova",
        facts=facts,
    )
    gone = (*host_up, ServiceDeleted(service_id=SERVICE), ProviderDeleted(node_id=NODE))

    events = given(*gone).when(RegisterHost(report=report)).events

    assert [type(e) for e in events[:3]] == [type(registered), ProviderCreated, ProviderInventorySet]
    assert given(*gone, *events, *building[4:]).when(DeleteService(service_id=SERVICE)).events
