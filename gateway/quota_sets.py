"""Quotas: what a project, one of its users, or a quota class may hold, and what is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commands.neighbours.identity import Identity
from commands.quota import DEFAULT_CLASS, ResetQuotaLimits, SetQuotaClassLimits, SetQuotaLimits
from domain.identifiers import ProjectId, UserId
from domain.quota import COUNTED, NETWORK_LIMITS, Quota
from domain.serialization import from_plain
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import Version
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.schemas.quotas import OF_A_CLASS, OF_A_PROJECT

LONGEST_CLASS = 255


class QuotaSets:
    def __init__(self, backend: Backend, identity: Identity, defaults: Mapping[str, int]) -> None:
        self._backend = backend
        self._identity = identity
        self._defaults = defaults

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        project, quota_class = "/os-quota-sets/{project_id}", "/os-quota-class-sets/{class_name}"
        return {
            ("GET", project): self.show,
            ("GET", f"{project}/defaults"): self.defaults,
            ("GET", f"{project}/detail"): self.detail,
            ("PUT", project): self.update,
            ("DELETE", project): self.reset,
            ("GET", quota_class): self.show_class,
            ("PUT", quota_class): self.update_class,
        }

    async def show(self, request: Request) -> Response:
        project_id = self._project(request)
        return Response({"quota_set": {"id": project_id, **await self._limits(request, project_id)}})

    async def defaults(self, request: Request) -> Response:
        project_id = self._project(request)
        limits = await limits_of_class(self._backend, DEFAULT_CLASS, self._defaults)
        shown = {name: limits[name] for name in _names(request.version)}
        return Response({"quota_set": {"id": project_id, **shown}})

    async def detail(self, request: Request) -> Response:
        project_id, user_id = self._project(request), _user(request)
        quota = await quota_of(self._backend, project_id)
        detailed = {
            name: {
                "limit": limit,
                "in_use": quota.in_use(name, None if name not in COUNTED else user_id),
                "reserved": 0,
            }
            for name, limit in (await self._limits(request, project_id)).items()
        }
        return Response({"quota_set": {"id": project_id, **detailed}})

    async def update(self, request: Request) -> Response:
        project_id = self._project(request)
        body: dict[str, Any] = request.body["quota_set"]
        limits = {name: int(value) for name, value in body.items() if name != "force"}
        force = str(body.get("force", False)).lower() in ("1", "t", "true", "on", "y", "yes")
        command = SetQuotaLimits(project_id=ProjectId(project_id), limits=limits, user_id=_user(request), force=force)
        await self._backend.ask(request, command)
        return Response({"quota_set": await self._limits(request, project_id)})

    async def reset(self, request: Request) -> Response:
        """Of a project that is gone too."""
        project_id = ProjectId(request.path_params["project_id"])
        await self._backend.ask(request, ResetQuotaLimits(project_id=project_id, user_id=_user(request)))
        return Response(status=202)

    async def show_class(self, request: Request) -> Response:
        name = request.path_params["class_name"]
        return Response({"quota_class_set": {"id": name, **await self._class_limits(request, name)}})

    async def update_class(self, request: Request) -> Response:
        """Only the class "default" has effect: its limits are those of projects that have none of their own."""
        name = request.path_params["class_name"]
        if len(name) > LONGEST_CLASS:
            raise Fault(400, f"quota_class_name has {len(name)} characters, more than {LONGEST_CLASS}.")
        limits = {resource: int(limit) for resource, limit in request.body["quota_class_set"].items()}
        await self._backend.ask(request, SetQuotaClassLimits(class_name=name, limits=limits))
        return Response({"quota_class_set": await self._class_limits(request, name)})

    def _project(self, request: Request) -> str:
        """The project that the path names.

        Raises:
            Fault: 400, there is no such project.
        """
        project_id = request.path_params["project_id"]
        if not self._identity.project_exists(project_id):
            raise Fault(400, f"Project ID {project_id} is not a valid project.")
        return project_id

    async def _limits(self, request: Request, project_id: str) -> dict[str, int]:
        """Of the project, or of the user within it that the query names."""
        limits = await limits_of_class(self._backend, DEFAULT_CLASS, self._defaults)
        quota, user_id = await quota_of(self._backend, project_id), _user(request)
        return {name: quota.limit(name, limits, user_id) for name in _names(request.version)}

    async def _class_limits(self, request: Request, name: str) -> dict[str, int]:
        limits = await limits_of_class(self._backend, name, self._defaults)
        return {resource: limits[resource] for resource in OF_A_CLASS.at(request.version) or ()}


async def quota_of(backend: Backend, project_id: str) -> Quota:
    row = await backend.views.row("SELECT quota FROM quotas WHERE project_id = ?", (project_id,))
    return Quota(project_id=ProjectId(project_id)) if row is None else from_plain(Quota, orjson.loads(row[0]))


async def limits_of_class(backend: Backend, name: str, configured: Mapping[str, int]) -> dict[str, int]:
    """What a quota class says, and what is configured where it says nothing."""
    rows = await backend.views.rows(
        "SELECT resource, quota_limit FROM quota_class_limits WHERE class_name = ?", (name,)
    )
    return {**NETWORK_LIMITS, **configured, **dict(rows)}


def _names(version: Version) -> tuple[str, ...]:
    return OF_A_PROJECT.at(version) or ()


def _user(request: Request) -> UserId | None:
    user_id = request.query.get("user_id")
    return UserId(user_id) if user_id else None
