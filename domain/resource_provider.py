"""A provider tree: the inventories of one node, and the claims on them. One stream a tree; Placement's words.

The invariant of the whole ledger is here: no claim raises use above capacity (`Inventory.admits`). An inventory event
may leave a provider over-full; then it takes only releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never
from uuid import UUID

from domain.identifiers import NodeId, ProjectId, UserId
from domain.resources import Amounts, Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCreated:
    node_id: NodeId  # the tree's root
    provider_id: NodeId
    parent_id: NodeId | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInventorySet:
    node_id: NodeId
    provider_id: NodeId
    inventories: Mapping[str, Inventory]  # all of them, after the change


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTraitsSet:
    node_id: NodeId
    provider_id: NodeId
    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderClaimed:
    node_id: NodeId
    consumer_id: UUID  # the instance or the migration
    project_id: ProjectId
    user_id: UserId
    amounts: Mapping[NodeId, Amounts]  # provider of the tree → class → amount


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReleased:
    node_id: NodeId
    consumer_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderDeleted:
    node_id: NodeId


ProviderEvent = (
    ProviderCreated | ProviderInventorySet | ProviderTraitsSet | ProviderClaimed | ProviderReleased | ProviderDeleted
)

PROVIDER_EVENTS = {
    "provider.created": ProviderCreated,
    "provider.inventory_set": ProviderInventorySet,
    "provider.traits_set": ProviderTraitsSet,
    "provider.claimed": ProviderClaimed,
    "provider.released": ProviderReleased,
    "provider.deleted": ProviderDeleted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    provider_id: NodeId
    parent_id: NodeId | None
    name: str
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: tuple[str, ...] = ()
    used: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0  # as in Placement: grows with every change of this provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTree:
    node_id: NodeId
    providers: Mapping[NodeId, Provider]
    claims: Mapping[UUID, Mapping[NodeId, Amounts]] = field(default_factory=dict)
    deleted: bool = False

    @property
    def size_hint(self) -> int:
        """How many entries a snapshot of this state writes; large states are snapshotted less often."""
        return len(self.claims)

    def admits(self, amounts: Mapping[NodeId, Amounts]) -> bool:
        """Whether a claim of these amounts fits, all of it."""
        if self.deleted:
            return False
        for provider_id, wanted in amounts.items():
            provider = self.providers.get(provider_id)
            if provider is None:
                return False
            for resource_class, amount in wanted.items():
                inventory = provider.inventories.get(resource_class)
                if inventory is None or not inventory.admits(amount, provider.used.get(resource_class, 0)):
                    return False
        return True


def evolve_provider(tree: ProviderTree | None, event: ProviderEvent) -> ProviderTree:
    if isinstance(event, ProviderCreated):
        provider = Provider(provider_id=event.provider_id, parent_id=event.parent_id, name=event.name)
        if tree is None or tree.deleted:
            return ProviderTree(node_id=event.node_id, providers={event.provider_id: provider})
        return replace(tree, providers={**tree.providers, event.provider_id: provider})
    assert tree is not None, "a provider tree's first event creates its root"
    match event:
        case ProviderInventorySet():
            return _with(tree, event.provider_id, inventories=event.inventories)
        case ProviderTraitsSet():
            return _with(tree, event.provider_id, traits=event.traits)
        case ProviderClaimed():
            claims = {**tree.claims, event.consumer_id: event.amounts}
            return replace(_use(tree, event.amounts, 1), claims=claims)
        case ProviderReleased():
            released = tree.claims[event.consumer_id]
            claims = {k: v for k, v in tree.claims.items() if k != event.consumer_id}
            return replace(_use(tree, released, -1), claims=claims)
        case ProviderDeleted():
            return replace(tree, deleted=True)
        case _:
            assert_never(event)


def _with(
    tree: ProviderTree,
    provider_id: NodeId,
    *,
    inventories: Mapping[str, Inventory] | None = None,
    traits: tuple[str, ...] | None = None,
) -> ProviderTree:
    provider = tree.providers[provider_id]
    changed = replace(
        provider,
        inventories=provider.inventories if inventories is None else inventories,
        traits=provider.traits if traits is None else traits,
        generation=provider.generation + 1,
    )
    return replace(tree, providers={**tree.providers, provider_id: changed})


def _use(tree: ProviderTree, amounts: Mapping[NodeId, Amounts], sign: int) -> ProviderTree:
    providers = dict(tree.providers)
    for provider_id, wanted in amounts.items():
        provider = providers[provider_id]
        used = {**provider.used, **{k: provider.used.get(k, 0) + sign * v for k, v in wanted.items()}}
        providers[provider_id] = replace(provider, used=used, generation=provider.generation + 1)
    return replace(tree, providers=providers)
