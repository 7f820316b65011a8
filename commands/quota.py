"""What a project may hold: set and reset its limits, and the counting that creates and deletes do in their own append."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import QuotaBelowUsage, QuotaExceeded
from domain.flavor import FlavorSpec
from domain.identifiers import InstanceId, ProjectId, quota_stream
from domain.quota import (
    CORES,
    COUNTED,
    DEFAULT_LIMITS,
    INSTANCES,
    RAM,
    UNLIMITED,
    Quota,
    QuotaConsumed,
    QuotaLimitsReset,
    QuotaLimitsSet,
    QuotaReleased,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuotaLimits:
    project_id: ProjectId
    limits: Mapping[str, int]
    force: bool = False  # also below what is used


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetQuotaLimits:
    project_id: ProjectId


def decide_set_limits(command: SetQuotaLimits, states: States) -> Decision:
    """Change a project's limits (Nova API 2.1, PUT /os-quota-sets).

    Raises:
        QuotaBelowUsage: a limit under what is in use, without force; HTTP answers 400.
    """
    quota = states.quota(command.project_id)
    if not command.force:
        for resource, limit in command.limits.items():
            used = quota.used.get(resource, 0)
            if limit != UNLIMITED and limit < used:
                raise QuotaBelowUsage(
                    f"Quota limit {limit} for {resource} must be greater than or equal to already used and "
                    f"reserved {used}."
                )
    changed = {k: v for k, v in command.limits.items() if quota.limits.get(k) != v}
    if not changed:
        return []
    return [(quota_stream(command.project_id), QuotaLimitsSet(project_id=command.project_id, limits=changed))]


def decide_reset_limits(command: ResetQuotaLimits, states: States) -> Decision:
    """Back to the defaults (Nova API 2.1, DELETE /os-quota-sets)."""
    if not states.quota(command.project_id).limits:
        return []
    return [(quota_stream(command.project_id), QuotaLimitsReset(project_id=command.project_id))]


def amounts_of(flavor: FlavorSpec) -> dict[str, int]:
    return {INSTANCES: 1, CORES: flavor.vcpus, RAM: flavor.memory_mib}


def consumed(project_id: ProjectId, instance_id: InstanceId, flavor: FlavorSpec) -> QuotaConsumed:
    return QuotaConsumed(project_id=project_id, instance_id=instance_id, amounts=amounts_of(flavor))


def released(project_id: ProjectId, instance_id: InstanceId, flavor: FlavorSpec) -> QuotaReleased:
    return QuotaReleased(project_id=project_id, instance_id=instance_id, amounts=amounts_of(flavor))


def headroom(quota: Quota, flavor: FlavorSpec, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> int:
    """How many instances of this flavor the project may still create; a very large number where nothing limits it."""
    room = 2**31
    for resource, amount in amounts_of(flavor).items():
        limit = quota.limit(resource, defaults)
        if limit != UNLIMITED and amount:
            room = min(room, (limit - quota.used.get(resource, 0)) // amount)
    return max(0, room)


def require_quota(quota: Quota, flavor: FlavorSpec, count: int, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> None:
    """Raises:
    QuotaExceeded: `count` instances do not fit; names every resource that is short.
    """
    asked = {k: v * count for k, v in amounts_of(flavor).items()}
    limits = {k: quota.limit(k, defaults) for k in sorted(COUNTED)}
    short = [k for k, limit in limits.items() if limit != UNLIMITED and quota.used.get(k, 0) + asked[k] > limit]
    if short:
        raise QuotaExceeded(
            ", ".join(short),
            ", ".join(str(asked[k]) for k in short),
            ", ".join(str(quota.used.get(k, 0)) for k in short),
            ", ".join(str(limits[k]) for k in short),
        )
