"""All views, by name: what a process keeps, and what can be rebuilt."""

from __future__ import annotations

from collections.abc import Callable

from projections.flavors import Flavors
from projections.hypervisors import Hypervisors
from projections.instance_actions import InstanceActions
from projections.keypairs import KeypairsView
from projections.quotas import Quotas
from projections.server_groups import ServerGroups
from projections.servers import Servers
from projections.usage import Usage
from projections.views import Projection

VIEWS: dict[str, Callable[[], Projection]] = {
    Servers.name: Servers,
    InstanceActions.name: InstanceActions,
    Flavors.name: Flavors,
    KeypairsView.name: KeypairsView,
    Quotas.name: Quotas,
    Hypervisors.name: Hypervisors,
    ServerGroups.name: ServerGroups,
    Usage.name: Usage,
}


def projections() -> list[Projection]:
    return [make() for make in VIEWS.values()]
