"""The states that decisions read, loaded when first asked for: `states.instance(id)`, `states.provider(id)`, ….

Which streams a decision reads often depends on what it finds there (a delete goes from the instance to its provider and
its quota), so a decision asks for states instead of naming its streams beforehand. It still sees only values.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from domain.compute_service import ComputeService, evolve_service
from domain.errors import InstanceNotFound
from domain.flavor import FlavorCatalog, evolve_flavors
from domain.host_aggregate import HostAggregates, evolve_host_aggregates
from domain.host_key import HostKey, evolve_host_key
from domain.identifiers import (
    FLAVOR_CATALOG,
    HOST_AGGREGATES,
    InstanceId,
    NodeId,
    ProjectId,
    ServerGroupId,
    ServiceId,
    StreamId,
    UserId,
    category_of,
    host_key_stream,
    instance_stream,
    keypair_stream,
    provider_stream,
    quota_class_stream,
    quota_stream,
    server_group_stream,
    service_stream,
)
from domain.instance.state import Instance, evolve
from domain.keypair import Keypairs, evolve_keypairs
from domain.quota import Quota, QuotaClass, evolve_quota, evolve_quota_class
from domain.resource_provider import ProviderTree, evolve_provider
from domain.serialization import shape_of
from domain.server_group import ServerGroup, evolve_server_group


@dataclass(frozen=True)
class StreamKind:
    """How the streams of one category are folded."""

    state: type
    evolve: Callable[[Any, Any], Any]

    @cached_property
    def shape(self) -> str:
        """A hash of the state's fields and of the code that folds it: a snapshot of another shape is ignored."""
        source = inspect.getsource(sys.modules[self.evolve.__module__])
        return hashlib.sha256(f"{shape_of(self.state)}\n{source}".encode()).hexdigest()[:16]


STREAM_KINDS: dict[str, StreamKind] = {
    "instance": StreamKind(Instance, evolve),
    "provider": StreamKind(ProviderTree, evolve_provider),
    "service": StreamKind(ComputeService, evolve_service),
    "host_key": StreamKind(HostKey, evolve_host_key),
    "host_aggregate": StreamKind(HostAggregates, evolve_host_aggregates),
    "quota": StreamKind(Quota, evolve_quota),
    "quota_class": StreamKind(QuotaClass, evolve_quota_class),
    "flavor": StreamKind(FlavorCatalog, evolve_flavors),
    "keypair": StreamKind(Keypairs, evolve_keypairs),
    "server_group": StreamKind(ServerGroup, evolve_server_group),
}


@dataclass(slots=True)
class Folded:
    """A stream as far as it was folded."""

    version: int
    state: Any
    snapshot_version: int = 0


def kind_of(stream: StreamId) -> StreamKind:
    return STREAM_KINDS[category_of(stream)]


Decision = list[tuple[StreamId, Any]]  # events, each with the stream it belongs to


class States:
    def __init__(self, load: Callable[[StreamId], Any]) -> None:
        self._load = load

    def instance(self, instance_id: InstanceId) -> Instance | None:
        state: Instance | None = self._load(instance_stream(instance_id))
        return state

    def live_instance(self, instance_id: InstanceId, project_id: ProjectId | None) -> Instance:
        """The instance as its project sees it; None for `project_id` sees all.

        Raises:
            InstanceNotFound: there is none, it is deleted, or it is another project's; HTTP answers 404.
        """
        instance = self.instance(instance_id)
        if instance is None or instance.deleted or project_id not in (None, instance.project_id):
            raise InstanceNotFound(instance_id)
        return instance

    def provider(self, node_id: NodeId) -> ProviderTree | None:
        state: ProviderTree | None = self._load(provider_stream(node_id))
        return state

    def service(self, service_id: ServiceId) -> ComputeService | None:
        state: ComputeService | None = self._load(service_stream(service_id))
        return state

    def host_key(self, service_id: ServiceId) -> HostKey | None:
        state: HostKey | None = self._load(host_key_stream(service_id))
        return state

    def host_aggregates(self) -> HostAggregates:
        return self._load(HOST_AGGREGATES) or HostAggregates()

    def quota(self, project_id: ProjectId) -> Quota:
        return self._load(quota_stream(project_id)) or Quota(project_id=project_id)

    def quota_class(self, class_name: str) -> QuotaClass:
        return self._load(quota_class_stream(class_name)) or QuotaClass(class_name=class_name)

    def flavors(self) -> FlavorCatalog:
        return self._load(FLAVOR_CATALOG) or FlavorCatalog()

    def keypairs(self, user_id: UserId) -> Keypairs:
        return self._load(keypair_stream(user_id)) or Keypairs(user_id=user_id)

    def server_group(self, server_group_id: ServerGroupId) -> ServerGroup | None:
        state: ServerGroup | None = self._load(server_group_stream(server_group_id))
        return state
