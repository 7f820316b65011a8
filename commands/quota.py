"""What a project may hold: set and reset its limits, and the counting that creates and deletes do in their own append."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import QuotaAboveProject, QuotaBelowUsage, QuotaExceeded
from domain.flavor import FlavorSpec
from domain.identifiers import InstanceId, ProjectId, UserId, quota_class_stream, quota_stream
from domain.quota import (
    CORES,
    DEFAULT_LIMITS,
    INSTANCES,
    NETWORK_LIMITS,
    RAM,
    UNLIMITED,
    Quota,
    QuotaClassLimitsSet,
    QuotaConsumed,
    QuotaLimitsReset,
    QuotaLimitsSet,
    QuotaReleased,
)

DEFAULT_CLASS = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuotaLimits:
    project_id: ProjectId
    limits: Mapping[str, int]
    user_id: UserId | None = None  # whose, within the project
    force: bool = False  # also below what is used


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetQuotaLimits:
    project_id: ProjectId
    user_id: UserId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuotaClassLimits:
    class_name: str
    limits: Mapping[str, int]


def decide_set_limits(
    command: SetQuotaLimits, states: States, defaults: Mapping[str, int] = DEFAULT_LIMITS
) -> Decision:
    """Change a project's limits, or one user's in it (Nova API 2.1, PUT /os-quota-sets).

    Raises:
        QuotaBelowUsage: a limit under what is in use or given to users, without force; HTTP answers 400.
        QuotaAboveProject: a user's limit beyond what the project has left to give, without force; HTTP answers 400.
    """
    quota, user_id = states.quota(command.project_id), command.user_id
    if not command.force:
        for resource, limit in command.limits.items():
            _require_sensible(quota, resource, limit, user_id, in_force(states, defaults))
    known = quota.limits if user_id is None else quota.user_limits.get(user_id, {})
    changed = {k: v for k, v in command.limits.items() if known.get(k) != v}
    if not changed:
        return []
    event = QuotaLimitsSet(project_id=command.project_id, limits=changed, user_id=user_id)
    return [(quota_stream(command.project_id), event)]


def _require_sensible(
    quota: Quota, resource: str, limit: int, user_id: UserId | None, defaults: Mapping[str, int]
) -> None:
    least = quota.in_use(resource, user_id)
    if user_id is None:
        least = max(least, quota.given_out(resource))
    if limit != UNLIMITED and limit < least:
        raise QuotaBelowUsage(resource, limit, least)
    whole = quota.limit(resource, defaults)
    if user_id is not None and whole != UNLIMITED:
        most = whole - quota.given_out(resource, but=user_id)
        if limit == UNLIMITED or limit > most:
            raise QuotaAboveProject(resource, limit, most)


def decide_reset_limits(command: ResetQuotaLimits, states: States) -> Decision:
    """Back to the defaults (Nova API 2.1, DELETE /os-quota-sets)."""
    quota, user_id = states.quota(command.project_id), command.user_id
    if not (quota.limits or quota.user_limits if user_id is None else user_id in quota.user_limits):
        return []
    event = QuotaLimitsReset(project_id=command.project_id, user_id=user_id)
    return [(quota_stream(command.project_id), event)]


def decide_set_class_limits(command: SetQuotaClassLimits, states: States) -> Decision:
    """Nova API 2.1, PUT /os-quota-class-sets."""
    known = states.quota_class(command.class_name).limits
    changed = {k: v for k, v in command.limits.items() if known.get(k) != v}
    if not changed:
        return []
    event = QuotaClassLimitsSet(class_name=command.class_name, limits=changed)
    return [(quota_class_stream(command.class_name), event)]


def in_force(states: States, configured: Mapping[str, int]) -> Mapping[str, int]:
    """The limits of a project that has none of its own: those of the class "default", else those configured."""
    return {**NETWORK_LIMITS, **configured, **states.quota_class(DEFAULT_CLASS).limits}


def amounts_of(flavor: FlavorSpec) -> dict[str, int]:
    return {INSTANCES: 1, CORES: flavor.vcpus, RAM: flavor.memory_mib}


def consumed(project_id: ProjectId, user_id: UserId, instance_id: InstanceId, flavor: FlavorSpec) -> QuotaConsumed:
    return QuotaConsumed(project_id=project_id, user_id=user_id, instance_id=instance_id, amounts=amounts_of(flavor))


def released(project_id: ProjectId, user_id: UserId, instance_id: InstanceId, flavor: FlavorSpec) -> QuotaReleased:
    return QuotaReleased(project_id=project_id, user_id=user_id, instance_id=instance_id, amounts=amounts_of(flavor))


def headroom(quota: Quota, user_id: UserId, flavor: FlavorSpec, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> int:
    """How many instances of this flavor the user may still create; a very large number where nothing limits it."""
    room = 2**31
    for resource, amount in amounts_of(flavor).items():
        for whose in (None, user_id):
            limit = quota.limit(resource, defaults, whose)
            if limit != UNLIMITED and amount:
                room = min(room, (limit - quota.in_use(resource, whose)) // amount)
    return max(0, room)


def require_quota(
    quota: Quota, user_id: UserId, flavor: FlavorSpec, count: int, defaults: Mapping[str, int] = DEFAULT_LIMITS
) -> None:
    """Raises:
    QuotaExceeded: `count` instances do not fit; names every resource that is short.
    """
    asked = {k: v * count for k, v in amounts_of(flavor).items()}
    for whose in (None, user_id):
        limits = {k: quota.limit(k, defaults, whose) for k in sorted(asked)}
        used = {k: quota.in_use(k, whose) for k in limits}
        short = [k for k, limit in limits.items() if limit != UNLIMITED and used[k] + asked[k] > limit]
        if short:
            raise QuotaExceeded(
                ", ".join(short),
                ", ".join(str(asked[k]) for k in short),
                ", ".join(str(used[k]) for k in short),
                ", ".join(str(limits[k]) for k in short),
            )
