"""Server groups: made and deleted by their project; servers join with their create and leave with their delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from commands.quota import in_force
from commands.states import Decision, States
from domain.errors import BadServerGroup, ServerGroupNotFound, ServerGroupQuotaExceeded, TooManyServersInGroup
from domain.identifiers import (
    HostName,
    InstanceId,
    ProjectId,
    ServerGroupId,
    UserId,
    quota_stream,
    server_group_stream,
)
from domain.instance.state import Instance
from domain.quota import DEFAULT_LIMITS, SERVER_GROUPS, UNLIMITED, QuotaConsumed, QuotaReleased
from domain.scheduling.request_spec import GroupRule
from domain.server_group import (
    GroupPolicy,
    ServerGroup,
    ServerGroupCreated,
    ServerGroupDeleted,
    ServerGroupMemberAdded,
    ServerGroupMemberRemoved,
)

ONE_GROUP = {SERVER_GROUPS: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateServerGroup:
    server_group_id: ServerGroupId
    project_id: ProjectId
    user_id: UserId
    name: str
    policy: GroupPolicy
    max_server_per_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteServerGroup:
    server_group_id: ServerGroupId
    project_id: ProjectId | None  # None: of any


def decide_create_group(
    command: CreateServerGroup, states: States, defaults: Mapping[str, int] = DEFAULT_LIMITS
) -> Decision:
    """Nova API 2.1, POST /os-server-groups.

    Raises:
        ServerGroupQuotaExceeded: HTTP answers 403.
    """
    quota, limits = states.quota(command.project_id), in_force(states, defaults)
    for whose in (None, command.user_id):
        limit = quota.limit(SERVER_GROUPS, limits, whose)
        if limit != UNLIMITED and quota.in_use(SERVER_GROUPS, whose) >= limit:
            raise ServerGroupQuotaExceeded
    created = ServerGroupCreated(
        server_group_id=command.server_group_id,
        project_id=command.project_id,
        user_id=command.user_id,
        name=command.name,
        policy=command.policy,
        max_server_per_host=command.max_server_per_host,
    )
    counted = QuotaConsumed(
        project_id=command.project_id,
        user_id=command.user_id,
        server_group_id=command.server_group_id,
        amounts=ONE_GROUP,
    )
    return [(quota_stream(command.project_id), counted), (server_group_stream(command.server_group_id), created)]


def decide_delete_group(command: DeleteServerGroup, states: States) -> Decision:
    """Nova API 2.1, DELETE /os-server-groups/{id}; also while it has members.

    Raises:
        ServerGroupNotFound: HTTP answers 404.
    """
    group = states.server_group(command.server_group_id)
    if group is None or group.deleted or command.project_id not in (None, group.project_id):
        raise ServerGroupNotFound(command.server_group_id)
    released = QuotaReleased(
        project_id=group.project_id,
        user_id=group.user_id,
        server_group_id=group.server_group_id,
        amounts=ONE_GROUP,
    )
    deleted = ServerGroupDeleted(server_group_id=group.server_group_id)
    return [(server_group_stream(group.server_group_id), deleted), (quota_stream(group.project_id), released)]


def joined(
    hint: str, instance_ids: tuple[InstanceId, ...], user_id: UserId, project_id: ProjectId, states: States,
    defaults: Mapping[str, int],
) -> Decision:  # fmt: skip
    """Servers that are being created join the group that their request's hint names.

    Raises:
        BadServerGroup: the project has no such group; HTTP answers 400.
        TooManyServersInGroup: HTTP answers 403.
    """
    group_id = ServerGroupId(UUID(hint))
    group = states.server_group(group_id)
    if group is None or group.deleted or group.project_id != project_id:
        raise BadServerGroup(hint)
    limit = states.quota(project_id).limit("server_group_members", in_force(states, defaults), user_id)
    own = sum(member == user_id for member in group.members.values())
    if limit != UNLIMITED and own + len(instance_ids) > limit:
        raise TooManyServersInGroup
    stream = server_group_stream(group_id)
    return [
        (stream, ServerGroupMemberAdded(server_group_id=group_id, instance_id=instance_id, user_id=user_id))
        for instance_id in instance_ids
    ]


def left(instance: Instance) -> Decision:
    """A server that is gone is no member any more."""
    if instance.request.server_group_id is None:
        return []
    group_id = ServerGroupId(UUID(instance.request.server_group_id))
    event = ServerGroupMemberRemoved(server_group_id=group_id, instance_id=instance.id)
    return [(server_group_stream(group_id), event)]


def group_of(instance: Instance, load: Callable[[ServerGroupId], ServerGroup | None]) -> ServerGroup | None:
    """The group that binds a server, if there is one still."""
    if instance.request.server_group_id is None:
        return None
    group = load(ServerGroupId(UUID(instance.request.server_group_id)))
    return None if group is None or group.deleted else group


def hosts_of(group: ServerGroup, load: Callable[[InstanceId], Instance | None]) -> dict[InstanceId, HostName]:
    """Where the members are that have a host."""
    members = (load(instance_id) for instance_id in group.members)
    return {one.id: one.residence.host for one in members if one is not None and one.residence is not None}


def rule_for(instance: Instance, group: ServerGroup, hosts: Mapping[InstanceId, HostName]) -> GroupRule:
    """What the group asks of a host for one of its members, with the others where they are."""
    others: dict[HostName, int] = {}
    for instance_id, host in hosts.items():
        if instance_id != instance.id:
            others[host] = others.get(host, 0) + 1
    return GroupRule(policy=group.policy, max_server_per_host=group.max_server_per_host or 1, others=others)
