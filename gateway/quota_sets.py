"""Quotas and limits: what a project may hold, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commands.neighbours.identity import Identity
from commands.quota import ResetQuotaLimits, SetQuotaLimits
from domain.identifiers import ProjectId
from domain.quota import CORES, INSTANCES, RAM, Quota
from domain.serialization import from_plain
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V, Version
from gateway.request import Handler, HandlerKey, Request, Response

INJECTED = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")  # gone at 2.57
NETWORK = {"fixed_ips": -1, "floating_ips": -1, "security_groups": -1, "security_group_rules": -1}  # gone at 2.36
RESOURCES = (
    "instances",
    "cores",
    "ram",
    "metadata_items",
    *INJECTED,
    "key_pairs",
    "server_groups",
    "server_group_members",
)


class QuotaSets:
    def __init__(self, backend: Backend, identity: Identity, defaults: Mapping[str, int]) -> None:
        self._backend = backend
        self._identity = identity
        self._defaults = defaults

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        project = "/os-quota-sets/{project_id}"
        return {
            ("GET", project): self.show,
            ("GET", f"{project}/defaults"): self.defaults,
            ("GET", f"{project}/detail"): self.detail,
            ("PUT", project): self.update,
            ("DELETE", project): self.reset,
            ("GET", "/limits"): self.limits,
        }

    async def show(self, request: Request) -> Response:
        project_id = self._project(request, "show")
        quota = await self._quota(project_id)
        return Response({"quota_set": {"id": project_id, **self._limits(quota, request.version)}})

    async def defaults(self, request: Request) -> Response:
        project_id = self._project(request, "defaults")
        return Response({"quota_set": {"id": project_id, **self._limits(None, request.version)}})

    async def detail(self, request: Request) -> Response:
        project_id = self._project(request, "detail")
        quota = await self._quota(project_id)
        used = {} if quota is None else quota.used
        detailed = {
            name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
            for name, limit in self._limits(quota, request.version).items()
        }
        return Response({"quota_set": {"id": project_id, **detailed}})

    async def update(self, request: Request) -> Response:
        project_id = self._project(request, "update")
        body: dict[str, Any] = request.body["quota_set"]
        if request.query.get("user_id"):
            raise Fault(400, "Quotas of single users are not supported.")
        limits = {name: int(body[name]) for name in RESOURCES if body.get(name) is not None}
        force = str(body.get("force", False)).lower() in ("1", "t", "true", "on", "y", "yes")
        await self._backend.ask(request, SetQuotaLimits(project_id=ProjectId(project_id), limits=limits, force=force))
        return Response({"quota_set": self._limits(await self._quota(project_id), request.version)})

    async def reset(self, request: Request) -> Response:
        project_id = self._project(request, "delete")
        await self._backend.ask(request, ResetQuotaLimits(project_id=ProjectId(project_id)))
        return Response(status=202)

    async def limits(self, request: Request) -> Response:
        """Absolute limits and use (Nova API 2.1, GET /limits); several keys vanish at 2.36, 2.39 and 2.57."""
        project_id = request.query.get("tenant_id") or request.project_id
        if project_id != request.project_id:
            request.require("os_compute_api:limits:other_project")
        quota = await self._quota(project_id)
        limit = self._limits(quota, V(2, 1))
        used = {} if quota is None else quota.used
        absolute = {
            "maxTotalInstances": limit["instances"],
            "maxTotalCores": limit["cores"],
            "maxTotalRAMSize": limit["ram"],
            "maxServerMeta": limit["metadata_items"],
            "maxTotalKeypairs": limit["key_pairs"],
            "maxServerGroups": limit["server_groups"],
            "maxServerGroupMembers": limit["server_group_members"],
            "totalInstancesUsed": used.get(INSTANCES, 0),
            "totalCoresUsed": used.get(CORES, 0),
            "totalRAMUsed": used.get(RAM, 0),
            "totalServerGroupsUsed": 0,
        }
        if request.version < V(2, 36):
            absolute |= {
                "maxSecurityGroups": -1,
                "maxSecurityGroupRules": -1,
                "maxTotalFloatingIps": -1,
                "totalSecurityGroupsUsed": 0,
                "totalFloatingIpsUsed": 0,
            }
        if request.version < V(2, 39):
            absolute["maxImageMeta"] = limit["metadata_items"]
        if request.version < V(2, 57):
            absolute["maxPersonality"] = limit["injected_files"]
            absolute["maxPersonalitySize"] = limit["injected_file_content_bytes"]
        return Response({"limits": {"rate": [], "absolute": absolute}})

    def _project(self, request: Request, operation: str) -> str:
        """The project that the path names.

        Raises:
            Fault: 400, there is no such project; 403, policy.
        """
        project_id = request.path_params["project_id"]
        request.require(f"os_compute_api:os-quota-sets:{operation}", project_id=project_id)
        if not self._identity.project_exists(project_id):
            raise Fault(400, f"Project ID {project_id} is not a valid project.")
        return project_id

    async def _quota(self, project_id: str) -> Quota | None:
        row = await self._backend.views.row("SELECT quota FROM quotas WHERE project_id = ?", (project_id,))
        return None if row is None else from_plain(Quota, orjson.loads(row[0]))

    def _limits(self, quota: Quota | None, version: Version) -> dict[str, int]:
        overrides = {} if quota is None else quota.limits
        shown = {
            name: overrides.get(name, self._defaults[name])
            for name in RESOURCES
            if version < V(2, 57) or name not in INJECTED
        }
        return {**shown, **NETWORK} if version < V(2, 36) else shown
