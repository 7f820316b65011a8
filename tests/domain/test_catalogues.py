"""Flavors, key pairs and services, folded from their events."""

from __future__ import annotations

from dataclasses import replace

from domain.compute_service import (
    ServiceCameUp,
    ServiceDeleted,
    ServiceDisabled,
    ServiceEnabled,
    ServiceForcedDown,
    ServiceForcedDownLifted,
    ServiceWentDown,
    evolve_service,
)
from domain.flavor import (
    FlavorAccessGranted,
    FlavorAccessRevoked,
    FlavorCreated,
    FlavorDeleted,
    FlavorDescribed,
    FlavorExtraSpecsSet,
    evolve_flavors,
)
from domain.keypair import KeypairCreated, KeypairDeleted, evolve_keypairs
from domain.recorded import fold
from tests.support.decisions import FLAVOR, OTHER_PROJECT, PROJECT, SERVICE, USER, host_up

private = FlavorCreated(flavor=replace(FLAVOR, flavor_id="p", name="private", is_public=False))
granted = FlavorAccessGranted(flavor_id="p", project_id=PROJECT)
registered = host_up[0]
came_up = ServiceCameUp(service_id=SERVICE, epoch=3)


def test_a_private_flavor_is_seen_by_those_it_was_granted_to() -> None:
    catalog = fold(evolve_flavors, None, [private, granted])

    assert catalog is not None
    assert catalog.visible_to("p", PROJECT) is not None
    assert catalog.visible_to("p", OTHER_PROJECT) is None
    assert catalog.visible_to("p", OTHER_PROJECT, all_projects=True) is not None
    assert catalog.visible_to("none", PROJECT, all_projects=True) is None


def test_access_that_is_revoked_or_whose_flavor_is_deleted_is_gone() -> None:
    revoked = fold(evolve_flavors, None, [private, granted, FlavorAccessRevoked(flavor_id="p", project_id=PROJECT)])
    remade = fold(evolve_flavors, None, [private, granted, FlavorDeleted(flavor_id="p"), private])

    for catalog in (revoked, remade):
        assert catalog is not None
        assert catalog.visible_to("p", PROJECT) is None


def test_a_flavor_changes_only_its_description_and_its_extra_specs() -> None:
    described = FlavorDescribed(flavor_id="p", description="for us")
    specs = FlavorExtraSpecsSet(flavor_id="p", extra_specs={"hw:cpu_sockets": "1"})

    catalog = fold(evolve_flavors, None, [private, described, specs])

    assert catalog is not None
    assert catalog.flavors["p"] == replace(private.flavor, description="for us", extra_specs={"hw:cpu_sockets": "1"})


def test_a_key_pairs_number_is_never_given_twice() -> None:
    def made(number: int) -> KeypairCreated:
        return KeypairCreated(
            user_id=USER, keypair_id=number, type="ssh", name=f"key-{number}", public_key="k", fingerprint="f"
        )

    keypairs = fold(evolve_keypairs, None, [made(1), made(2), KeypairDeleted(user_id=USER, keypair_id=2)])

    assert keypairs is not None
    assert keypairs.last_id == 2
    assert keypairs.named("key-1") == made(1)
    assert keypairs.named("key-2") is None


def test_a_service_is_reachable_while_it_is_up_not_forced_down_and_there() -> None:
    up = fold(evolve_service, None, [registered, came_up])
    assert up is not None
    assert up.reachable
    assert up.epoch == 3

    for event in (
        ServiceWentDown(service_id=SERVICE, reason="silent"),
        ServiceForcedDown(service_id=SERVICE),
        ServiceDeleted(service_id=SERVICE),
    ):
        assert not evolve_service(up, event).reachable
    forced = evolve_service(up, ServiceForcedDown(service_id=SERVICE))
    assert evolve_service(forced, ServiceForcedDownLifted(service_id=SERVICE)).reachable


def test_a_service_that_is_disabled_says_why_until_it_is_enabled() -> None:
    disabled = fold(evolve_service, None, [registered, came_up, ServiceDisabled(service_id=SERVICE, reason="broken")])
    assert disabled is not None
    assert (disabled.enabled, disabled.disabled_reason) == (False, "broken")

    enabled = evolve_service(disabled, ServiceEnabled(service_id=SERVICE))
    assert (enabled.enabled, enabled.disabled_reason) == (True, None)


def test_a_service_that_registers_anew_keeps_being_disabled() -> None:
    service = fold(evolve_service, None, [registered, ServiceDisabled(service_id=SERVICE)])

    assert service is not None
    assert not evolve_service(service, replace(registered, host_ip="192.0.2.7")).enabled
