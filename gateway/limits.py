"""GET /limits: what a project may hold, and how much of it is held."""

from __future__ import annotations

from collections.abc import Mapping

from commands.quota import DEFAULT_CLASS
from domain.quota import CORES, INSTANCES, RAM, SERVER_GROUPS
from gateway.backend import Backend
from gateway.microversions import Since, V
from gateway.quota_sets import limits_of_class, quota_of
from gateway.request import Handler, HandlerKey, Request, Response

LIMITS = {
    "maxTotalInstances": INSTANCES,
    "maxTotalCores": CORES,
    "maxTotalRAMSize": RAM,
    "maxServerMeta": "metadata_items",
    "maxImageMeta": "metadata_items",
    "maxPersonality": "injected_files",
    "maxPersonalitySize": "injected_file_content_bytes",
    "maxTotalKeypairs": "key_pairs",
    "maxServerGroups": SERVER_GROUPS,
    "maxServerGroupMembers": "server_group_members",
    "maxTotalFloatingIps": "floating_ips",
    "maxSecurityGroups": "security_groups",
    "maxSecurityGroupRules": "security_group_rules",
}
USED = {
    "totalInstancesUsed": INSTANCES,
    "totalCoresUsed": CORES,
    "totalRAMUsed": RAM,
    "totalServerGroupsUsed": SERVER_GROUPS,
    "totalFloatingIpsUsed": "floating_ips",
    "totalSecurityGroupsUsed": "security_groups",
}
_NETWORK = frozenset(
    {
        "maxTotalFloatingIps",
        "maxSecurityGroups",
        "maxSecurityGroupRules",
        "totalFloatingIpsUsed",
        "totalSecurityGroupsUsed",
    }
)
_IMAGES = _NETWORK | {"maxImageMeta"}
GONE: Since[frozenset[str]] = Since(
    {V(2, 36): _NETWORK, V(2, 39): _IMAGES, V(2, 57): _IMAGES | {"maxPersonality", "maxPersonalitySize"}}
)


class Limits:
    def __init__(self, backend: Backend, defaults: Mapping[str, int]) -> None:
        self._backend = backend
        self._defaults = defaults

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("GET", "/limits"): self.limits}

    async def limits(self, request: Request) -> Response:
        """Of the caller's project; for administrators of any."""
        project_id = request.query.get("tenant_id")
        if project_id is None:
            project_id = request.project_id
        else:
            request.require("os_compute_api:limits:other_project")
        defaults = await limits_of_class(self._backend, DEFAULT_CLASS, self._defaults)
        quota = await quota_of(self._backend, project_id)
        absolute = {shown: quota.limit(name, defaults) for shown, name in LIMITS.items()}
        absolute |= {shown: quota.in_use(name) for shown, name in USED.items()}
        gone = GONE.at(request.version) or frozenset()
        shown = {name: value for name, value in absolute.items() if name not in gone}
        return Response({"limits": {"rate": [], "absolute": shown}})
