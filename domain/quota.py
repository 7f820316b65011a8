"""What a project may hold and holds: instances, cores, RAM, server groups. One stream a project, and one a quota class.

Use is counted by events of the same append as the instance's own, so a count can neither drift nor be passed by a
second door. Amounts are in the events, so the state stays small however many instances a project has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from domain.identifiers import InstanceId, ProjectId, ServerGroupId, UserId

INSTANCES, CORES, RAM, SERVER_GROUPS = "instances", "cores", "ram", "server_groups"  # ram in MiB
COUNTED = (INSTANCES, CORES, RAM, SERVER_GROUPS)

UNLIMITED = -1

# Nova's [quota] defaults; those not in COUNTED are limits of a single request or of another stream.
DEFAULT_LIMITS: Mapping[str, int] = {
    INSTANCES: 10,
    CORES: 20,
    RAM: 51200,
    "metadata_items": 128,
    "injected_files": 5,
    "injected_file_content_bytes": 10240,
    "injected_file_path_bytes": 255,
    "key_pairs": 100,
    SERVER_GROUPS: 10,
    "server_group_members": 10,
}

# Kept and shown to clients below 2.36 (2.50 of a class); networks are not counted here.
NETWORK_LIMITS: Mapping[str, int] = dict.fromkeys(
    ("fixed_ips", "floating_ips", "security_groups", "security_group_rules"), UNLIMITED
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimitsSet:
    project_id: ProjectId
    limits: Mapping[str, int]  # only the changed ones; −1 is no limit
    user_id: UserId | None = None  # whose limits within the project; None: the project's own


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimitsReset:
    """Back to the defaults, of one user or of the project with all its users."""

    project_id: ProjectId
    user_id: UserId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConsumed:
    """Counted for the project and for its user; for the instance or the server group that is named."""

    project_id: ProjectId
    user_id: UserId | None = None
    instance_id: InstanceId | None = None
    server_group_id: ServerGroupId | None = None
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReleased:
    project_id: ProjectId
    user_id: UserId | None = None
    instance_id: InstanceId | None = None
    server_group_id: ServerGroupId | None = None
    amounts: Mapping[str, int]


QuotaEvent = QuotaLimitsSet | QuotaLimitsReset | QuotaConsumed | QuotaReleased


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaClassLimitsSet:
    """Limits of a class; those of the class "default" hold where a project has none of its own."""

    class_name: str
    limits: Mapping[str, int]  # only the changed ones


QUOTA_CLASS_EVENTS = {"quota_class.limits_set": QuotaClassLimitsSet}

QUOTA_EVENTS = {
    "quota.limits_set": QuotaLimitsSet,
    "quota.limits_reset": QuotaLimitsReset,
    "quota.consumed": QuotaConsumed,
    "quota.released": QuotaReleased,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    project_id: ProjectId
    limits: Mapping[str, int] = field(default_factory=dict)  # overrides of the defaults
    used: Mapping[str, int] = field(default_factory=dict)
    user_limits: Mapping[UserId, Mapping[str, int]] = field(default_factory=dict)  # overrides of the project's
    used_by_user: Mapping[UserId, Mapping[str, int]] = field(default_factory=dict)

    def limit(self, resource: str, defaults: Mapping[str, int] = DEFAULT_LIMITS, user_id: UserId | None = None) -> int:
        """Of the project, or of one of its users."""
        own = {} if user_id is None else self.user_limits.get(user_id, {})
        return own.get(resource, self.limits.get(resource, defaults[resource]))

    def in_use(self, resource: str, user_id: UserId | None = None) -> int:
        used = self.used if user_id is None else self.used_by_user.get(user_id, {})
        return used.get(resource, 0)

    def given_out(self, resource: str, but: UserId | None = None) -> int:
        """The sum of what single users' limits give them, `but` one's."""
        limits = (own.get(resource, 0) for user_id, own in self.user_limits.items() if user_id != but)
        return sum(limit for limit in limits if limit != UNLIMITED)


def evolve_quota(quota: Quota | None, event: QuotaEvent) -> Quota:
    quota = quota or Quota(project_id=event.project_id)
    match event:
        case QuotaLimitsSet():
            if event.user_id is None:
                return replace(quota, limits={**quota.limits, **event.limits})
            own = {**quota.user_limits.get(event.user_id, {}), **event.limits}
            return replace(quota, user_limits={**quota.user_limits, event.user_id: own})
        case QuotaLimitsReset():
            if event.user_id is None:
                return replace(quota, limits={}, user_limits={})
            others = {k: v for k, v in quota.user_limits.items() if k != event.user_id}
            return replace(quota, user_limits=others)
        case QuotaConsumed():
            return _count(quota, event, 1)
        case QuotaReleased():
            return _count(quota, event, -1)
        case _:
            assert_never(event)


def _count(quota: Quota, event: QuotaConsumed | QuotaReleased, sign: int) -> Quota:
    quota = replace(quota, used=_add(quota.used, event.amounts, sign))
    if event.user_id is None:
        return quota
    own = _add(quota.used_by_user.get(event.user_id, {}), event.amounts, sign)
    others = {k: v for k, v in quota.used_by_user.items() if k != event.user_id}
    return replace(quota, used_by_user={**others, event.user_id: own} if any(own.values()) else others)


def _add(used: Mapping[str, int], amounts: Mapping[str, int], sign: int) -> dict[str, int]:
    return {**used, **{k: used.get(k, 0) + sign * v for k, v in amounts.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaClass:
    class_name: str
    limits: Mapping[str, int] = field(default_factory=dict)


def evolve_quota_class(quota_class: QuotaClass | None, event: QuotaClassLimitsSet) -> QuotaClass:
    limits = {} if quota_class is None else quota_class.limits
    return QuotaClass(class_name=event.class_name, limits={**limits, **event.limits})
