"""CreateFlavor, DeleteFlavor, and the few changes a flavor may see."""

from __future__ import annotations

from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import FlavorExists, FlavorIdExists, FlavorNotFound
from domain.flavor import FlavorCreated, FlavorDeleted, FlavorDescribed, FlavorSpec
from domain.identifiers import FLAVOR_CATALOG


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


def _known(flavor_id: str, states: States) -> FlavorSpec:
    flavor = states.flavors().flavors.get(flavor_id)
    if flavor is None:
        raise FlavorNotFound(flavor_id)
    return flavor
