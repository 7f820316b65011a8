"""Flavors: sizes that instances are created from. One stream for all, so that ids and names are unique.

An instance keeps its own copy of its flavor (`FlavorSpec`), so a later edit or delete changes nothing that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from domain.identifiers import ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorSpec:
    flavor_id: str
    name: str
    vcpus: int
    memory_mib: int
    root_gib: int
    ephemeral_gib: int = 0
    swap_mib: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorCreated:
    flavor: FlavorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorDeleted:
    flavor_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorDescribed:
    """Only the description of a flavor may change after it is made (Nova API 2.55)."""

    flavor_id: str
    description: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorExtraSpecsSet:
    flavor_id: str
    extra_specs: Mapping[str, str]  # all of them, after the change


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorAccessGranted:
    flavor_id: str
    project_id: ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorAccessRevoked:
    flavor_id: str
    project_id: ProjectId


FlavorEvent = (
    FlavorCreated | FlavorDeleted | FlavorDescribed | FlavorExtraSpecsSet | FlavorAccessGranted | FlavorAccessRevoked
)

FLAVOR_EVENTS = {
    "flavor.created": FlavorCreated,
    "flavor.deleted": FlavorDeleted,
    "flavor.described": FlavorDescribed,
    "flavor.extra_specs_set": FlavorExtraSpecsSet,
    "flavor.access_granted": FlavorAccessGranted,
    "flavor.access_revoked": FlavorAccessRevoked,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorCatalog:
    flavors: Mapping[str, FlavorSpec] = field(default_factory=dict)
    access: Mapping[str, frozenset[ProjectId]] = field(default_factory=dict)  # private flavors only

    def visible_to(self, flavor_id: str, project_id: ProjectId, *, all_projects: bool = False) -> FlavorSpec | None:
        flavor = self.flavors.get(flavor_id)
        if flavor is None or flavor.is_public or all_projects:
            return flavor
        return flavor if project_id in self.access.get(flavor_id, frozenset()) else None


def evolve_flavors(catalog: FlavorCatalog | None, event: FlavorEvent) -> FlavorCatalog:
    catalog = catalog or FlavorCatalog()
    match event:
        case FlavorCreated():
            return replace(catalog, flavors={**catalog.flavors, event.flavor.flavor_id: event.flavor})
        case FlavorDeleted():
            return FlavorCatalog(
                flavors={k: v for k, v in catalog.flavors.items() if k != event.flavor_id},
                access={k: v for k, v in catalog.access.items() if k != event.flavor_id},
            )
        case FlavorDescribed():
            changed = replace(catalog.flavors[event.flavor_id], description=event.description)
            return replace(catalog, flavors={**catalog.flavors, event.flavor_id: changed})
        case FlavorExtraSpecsSet():
            changed = replace(catalog.flavors[event.flavor_id], extra_specs=event.extra_specs)
            return replace(catalog, flavors={**catalog.flavors, event.flavor_id: changed})
        case FlavorAccessGranted():
            projects = catalog.access.get(event.flavor_id, frozenset()) | {event.project_id}
            return replace(catalog, access={**catalog.access, event.flavor_id: projects})
        case FlavorAccessRevoked():
            projects = catalog.access.get(event.flavor_id, frozenset()) - {event.project_id}
            return replace(catalog, access={**catalog.access, event.flavor_id: projects})
        case _:
            assert_never(event)
