"""What may change of a flavor: its extra specs, and who may use it."""

from __future__ import annotations

from dataclasses import replace

from commands.flavor import DeleteExtraSpec, GrantFlavorAccess, RevokeFlavorAccess, SetExtraSpecs
from domain.errors import ExtraSpecNotFound, FlavorAccessExists, FlavorAccessNotFound, FlavorIsPublic, FlavorNotFound
from domain.flavor import FlavorAccessGranted, FlavorAccessRevoked, FlavorCreated, FlavorExtraSpecsSet
from tests.support.decisions import FLAVOR, OTHER_PROJECT, PROJECT, flavor_created, given

ID = FLAVOR.flavor_id
private = FlavorCreated(flavor=replace(FLAVOR, is_public=False))
granted = FlavorAccessGranted(flavor_id=ID, project_id=PROJECT)
specs = FlavorExtraSpecsSet(flavor_id=ID, extra_specs={"a": "1"})


def test_extra_specs_are_set_beside_those_there_are() -> None:
    asked = SetExtraSpecs(flavor_id=ID, extra_specs={"b": "2"})

    given(flavor_created, specs).when(asked).then(FlavorExtraSpecsSet(flavor_id=ID, extra_specs={"a": "1", "b": "2"}))


def test_extra_specs_that_are_so_already_record_nothing() -> None:
    given(flavor_created, specs).when(SetExtraSpecs(flavor_id=ID, extra_specs={"a": "1"})).then_nothing()


def test_an_extra_spec_is_taken_away_once() -> None:
    asked = DeleteExtraSpec(flavor_id=ID, key="a")
    decided = given(flavor_created, specs).when(asked)

    decided.then(FlavorExtraSpecsSet(flavor_id=ID, extra_specs={}))
    decided.and_then().when(asked).then_refused(ExtraSpecNotFound, "no extra specs with key a")


def test_access_is_granted_once() -> None:
    asked = GrantFlavorAccess(flavor_id=ID, project_id=PROJECT)
    decided = given(private).when(asked)

    decided.then(granted)
    decided.and_then().when(asked).then_refused(FlavorAccessExists)


def test_a_public_flavor_is_granted_to_nobody_but_by_old_clients() -> None:
    asked = GrantFlavorAccess(flavor_id=ID, project_id=PROJECT)

    given(flavor_created).when(asked).then_refused(FlavorIsPublic)
    given(flavor_created).when(replace(asked, only_private=False)).then(granted)


def test_access_is_revoked_from_those_who_have_it() -> None:
    revoke = RevokeFlavorAccess(flavor_id=ID, project_id=PROJECT)

    given(private, granted).when(revoke).then(FlavorAccessRevoked(flavor_id=ID, project_id=PROJECT))
    given(private, granted).when(replace(revoke, project_id=OTHER_PROJECT)).then_refused(FlavorAccessNotFound)


def test_of_a_flavor_that_is_not_there_nothing_changes() -> None:
    for command in (
        SetExtraSpecs(flavor_id=ID, extra_specs={"a": "1"}),
        DeleteExtraSpec(flavor_id=ID, key="a"),
        GrantFlavorAccess(flavor_id=ID, project_id=PROJECT),
        RevokeFlavorAccess(flavor_id=ID, project_id=PROJECT),
    ):
        given().when(command).then_refused(FlavorNotFound)
