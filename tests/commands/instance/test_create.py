"""CreateInstances: what is refused, how many are made, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from commands.instance.create import CreateInstances
from domain.errors import BadFlavor, BadKeypair, FlavorUnusable, InstanceExists, QuotaExceeded
from domain.flavor import FlavorAccessGranted, FlavorCreated, FlavorDeleted
from domain.identifiers import InstanceId
from domain.instance.events import ImageSpec, InstanceCreateRequested, KeypairUsed
from domain.keypair import KeypairCreated
from domain.quota import CORES, INSTANCES, RAM, UNLIMITED, QuotaConsumed, QuotaLimitsSet
from tests.support.decisions import (
    FLAVOR,
    IMAGE,
    INSTANCE,
    OTHER_PROJECT,
    PROJECT,
    USER,
    building,
    consumed,
    create_requested,
    flavor_created,
    given,
)

IDS = tuple(InstanceId(UUID(int=n)) for n in range(1, 13))
GIB = 1024**3

create = CreateInstances(
    instance_ids=(INSTANCE,),
    user_id=USER,
    project_id=PROJECT,
    reservation_id="r-1",
    name="a server",
    hostname="a-server",
    flavor_id="1",
    image=IMAGE,
)


def limits(**changed: int) -> QuotaLimitsSet:
    return QuotaLimitsSet(project_id=PROJECT, limits=changed)


def made(events: tuple[Any, ...]) -> list[InstanceCreateRequested]:
    return [event for event in events if isinstance(event, InstanceCreateRequested)]


def test_an_instance_is_counted_and_asked_for_in_one_append() -> None:
    given(flavor_created).when(create).then(consumed, create_requested)


def test_several_are_numbered_and_named_apart() -> None:
    events = given(flavor_created).when(replace(create, instance_ids=IDS[:3])).events

    assert [(e.launch_index, e.name, e.hostname) for e in made(events)] == [
        (0, "a server-1", "a-server-1"),
        (1, "a server-2", "a-server-2"),
        (2, "a server-3", "a-server-3"),
    ]
    assert sum(isinstance(e, QuotaConsumed) for e in events) == 3


def test_a_create_keeps_a_copy_of_its_flavor() -> None:
    events = given(flavor_created).when(create).events

    assert made(events)[0].flavor == FLAVOR


def test_as_many_are_made_as_the_quota_allows_between_min_and_max() -> None:
    some = replace(create, instance_ids=IDS[:5], min_count=2)

    events = given(flavor_created, limits(instances=3)).when(some).events

    assert [e.instance_id for e in made(events)] == list(IDS[:3])


def test_fewer_than_min_count_are_none() -> None:
    some = replace(create, instance_ids=IDS[:5], min_count=4)

    given(flavor_created, limits(instances=3)).when(some).then_refused(
        QuotaExceeded, "Quota exceeded for instances: Requested 4, but already used 0 of 3 instances"
    )


@pytest.mark.parametrize(("resource", "limit"), [(INSTANCES, 1), (CORES, 3), (RAM, 1023)])
def test_each_counted_resource_limits_a_create(resource: str, limit: int) -> None:
    given(flavor_created, limits(**{resource: limit})).when(create).and_then().when(
        replace(create, instance_ids=IDS[1:2])
    ).then_refused(QuotaExceeded, resource)


def test_a_refusal_names_every_resource_that_is_short() -> None:
    given(flavor_created, limits(instances=0, cores=1)).when(create).then_refused(
        QuotaExceeded, "cores, instances: Requested 2, 1, but already used 0, 0 of 1, 0"
    )


def test_no_limit_is_no_limit() -> None:
    unlimited = limits(instances=UNLIMITED, cores=UNLIMITED, ram=UNLIMITED)

    assert len(made(given(flavor_created, unlimited).when(replace(create, instance_ids=IDS)).events)) == 12


def test_limits_that_were_lowered_under_what_is_used_allow_nothing_more() -> None:
    given(flavor_created, *building, limits(instances=0)).when(replace(create, instance_ids=IDS[1:2])).then_refused(
        QuotaExceeded
    )


def test_an_operators_default_limits_count_where_a_project_has_none() -> None:
    defaults = {INSTANCES: 0, CORES: 100, RAM: 100_000}

    given(flavor_created, quota_defaults=defaults).when(create).then_refused(QuotaExceeded, "instances")


def test_an_id_that_is_taken_is_refused() -> None:
    given(flavor_created, *building).when(create).then_refused(InstanceExists)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (flavor_created, FlavorDeleted(flavor_id="1")),
        (FlavorCreated(flavor=replace(FLAVOR, disabled=True)),),
        (FlavorCreated(flavor=replace(FLAVOR, is_public=False)),),
        (
            FlavorCreated(flavor=replace(FLAVOR, is_public=False)),
            FlavorAccessGranted(flavor_id="1", project_id=OTHER_PROJECT),
        ),
    ],
    ids=["absent", "deleted", "disabled", "private", "another's"],
)
def test_a_flavor_that_the_project_cannot_use_is_refused(events: tuple[Any, ...]) -> None:
    given(*events).when(create).then_refused(BadFlavor, "Flavor 1 could not be found")


def test_a_private_flavor_is_usable_by_those_it_was_granted_to_and_by_administrators() -> None:
    private = FlavorCreated(flavor=replace(FLAVOR, is_public=False))

    assert given(private, FlavorAccessGranted(flavor_id="1", project_id=PROJECT)).when(create).events
    assert given(private).when(replace(create, all_flavors=True)).events


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (ImageSpec(image_id="i", min_ram_mib=513), "memory is too small"),
        (ImageSpec(image_id="i", min_disk_gib=2), "smaller than the minimum size"),
        (ImageSpec(image_id="i", size_bytes=GIB + 1), "disk is too small for requested image"),
    ],
)
def test_an_image_that_does_not_fit_the_flavor_is_refused(image: ImageSpec, message: str) -> None:
    given(flavor_created).when(replace(create, image=image)).then_refused(FlavorUnusable, message)


def test_an_image_may_fill_its_flavor_exactly_and_a_disk_of_no_size_takes_any() -> None:
    exact = ImageSpec(image_id="i", min_ram_mib=512, min_disk_gib=1, size_bytes=GIB)
    diskless = FlavorCreated(flavor=replace(FLAVOR, root_gib=0))

    assert given(flavor_created).when(replace(create, image=exact)).events
    assert given(diskless).when(replace(create, image=ImageSpec(image_id="i", size_bytes=50 * GIB))).events


@pytest.mark.parametrize(
    "key", ["trait:HW_CPU_X86_AVX2", "resources:VGPU", "hw:cpu_policy", "hw:numa_nodes", "accel:x"]
)
def test_an_extra_spec_that_is_not_honoured_is_refused_not_ignored(key: str) -> None:
    given(FlavorCreated(flavor=replace(FLAVOR, extra_specs={key: "1"}))).when(create).then_refused(FlavorUnusable, key)


def test_an_extra_spec_that_changes_nothing_here_is_accepted() -> None:
    assert given(FlavorCreated(flavor=replace(FLAVOR, extra_specs={"hw:cpu_sockets": "2"}))).when(create).events


def test_a_key_pair_is_copied_into_the_create() -> None:
    keypair = KeypairCreated(
        user_id=USER, keypair_id=1, type="ssh", name="mine", public_key="ssh-ed25519 AAAA", fingerprint="f"
    )

    events = given(flavor_created, keypair).when(replace(create, key_name="mine")).events

    assert made(events)[0].keypair == KeypairUsed(name="mine", type="ssh", public_key="ssh-ed25519 AAAA")


def test_a_key_pair_that_the_user_does_not_have_is_refused() -> None:
    given(flavor_created).when(replace(create, key_name="mine")).then_refused(BadKeypair)


def test_secrets_are_only_named() -> None:
    asked = replace(create, has_user_data=True, has_admin_password=True, has_injected_files=True)

    event = made(given(flavor_created).when(asked).events)[0]

    assert event.user_data == f"{INSTANCE}/user_data"
    assert event.admin_password == f"{INSTANCE}/admin_password"
    assert event.injected_files == f"{INSTANCE}/injected_files"


def test_a_name_that_makes_no_host_name_leaves_the_id() -> None:
    several = replace(create, instance_ids=IDS[:2], hostname="")

    requests = made(given(flavor_created).when(several).events)

    assert [request.hostname for request in requests] == [f"Server-{IDS[0]}", f"Server-{IDS[1]}"]


def test_the_numbers_of_a_multi_create_make_no_name_too_long() -> None:
    longest = replace(create, instance_ids=IDS[:10], name="n" * 255, hostname="h" * 63)

    requests = made(given(flavor_created).when(longest).events)

    assert {len(request.name) for request in requests} == {255}
    assert {len(request.hostname) for request in requests} == {63}
    assert len({request.name for request in requests}) == len({request.hostname for request in requests}) == 10
