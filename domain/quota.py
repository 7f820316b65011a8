"""What a project may hold and holds: instances, cores, RAM. One stream a project.

Use is counted by events of the same append as the instance's own, so a count can neither drift nor be passed by a
second door. Amounts are in the events, so the state stays small however many instances a project has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from domain.identifiers import InstanceId, ProjectId

INSTANCES, CORES, RAM = "instances", "cores", "ram"  # ram in MiB
COUNTED = (INSTANCES, CORES, RAM)

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
    "server_groups": 10,
    "server_group_members": 10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimitsSet:
    project_id: ProjectId
    limits: Mapping[str, int]  # only the changed ones; −1 is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimitsReset:
    project_id: ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConsumed:
    project_id: ProjectId
    instance_id: InstanceId
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReleased:
    project_id: ProjectId
    instance_id: InstanceId
    amounts: Mapping[str, int]


QuotaEvent = QuotaLimitsSet | QuotaLimitsReset | QuotaConsumed | QuotaReleased

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

    def limit(self, resource: str, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> int:
        return self.limits.get(resource, defaults[resource])


def evolve_quota(quota: Quota | None, event: QuotaEvent) -> Quota:
    quota = quota or Quota(project_id=event.project_id)
    match event:
        case QuotaLimitsSet():
            return replace(quota, limits={**quota.limits, **event.limits})
        case QuotaLimitsReset():
            return replace(quota, limits={})
        case QuotaConsumed():
            return replace(quota, used=_add(quota.used, event.amounts, 1))
        case QuotaReleased():
            return replace(quota, used=_add(quota.used, event.amounts, -1))
        case _:
            assert_never(event)


def _add(used: Mapping[str, int], amounts: Mapping[str, int], sign: int) -> dict[str, int]:
    return {**used, **{k: used.get(k, 0) + sign * v for k, v in amounts.items()}}
