"""SetMetadata, DeleteMetadataItem: what a server's users write on it, as keys with values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commands.quota import in_force
from commands.states import Decision, States
from domain.errors import MetadataItemNotFound, MetadataLimitExceeded
from domain.identifiers import InstanceId, ProjectId, instance_stream
from domain.instance.attributes import InstanceMetadataRemoved, InstanceMetadataSet
from domain.instance.events import InstanceEvent
from domain.instance.lifecycle import DELETE_METADATA, UPDATE_METADATA, require
from domain.instance.state import Instance
from domain.quota import DEFAULT_LIMITS, UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMetadata:
    instance_id: InstanceId
    project_id: ProjectId | None
    items: Mapping[str, str]
    replace: bool = False  # what is not among the items goes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMetadataItem:
    instance_id: InstanceId
    project_id: ProjectId | None
    key: str


def decide_set_metadata(command: SetMetadata, states: States, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> Decision:
    """Add and change items, or replace them all (Nova API 2.1, POST and PUT /servers/{id}/metadata).

    Raises:
        InstanceNotFound: HTTP answers 404.
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
        MetadataLimitExceeded: HTTP answers 403.
    """
    instance = states.live_instance(command.instance_id, command.project_id)
    require(instance, UPDATE_METADATA, command.project_id)
    before = instance.request.metadata
    after = dict(command.items) if command.replace else {**before, **command.items}
    allowed = states.quota(instance.project_id).limit("metadata_items", in_force(states, defaults))
    if after and allowed != UNLIMITED and len(after) > allowed:
        raise MetadataLimitExceeded(allowed)
    named: dict[str, Any] = {"instance_id": instance.id, "user_id": instance.request.user_id}
    events: list[InstanceEvent] = []
    if removed := tuple(key for key in before if key not in after):
        events.append(InstanceMetadataRemoved(**named, keys=removed))
    if changed := {key: value for key, value in after.items() if before.get(key) != value}:
        events.append(InstanceMetadataSet(**named, metadata=changed))
    return [(instance_stream(instance.id), event) for event in events]


def decide_delete_metadata(command: DeleteMetadataItem, instance: Instance) -> list[InstanceEvent]:
    """Take one item away (Nova API 2.1, DELETE /servers/{id}/metadata/{key}).

    Raises:
        MetadataItemNotFound: HTTP answers 404.
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
    """
    if command.key not in instance.request.metadata:
        raise MetadataItemNotFound
    require(instance, DELETE_METADATA, command.project_id)
    return [InstanceMetadataRemoved(instance_id=instance.id, user_id=instance.request.user_id, keys=(command.key,))]
