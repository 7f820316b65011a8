"""Server groups: their limits, who joins and who leaves, and that no claim breaks their rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from commands.instance.create import CreateInstances
from commands.instance.delete import DeleteInstance
from commands.instance.schedule import Choice, ScheduleInstance
from commands.server_group import CreateServerGroup, DeleteServerGroup
from domain.errors import (
    BadServerGroup,
    ClaimDoesNotFit,
    ServerGroupNotFound,
    ServerGroupQuotaExceeded,
    TooManyServersInGroup,
)
from domain.identifiers import HostName, InstanceId, ServerGroupId
from domain.instance.events import InstanceCreateRequested
from domain.quota import QuotaConsumed, QuotaLimitsSet, QuotaReleased
from domain.scheduling.request_spec import GroupRule
from domain.server_group import (
    GroupPolicy,
    ServerGroupCreated,
    ServerGroupDeleted,
    ServerGroupMemberAdded,
    ServerGroupMemberRemoved,
)
from tests.support.decisions import (
    BETA,
    BETA_NODE,
    BETA_SERVICE,
    FLAVOR,
    HOST,
    IMAGE,
    INSTANCE,
    NODE,
    OTHER,
    OTHER_PROJECT,
    PROJECT,
    REASON,
    SERVICE,
    USER,
    claimed,
    create_requested,
    flavor_created,
    given,
    host_events,
    host_up,
    of_instance,
    scheduled,
)

GROUP = ServerGroupId(UUID(int=77))
beta_up = host_events(BETA, BETA_NODE, BETA_SERVICE)
created = ServerGroupCreated(
    server_group_id=GROUP, project_id=PROJECT, user_id=USER, name="web", policy=GroupPolicy.ANTI_AFFINITY
)
counted = QuotaConsumed(project_id=PROJECT, user_id=USER, server_group_id=GROUP, amounts={"server_groups": 1})
asked = CreateServerGroup(
    server_group_id=GROUP, project_id=PROJECT, user_id=USER, name="web", policy=GroupPolicy.ANTI_AFFINITY
)
delete = DeleteServerGroup(server_group_id=GROUP, project_id=PROJECT)
alpha = Choice(host=HOST, node_id=NODE, service_id=SERVICE, availability_zone="nova")
beta = Choice(host=BETA, node_id=BETA_NODE, service_id=BETA_SERVICE, availability_zone="nova")


def member(instance_id: InstanceId) -> ServerGroupMemberAdded:
    return ServerGroupMemberAdded(server_group_id=GROUP, instance_id=instance_id, user_id=USER)


def requested(instance_id: InstanceId) -> InstanceCreateRequested:
    return replace(create_requested, instance_id=instance_id, server_group_id=str(GROUP))


def one_on_alpha_and_one_waiting(policy: GroupPolicy, **more: Any) -> tuple[Any, ...]:
    placed = (replace(claimed, consumer_id=OTHER), of_instance(scheduled, OTHER))
    group = replace(created, policy=policy, **more)
    return (*host_up, *beta_up, group, member(OTHER), requested(OTHER), *placed, member(INSTANCE), requested(INSTANCE))


def schedules(*choices: Choice) -> ScheduleInstance:
    return ScheduleInstance(instance_id=INSTANCE, attempt=1, choices=choices, reason=REASON)


def creates(count: int = 1, **changes: Any) -> CreateInstances:
    values: dict[str, Any] = {
        "instance_ids": tuple(InstanceId(UUID(int=100 + n)) for n in range(count)),
        "min_count": count,
        "user_id": USER,
        "project_id": PROJECT,
        "reservation_id": "r-1",
        "name": "a server",
        "hostname": "a-server",
        "flavor_id": FLAVOR.flavor_id,
        "image": IMAGE,
        "scheduler_hints": {"group": (str(GROUP),)},
    }
    return CreateInstances(**{**values, **changes})


def test_a_group_is_made_and_counted() -> None:
    given().when(asked).then(counted, created)


def test_a_project_has_no_more_groups_than_its_limit() -> None:
    given(counted, quota_defaults={"server_groups": 1}).when(asked).then_refused(ServerGroupQuotaExceeded)
    mine = QuotaLimitsSet(project_id=PROJECT, limits={"server_groups": 0}, user_id=USER)
    given(mine).when(asked).then_refused(ServerGroupQuotaExceeded)


def test_a_group_is_deleted_once_and_by_its_project() -> None:
    released = QuotaReleased(project_id=PROJECT, user_id=USER, server_group_id=GROUP, amounts={"server_groups": 1})
    decided = given(counted, created, member(INSTANCE)).when(delete)

    decided.then(ServerGroupDeleted(server_group_id=GROUP), released)
    decided.and_then().when(delete).then_refused(ServerGroupNotFound)
    given(created).when(replace(delete, project_id=OTHER_PROJECT)).then_refused(ServerGroupNotFound)
    assert given(counted, created).when(replace(delete, project_id=None)).events


def test_servers_join_the_group_that_their_create_names() -> None:
    events = given(flavor_created, created).when(creates(2)).events

    joined = [e.instance_id for e in events if isinstance(e, ServerGroupMemberAdded)]
    made = [e for e in events if isinstance(e, InstanceCreateRequested)]
    assert joined == [e.instance_id for e in made] == list(creates(2).instance_ids)
    assert {e.server_group_id for e in made} == {str(GROUP)}


def test_only_as_many_join_as_are_made() -> None:
    few = QuotaLimitsSet(project_id=PROJECT, limits={"instances": 1})
    events = given(flavor_created, created, few).when(creates(3, min_count=1)).events

    assert len([e for e in events if isinstance(e, ServerGroupMemberAdded)]) == 1


def test_a_create_names_a_group_of_its_own_project() -> None:
    given(flavor_created).when(creates()).then_refused(BadServerGroup, str(GROUP))
    given(flavor_created, created).when(creates(project_id=OTHER_PROJECT)).then_refused(BadServerGroup)
    gone = ServerGroupDeleted(server_group_id=GROUP)
    given(flavor_created, created, gone).when(creates()).then_refused(BadServerGroup)


def test_a_group_takes_no_more_of_a_users_servers_than_the_limit() -> None:
    few = QuotaLimitsSet(project_id=PROJECT, limits={"server_group_members": 2})
    full = given(flavor_created, created, few, member(OTHER))

    assert full.when(creates(1)).events
    full.when(creates(2)).then_refused(TooManyServersInGroup)


def test_a_server_that_is_gone_has_left() -> None:
    left = ServerGroupMemberRemoved(server_group_id=GROUP, instance_id=INSTANCE)

    decided = given(created, member(INSTANCE), requested(INSTANCE)).when(
        DeleteInstance(instance_id=INSTANCE, project_id=PROJECT)
    )

    assert left in decided.events


@pytest.mark.parametrize(
    ("policy", "choices", "host"),
    [
        (GroupPolicy.ANTI_AFFINITY, (alpha, beta), BETA),
        (GroupPolicy.ANTI_AFFINITY, (alpha,), None),
        (GroupPolicy.AFFINITY, (beta, alpha), HOST),
        (GroupPolicy.AFFINITY, (beta,), None),
        (GroupPolicy.SOFT_AFFINITY, (beta, alpha), BETA),
        (GroupPolicy.SOFT_ANTI_AFFINITY, (alpha, beta), HOST),
    ],
)
def test_the_rule_is_checked_again_where_the_claim_is_made(
    policy: GroupPolicy, choices: tuple[Choice, ...], host: HostName | None
) -> None:
    decided = given(*one_on_alpha_and_one_waiting(policy)).when(schedules(*choices))

    if host is None:
        decided.then_refused(ClaimDoesNotFit)
    else:
        assert decided.events[1].host == host


def test_anti_affinity_may_allow_several_to_a_host() -> None:
    events = one_on_alpha_and_one_waiting(GroupPolicy.ANTI_AFFINITY, max_server_per_host=2)

    assert given(*events).when(schedules(alpha)).events[1].host == HOST


def test_a_group_that_is_deleted_binds_nobody() -> None:
    events = one_on_alpha_and_one_waiting(GroupPolicy.ANTI_AFFINITY)

    gone = ServerGroupDeleted(server_group_id=GROUP)
    assert given(*events, gone).when(schedules(alpha)).events[1].host == HOST


def test_affinity_without_others_is_anywhere() -> None:
    rule = GroupRule(policy=GroupPolicy.AFFINITY, others={})
    assert rule.keeps_together(HOST)
