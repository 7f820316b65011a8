"""Server groups: servers of a project that are to be kept together, or apart. One stream a group.

Where its members are is in their own streams: a member that moves or goes needs no word here but that it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, assert_never

from domain.identifiers import InstanceId, ProjectId, ServerGroupId, UserId
from domain.marks import PERSONAL


class GroupPolicy(StrEnum):
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    SOFT_AFFINITY = "soft-affinity"
    SOFT_ANTI_AFFINITY = "soft-anti-affinity"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroupCreated:
    server_group_id: ServerGroupId
    project_id: ProjectId
    user_id: UserId
    name: Annotated[str, PERSONAL]
    policy: GroupPolicy
    max_server_per_host: int | None = None  # of anti-affinity, where another than one was asked for (Nova API 2.64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroupMemberAdded:
    server_group_id: ServerGroupId
    instance_id: InstanceId
    user_id: UserId  # whose server it is: limits are counted by user


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroupMemberRemoved:
    """The server is gone for its user."""

    server_group_id: ServerGroupId
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroupDeleted:
    """Its servers stay, and are bound by nothing any more."""

    server_group_id: ServerGroupId


ServerGroupEvent = ServerGroupCreated | ServerGroupMemberAdded | ServerGroupMemberRemoved | ServerGroupDeleted

SERVER_GROUP_EVENTS = {
    "server_group.created": ServerGroupCreated,
    "server_group.member_added": ServerGroupMemberAdded,
    "server_group.member_removed": ServerGroupMemberRemoved,
    "server_group.deleted": ServerGroupDeleted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroup:
    server_group_id: ServerGroupId
    project_id: ProjectId
    user_id: UserId
    policy: GroupPolicy
    max_server_per_host: int | None = None
    members: Mapping[InstanceId, UserId] = field(default_factory=dict)
    deleted: bool = False


def evolve_server_group(group: ServerGroup | None, event: ServerGroupEvent) -> ServerGroup:
    if isinstance(event, ServerGroupCreated):
        return ServerGroup(
            server_group_id=event.server_group_id,
            project_id=event.project_id,
            user_id=event.user_id,
            policy=event.policy,
            max_server_per_host=event.max_server_per_host,
        )
    assert group is not None, "a group's first event is its creation"
    match event:
        case ServerGroupMemberAdded():
            return replace(group, members={**group.members, event.instance_id: event.user_id})
        case ServerGroupMemberRemoved():
            return replace(group, members={k: v for k, v in group.members.items() if k != event.instance_id})
        case ServerGroupDeleted():
            return replace(group, deleted=True)
        case _:
            assert_never(event)
