"""Limits of projects, of users within them, and of quota classes; and what counts against them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from commands.instance.create import CreateInstances
from commands.keypair import CreateKeypair
from commands.quota import ResetQuotaLimits, SetQuotaClassLimits, SetQuotaLimits
from domain.errors import KeypairQuotaExceeded, QuotaAboveProject, QuotaBelowUsage, QuotaExceeded
from domain.identifiers import InstanceId, UserId
from domain.instance.events import InstanceCreateRequested
from domain.quota import QuotaClassLimitsSet, QuotaLimitsReset, QuotaLimitsSet
from tests.support.decisions import FLAVOR, IMAGE, PROJECT, USER, consumed, flavor_created, given, released_quota

ANOTHER = UserId("another-user")


def creates(count: int = 1, user_id: UserId = USER) -> CreateInstances:
    return CreateInstances(
        instance_ids=tuple(InstanceId(UUID(int=100 + n)) for n in range(count)),
        min_count=count,
        user_id=user_id,
        project_id=PROJECT,
        reservation_id="r-1",
        name="a server",
        hostname="a-server",
        flavor_id=FLAVOR.flavor_id,
        image=IMAGE,
    )


def limits(user_id: UserId | None = None, **of: int) -> QuotaLimitsSet:
    return QuotaLimitsSet(project_id=PROJECT, limits=of, user_id=user_id)


def sets(user_id: UserId | None = None, *, force: bool = False, **of: int) -> SetQuotaLimits:
    return SetQuotaLimits(project_id=PROJECT, limits=of, user_id=user_id, force=force)


def test_a_users_limit_holds_within_the_projects() -> None:
    mine = given(flavor_created, limits(USER, instances=1), consumed)

    mine.when(creates()).then_refused(QuotaExceeded, "Requested 1, but already used 1 of 1 instances")
    assert mine.when(creates(user_id=ANOTHER)).events


def test_what_a_user_gives_back_is_the_users_again() -> None:
    assert given(flavor_created, limits(USER, instances=1), consumed, released_quota).when(creates()).events


def test_the_projects_limit_holds_for_every_user() -> None:
    given(flavor_created, limits(instances=1), limits(USER, instances=5), consumed).when(creates()).then_refused(
        QuotaExceeded
    )


def test_no_more_are_made_than_the_users_limit_leaves() -> None:
    asked = replace(creates(3), min_count=1)

    made = given(flavor_created, limits(USER, instances=2)).when(asked).events

    assert len([e for e in made if isinstance(e, InstanceCreateRequested)]) == 2


def test_a_users_limit_lies_between_his_use_and_what_the_project_has_left() -> None:
    shared = given(flavor_created, consumed, limits(instances=10), limits(ANOTHER, instances=4))

    shared.when(sets(USER, instances=6)).then(limits(USER, instances=6))
    shared.when(sets(USER, instances=7)).then_refused(QuotaAboveProject, "must be less than or equal to 6")
    shared.when(sets(USER, instances=-1)).then_refused(QuotaAboveProject)
    shared.when(sets(USER, instances=0)).then_refused(QuotaBelowUsage, "already used and reserved 1")
    shared.when(sets(USER, force=True, instances=0)).then(limits(USER, instances=0))


def test_a_projects_limit_is_not_below_what_its_users_were_given() -> None:
    given(limits(USER, instances=4)).when(sets(instances=3)).then_refused(QuotaBelowUsage, "reserved 4")


def test_a_reset_of_one_user_leaves_the_others() -> None:
    both = given(limits(USER, instances=1), limits(ANOTHER, instances=1))
    reset = ResetQuotaLimits(project_id=PROJECT, user_id=USER)

    decided = both.when(reset)

    decided.then(QuotaLimitsReset(project_id=PROJECT, user_id=USER))
    decided.and_then().when(reset).then_nothing()
    decided.and_then().when(sets(ANOTHER, instances=1)).then_nothing()


def test_a_reset_of_the_project_is_one_of_its_users_too() -> None:
    reset = ResetQuotaLimits(project_id=PROJECT)

    decided = given(limits(USER, instances=1)).when(reset)

    decided.then(QuotaLimitsReset(project_id=PROJECT))
    decided.and_then().when(reset).then_nothing()


def test_the_default_class_is_for_projects_without_limits_of_their_own() -> None:
    none_left = QuotaClassLimitsSet(class_name="default", limits={"instances": 0, "key_pairs": 0})
    key = CreateKeypair(
        user_id=USER, project_id=PROJECT, name="k", type="ssh", public_key="ssh-rsa A", fingerprint="aa"
    )

    given(flavor_created, none_left).when(creates()).then_refused(QuotaExceeded, "of 0 instances")
    given(none_left).when(key).then_refused(KeypairQuotaExceeded)
    assert given(flavor_created, none_left, limits(instances=1)).when(creates()).events


def test_another_class_has_no_effect() -> None:
    assert given(flavor_created, QuotaClassLimitsSet(class_name="x", limits={"instances": 0})).when(creates()).events


def test_a_class_records_what_changes() -> None:
    asked = SetQuotaClassLimits(class_name="default", limits={"cores": 1, "ram": 2})

    decided = given(QuotaClassLimitsSet(class_name="default", limits={"cores": 1})).when(asked)

    decided.then(QuotaClassLimitsSet(class_name="default", limits={"ram": 2}))
    decided.and_then().when(asked).then_nothing()
