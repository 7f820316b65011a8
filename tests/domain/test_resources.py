"""What fits and what does not: inventories, claims and what flavors take, against counting by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from domain.quota import INSTANCES, RAM, QuotaConsumed, QuotaLimitsReset, QuotaLimitsSet, QuotaReleased, evolve_quota
from domain.recorded import fold
from domain.resource_provider import (
    ProviderClaimed,
    ProviderCreated,
    ProviderDeleted,
    ProviderInventorySet,
    ProviderReleased,
    ProviderTraitsSet,
    ProviderTree,
    evolve_provider,
)
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory, amounts_of_flavor
from tests.support.decisions import INSTANCE, NODE, PROJECT, USER

inventories = st.builds(
    Inventory,
    total=st.integers(1, 64),
    reserved=st.integers(0, 8),
    min_unit=st.integers(1, 4),
    max_unit=st.integers(1, 64),
    step_size=st.integers(1, 4),
    allocation_ratio=st.sampled_from((0.5, 1.0, 1.5, 4.0, 16.0)),
)


@settings(max_examples=300)
@for_all(inventory=inventories, used=st.integers(0, 300), amount=st.integers(1, 80))
def test_an_amount_fits_exactly_when_placements_four_rules_say_so(inventory: Inventory, used: int, amount: int) -> None:
    allowed_units = range(inventory.min_unit, inventory.max_unit + 1)
    steps = range(0, 1000, inventory.step_size)
    limit = (inventory.total - inventory.reserved) * Fraction(inventory.allocation_ratio)

    assert inventory.admits(amount, used) is (amount in allowed_units and amount in steps and used + amount <= limit)


def test_capacity_is_rounded_down() -> None:
    assert Inventory(total=3, max_unit=3, allocation_ratio=1.5).capacity == 4


node_created = ProviderCreated(node_id=NODE, provider_id=NODE, parent_id=None, name="alpha")


def inventory_set(**totals: int) -> ProviderInventorySet:
    found = {name: Inventory(total=total, max_unit=total) for name, total in totals.items()}
    return ProviderInventorySet(node_id=NODE, provider_id=NODE, inventories=found)


def claimed(number: int, **amounts: int) -> ProviderClaimed:
    return ProviderClaimed(
        node_id=NODE, consumer_id=UUID(int=number), project_id=PROJECT, user_id=USER, amounts={NODE: amounts}
    )


def released(number: int) -> ProviderReleased:
    return ProviderReleased(node_id=NODE, consumer_id=UUID(int=number))


def tree_of(*events: Any) -> ProviderTree:
    tree = fold(evolve_provider, None, events)
    assert tree is not None
    return tree


@for_all(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 512), st.booleans()), max_size=20))
def test_use_is_always_the_sum_of_the_claims(steps: list[tuple[int, int, bool]]) -> None:
    events: list[Any] = [node_created, inventory_set(VCPU=16, MEMORY_MB=4096)]
    held: dict[int, tuple[int, int]] = {}
    for number, (vcpus, memory, give_back) in enumerate(steps):
        amounts = {VCPU: vcpus, MEMORY_MB: memory}
        fits = sum(v for v, _ in held.values()) + vcpus <= 16 and sum(m for _, m in held.values()) + memory <= 4096
        assert tree_of(*events).admits({NODE: amounts}) is fits
        if fits:
            events.append(claimed(number, **amounts))
            held[number] = (vcpus, memory)
        if give_back and held:
            events.append(released(oldest := next(iter(held))))
            del held[oldest]

    provider = tree_of(*events).providers[NODE]

    assert provider.used.get(VCPU, 0) == sum(v for v, _ in held.values())
    assert provider.used.get(MEMORY_MB, 0) == sum(m for _, m in held.values())


def test_a_class_the_provider_does_not_have_never_fits() -> None:
    assert not tree_of(node_created, inventory_set(VCPU=16)).admits({NODE: {"VGPU": 1}})


def test_a_claim_on_a_provider_outside_the_tree_never_fits() -> None:
    assert not tree_of(node_created, inventory_set(VCPU=16)).admits({UUID(int=99): {VCPU: 1}})  # type: ignore[dict-item]


def test_an_over_full_provider_takes_only_releases() -> None:
    shrunk = tree_of(
        node_created, inventory_set(VCPU=16), claimed(1, VCPU=4), claimed(2, VCPU=4), inventory_set(VCPU=6)
    )

    assert not shrunk.admits({NODE: {VCPU: 1}})
    assert not evolve_provider(shrunk, claimed(3, MEMORY_MB=0)).admits({NODE: {VCPU: 1}})
    assert evolve_provider(shrunk, released(1)).admits({NODE: {VCPU: 2}})


def test_a_deleted_provider_takes_no_claim() -> None:
    assert not tree_of(node_created, inventory_set(VCPU=16), ProviderDeleted(node_id=NODE)).admits({NODE: {VCPU: 1}})


def test_a_providers_generation_grows_with_each_change_of_it() -> None:
    traits = ProviderTraitsSet(node_id=NODE, provider_id=NODE, traits=("HW_ARCH_X86_64",))

    tree = tree_of(node_created, inventory_set(VCPU=4), traits, claimed(1, VCPU=1), released(1))

    assert tree.providers[NODE].generation == 4
    assert tree.providers[NODE].traits == ("HW_ARCH_X86_64",)


def test_a_child_provider_counts_for_itself() -> None:
    child = UUID(int=77)
    tree = tree_of(
        node_created,
        inventory_set(VCPU=4),
        ProviderCreated(node_id=NODE, provider_id=child, parent_id=NODE, name="gpu"),  # type: ignore[arg-type]
        ProviderInventorySet(node_id=NODE, provider_id=child, inventories={"VGPU": Inventory(total=1, max_unit=1)}),  # type: ignore[arg-type]
        ProviderClaimed(
            node_id=NODE,
            consumer_id=INSTANCE,
            project_id=PROJECT,
            user_id=USER,
            amounts={NODE: {VCPU: 2}, child: {"VGPU": 1}},  # type: ignore[dict-item]
        ),
    )

    assert tree.admits({NODE: {VCPU: 2}})
    assert not tree.admits({NODE: {VCPU: 1}, child: {"VGPU": 1}})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("changes", "amounts"),
    [
        ({}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 10}),
        ({"ephemeral_gib": 5}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 15}),
        ({"swap_mib": 1}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 11}),
        ({"swap_mib": 1024}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 11}),
        ({"swap_mib": 1025}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 12}),
        ({"root_on_host": False}, {VCPU: 2, MEMORY_MB: 512}),
        ({"root_on_host": False, "ephemeral_gib": 3}, {VCPU: 2, MEMORY_MB: 512, DISK_GB: 3}),
    ],
)
def test_a_flavor_claims_what_nova_claims_for_it(changes: dict[str, Any], amounts: dict[str, int]) -> None:
    sizes = {"vcpus": 2, "memory_mib": 512, "root_gib": 10, "ephemeral_gib": 0, "swap_mib": 0, "root_on_host": True}

    assert amounts_of_flavor(**{**sizes, **changes}) == amounts


def test_a_quota_counts_what_was_consumed_and_not_given_back() -> None:
    one = QuotaConsumed(project_id=PROJECT, instance_id=INSTANCE, amounts={INSTANCES: 1, RAM: 512})
    back = QuotaReleased(project_id=PROJECT, instance_id=INSTANCE, amounts=one.amounts)

    quota = fold(evolve_quota, None, [one, one, back])

    assert quota is not None
    assert quota.used == {INSTANCES: 1, RAM: 512}


def test_a_projects_own_limits_come_before_the_defaults_until_they_are_reset() -> None:
    raised = QuotaLimitsSet(project_id=PROJECT, limits={INSTANCES: 99})
    quota = evolve_quota(None, raised)

    assert quota.limit(INSTANCES) == 99
    assert quota.limit(RAM) == 51200
    assert evolve_quota(quota, replace(raised, limits={RAM: -1})).limits == {INSTANCES: 99, RAM: -1}
    assert evolve_quota(quota, QuotaLimitsReset(project_id=PROJECT)).limit(INSTANCES) == 10
