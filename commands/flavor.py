"""CreateFlavor, DeleteFlavor, and the few changes a flavor may see: its description, extra specs, and who may use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import (
    ExtraSpecNotFound,
    FlavorAccessExists,
    FlavorAccessNotFound,
    FlavorExists,
    FlavorIdExists,
    FlavorIsPublic,
    FlavorNotFound,
)
from domain.flavor import (
    FlavorAccessGranted,
    FlavorAccessRevoked,
    FlavorCreated,
    FlavorDeleted,
    FlavorDescribed,
    FlavorExtraSpecsSet,
    FlavorSpec,
)
from domain.identifiers import FLAVOR_CATALOG, ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFlavor:
    flavor: FlavorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFlavor:
    flavor_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFlavor:
    flavor_id: str
    description: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetExtraSpecs:
    flavor_id: str
    extra_specs: Mapping[str, str]  # beside those there are


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExtraSpec:
    flavor_id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFlavorAccess:
    flavor_id: str
    project_id: ProjectId
    only_private: bool = True  # refuse a public flavor, which all may use anyway (Nova API 2.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeFlavorAccess:
    flavor_id: str
    project_id: ProjectId


def decide_create_flavor(command: CreateFlavor, states: States) -> Decision:
    """Nova API 2.1, POST /flavors.

    Raises:
        FlavorExists, FlavorIdExists: HTTP answers 409.
    """
    catalog = states.flavors()
    if command.flavor.flavor_id in catalog.flavors:
        raise FlavorIdExists(command.flavor.flavor_id)
    if any(f.name == command.flavor.name for f in catalog.flavors.values()):
        raise FlavorExists(command.flavor.name)
    return [(FLAVOR_CATALOG, FlavorCreated(flavor=command.flavor))]


def decide_delete_flavor(command: DeleteFlavor, states: States) -> Decision:
    """Nova API 2.1, DELETE /flavors/{id}. Instances keep their own copy.

    Raises:
        FlavorNotFound: HTTP answers 404.
    """
    _known(command.flavor_id, states)
    return [(FLAVOR_CATALOG, FlavorDeleted(flavor_id=command.flavor_id))]


def decide_describe_flavor(command: DescribeFlavor, states: States) -> Decision:
    """Nova API 2.55, PUT /flavors/{id}.

    Raises:
        FlavorNotFound: HTTP answers 404.
    """
    if _known(command.flavor_id, states).description == command.description:
        return []
    described = FlavorDescribed(flavor_id=command.flavor_id, description=command.description)
    return [(FLAVOR_CATALOG, described)]


def decide_set_extra_specs(command: SetExtraSpecs, states: States) -> Decision:
    """Nova API 2.1, POST and PUT /flavors/{id}/os-extra_specs. Instances keep those they were created with.

    Raises:
        FlavorNotFound: HTTP answers 404.
    """
    flavor = _known(command.flavor_id, states)
    return _with_specs(flavor, {**flavor.extra_specs, **command.extra_specs})


def decide_delete_extra_spec(command: DeleteExtraSpec, states: States) -> Decision:
    """Nova API 2.1, DELETE /flavors/{id}/os-extra_specs/{key}.

    Raises:
        FlavorNotFound, ExtraSpecNotFound: HTTP answers 404.
    """
    flavor = _known(command.flavor_id, states)
    if command.key not in flavor.extra_specs:
        raise ExtraSpecNotFound(command.flavor_id, command.key)
    return _with_specs(flavor, {k: v for k, v in flavor.extra_specs.items() if k != command.key})


def decide_grant_access(command: GrantFlavorAccess, states: States) -> Decision:
    """Nova API 2.1, addTenantAccess.

    Raises:
        FlavorNotFound: HTTP answers 404.
        FlavorIsPublic, FlavorAccessExists: HTTP answers 409.
    """
    flavor = _known(command.flavor_id, states)
    if flavor.is_public and command.only_private:
        raise FlavorIsPublic
    if command.project_id in states.flavors().access.get(command.flavor_id, ()):
        raise FlavorAccessExists(command.flavor_id, command.project_id)
    granted = FlavorAccessGranted(flavor_id=command.flavor_id, project_id=command.project_id)
    return [(FLAVOR_CATALOG, granted)]


def decide_revoke_access(command: RevokeFlavorAccess, states: States) -> Decision:
    """Nova API 2.1, removeTenantAccess.

    Raises:
        FlavorNotFound, FlavorAccessNotFound: HTTP answers 404.
    """
    _known(command.flavor_id, states)
    if command.project_id not in states.flavors().access.get(command.flavor_id, ()):
        raise FlavorAccessNotFound(command.flavor_id, command.project_id)
    revoked = FlavorAccessRevoked(flavor_id=command.flavor_id, project_id=command.project_id)
    return [(FLAVOR_CATALOG, revoked)]


def _with_specs(flavor: FlavorSpec, extra_specs: Mapping[str, str]) -> Decision:
    if extra_specs == flavor.extra_specs:
        return []
    return [(FLAVOR_CATALOG, FlavorExtraSpecsSet(flavor_id=flavor.flavor_id, extra_specs=extra_specs))]


def _known(flavor_id: str, states: States) -> FlavorSpec:
    flavor = states.flavors().flavors.get(flavor_id)
    if flavor is None:
        raise FlavorNotFound(flavor_id)
    return flavor
