"""Hosts, flavors, key pairs and quotas: one decision at a time. Those about instances are in `instance/`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from commands.compute_service import (
    DisableService,
    EnableService,
    MarkServiceDown,
    MarkServiceUp,
    RegisterHost,
)
from commands.flavor import CreateFlavor, DeleteFlavor, DescribeFlavor
from commands.keypair import CreateKeypair, DeleteKeypair
from commands.quota import ResetQuotaLimits, SetQuotaLimits
from commands.reports import HostReport, NodeFacts
from domain.compute_service import ServiceCameUp, ServiceDeleted, ServiceDisabled, ServiceEnabled
from domain.errors import (
    FlavorExists,
    FlavorIdExists,
    FlavorNotFound,
    HostRenamed,
    KeypairExists,
    KeypairNotFound,
    KeypairQuotaExceeded,
    QuotaBelowUsage,
    ReportSuperseded,
    ServiceNotFound,
)
from domain.flavor import FlavorDeleted, FlavorDescribed
from domain.identifiers import HostName, NodeId, UserId
from domain.keypair import KeypairCreated, KeypairDeleted
from domain.quota import QuotaLimitsReset, QuotaLimitsSet
from domain.resource_provider import ProviderInventorySet, ProviderTraitsSet
from tests.support.decisions import (
    FLAVOR,
    HOST,
    NODE,
    PROJECT,
    SERVICE,
    USER,
    building,
    flavor_created,
    given,
    host_events,
    host_up,
    host_went_down,
)

registered, node_created, inventory_set, came_up = host_up


def opens_a_session(epoch: int, **changes: Any) -> RegisterHost:
    facts = NodeFacts(
        hypervisor_type="fake",
        hypervisor_version=1000,
        hypervisor_hostname=HOST,
        cpu_info="{}",
        inventories=inventory_set.inventories,
        **{name: changes.pop(name) for name in ("traits",) if name in changes},
    )
    report = HostReport(
        service_id=SERVICE,
        host=HOST,
        node_id=NODE,
        epoch=epoch,
        host_ip="127.0.0.1",
        availability_zone="nova",
        facts=facts,
    )
    return RegisterHost(report=replace(report, **changes))


def came_up_in(epoch: int) -> ServiceCameUp:
    return ServiceCameUp(service_id=SERVICE, epoch=epoch)


# hosts


def test_a_new_host_is_registered_with_what_it_has_and_is_up() -> None:
    given().when(opens_a_session(1)).then(*host_up)


def test_a_host_that_comes_back_unchanged_is_only_up_again() -> None:
    given(*host_up, host_went_down).when(opens_a_session(2)).then(came_up_in(2))


def test_what_has_changed_of_a_host_is_recorded_before_it_is_up() -> None:
    larger = host_events(vcpus=64)[2]
    report = opens_a_session(2, traits=("HW_ARCH_X86_64",), host_ip="192.0.2.1")
    facts = replace(report.report.facts, inventories=larger.inventories)

    given(*host_up).when(RegisterHost(report=replace(report.report, facts=facts))).then(
        replace(registered, host_ip="192.0.2.1"),
        ProviderInventorySet(node_id=NODE, provider_id=NODE, inventories=larger.inventories),
        ProviderTraitsSet(node_id=NODE, provider_id=NODE, traits=("HW_ARCH_X86_64",)),
        came_up_in(2),
    )


def test_an_earlier_session_does_not_come_back() -> None:
    given(*host_up, came_up_in(5)).when(opens_a_session(5)).then_refused(ReportSuperseded)
    given(*host_up, came_up_in(5)).when(opens_a_session(4)).then_refused(ReportSuperseded)


@pytest.mark.parametrize("changes", [{"host": HostName("gamma")}, {"node_id": NodeId(UUID(int=99))}])
def test_a_host_keeps_its_name_and_its_node(changes: dict[str, Any]) -> None:
    given(*host_up).when(opens_a_session(2, **changes)).then_refused(HostRenamed)


def test_a_silent_host_is_down_once() -> None:
    silent = MarkServiceDown(service_id=SERVICE, epoch=1, reason="no heartbeat")

    given(*host_up).when(silent).then(host_went_down)
    given(*host_up, host_went_down).when(silent).then_nothing()


def test_a_host_that_has_opened_another_session_since_is_not_down() -> None:
    silent = MarkServiceDown(service_id=SERVICE, epoch=1, reason="no heartbeat")

    given(*host_up, came_up_in(2)).when(silent).then_nothing()


def test_a_session_that_was_only_silent_goes_on() -> None:
    heard = MarkServiceUp(service_id=SERVICE, epoch=1)

    given(*host_up, host_went_down).when(heard).then(came_up_in(1))
    given(*host_up).when(heard).then_nothing()


def test_a_session_that_was_replaced_does_not_go_on() -> None:
    given(*host_up, came_up_in(2), host_went_down).when(MarkServiceUp(service_id=SERVICE, epoch=1)).then_nothing()


def test_a_service_is_disabled_and_enabled_once() -> None:
    off = ServiceDisabled(service_id=SERVICE, reason="broken")

    given(*host_up).when(DisableService(service_id=SERVICE, reason="broken")).then(off)
    given(*host_up, off).when(DisableService(service_id=SERVICE, reason="broken")).then_nothing()
    given(*host_up, off).when(DisableService(service_id=SERVICE, reason="worse")).then(replace(off, reason="worse"))
    given(*host_up, off).when(EnableService(service_id=SERVICE)).then(ServiceEnabled(service_id=SERVICE))
    given(*host_up).when(EnableService(service_id=SERVICE)).then_nothing()


@pytest.mark.parametrize("events", [(), (*host_up, ServiceDeleted(service_id=SERVICE))], ids=["unknown", "deleted"])
@pytest.mark.parametrize("command", [EnableService(service_id=SERVICE), DisableService(service_id=SERVICE)])
def test_a_service_that_is_not_there_is_not_found(events: tuple[Any, ...], command: Any) -> None:
    given(*events).when(command).then_refused(ServiceNotFound)


# flavors


def test_a_flavor_is_made_described_and_deleted() -> None:
    given().when(CreateFlavor(flavor=FLAVOR)).then(flavor_created)
    given(flavor_created).when(DescribeFlavor(flavor_id="1", description="ours")).then(
        FlavorDescribed(flavor_id="1", description="ours")
    )
    given(flavor_created).when(DescribeFlavor(flavor_id="1", description=None)).then_nothing()
    given(flavor_created).when(DeleteFlavor(flavor_id="1")).then(FlavorDeleted(flavor_id="1"))


def test_a_flavors_id_and_name_are_its_own() -> None:
    given(flavor_created).when(CreateFlavor(flavor=replace(FLAVOR, name="other"))).then_refused(FlavorIdExists)
    given(flavor_created).when(CreateFlavor(flavor=replace(FLAVOR, flavor_id="2"))).then_refused(FlavorExists)


def test_a_flavors_name_is_free_again_once_it_is_deleted() -> None:
    assert given(flavor_created, FlavorDeleted(flavor_id="1")).when(CreateFlavor(flavor=FLAVOR)).events


@pytest.mark.parametrize("command", [DeleteFlavor(flavor_id="1"), DescribeFlavor(flavor_id="1", description="x")])
def test_a_flavor_that_is_not_there_is_not_found(command: Any) -> None:
    given().when(command).then_refused(FlavorNotFound)


# key pairs

create_key = CreateKeypair(
    user_id=USER, project_id=PROJECT, name="mine", type="ssh", public_key="ssh-ed25519 AAAA", fingerprint="f"
)
key_created = KeypairCreated(
    user_id=USER, keypair_id=1, type="ssh", name="mine", public_key="ssh-ed25519 AAAA", fingerprint="f"
)


def test_a_key_pair_is_made_and_deleted_and_its_number_is_not_used_again() -> None:
    given().when(create_key).then(key_created)
    given(key_created).when(DeleteKeypair(user_id=USER, name="mine")).then(KeypairDeleted(user_id=USER, keypair_id=1))
    given(key_created, KeypairDeleted(user_id=USER, keypair_id=1)).when(create_key).then(
        replace(key_created, keypair_id=2)
    )


def test_a_key_pairs_name_is_its_users_own() -> None:
    given(key_created).when(create_key).then_refused(KeypairExists)
    assert given(key_created).when(replace(create_key, user_id=UserId("another"))).events


def test_a_user_has_no_more_key_pairs_than_the_project_allows() -> None:
    one = QuotaLimitsSet(project_id=PROJECT, limits={"key_pairs": 1})
    unlimited = QuotaLimitsSet(project_id=PROJECT, limits={"key_pairs": -1})
    second = replace(create_key, name="second")

    given(key_created, one).when(second).then_refused(KeypairQuotaExceeded)
    assert given(key_created, unlimited).when(second).events
    given(key_created, quota_defaults={"key_pairs": 1}).when(second).then_refused(KeypairQuotaExceeded)


def test_a_key_pair_that_is_not_there_is_not_found() -> None:
    given().when(DeleteKeypair(user_id=USER, name="mine")).then_refused(KeypairNotFound)


# quotas


def limits(**changed: int) -> dict[str, int]:
    return dict(changed)


def test_only_limits_that_change_are_recorded() -> None:
    before = QuotaLimitsSet(project_id=PROJECT, limits={"cores": 40})

    given(before).when(SetQuotaLimits(project_id=PROJECT, limits=limits(cores=40, ram=-1))).then(
        QuotaLimitsSet(project_id=PROJECT, limits={"ram": -1})
    )
    given(before).when(SetQuotaLimits(project_id=PROJECT, limits=limits(cores=40))).then_nothing()


def test_a_limit_below_what_is_used_needs_force() -> None:
    lower = SetQuotaLimits(project_id=PROJECT, limits=limits(cores=1))

    given(*building).when(lower).then_refused(QuotaBelowUsage, "Quota limit 1 for cores")
    assert given(*building).when(replace(lower, force=True)).events
    assert given(*building).when(replace(lower, limits=limits(cores=-1))).events
    assert given(*building).when(replace(lower, limits=limits(cores=2))).events


def test_reset_limits_are_reset_once() -> None:
    reset = ResetQuotaLimits(project_id=PROJECT)
    changed = QuotaLimitsSet(project_id=PROJECT, limits={"cores": 40})

    given(changed).when(reset).then(QuotaLimitsReset(project_id=PROJECT))
    given(changed, QuotaLimitsReset(project_id=PROJECT)).when(reset).then_nothing()
    given().when(reset).then_nothing()
