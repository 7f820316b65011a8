"""What may change of a flavor: its extra specs, and which projects may use a private one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from commands.flavor import DeleteExtraSpec, GrantFlavorAccess, RevokeFlavorAccess, SetExtraSpecs
from commands.neighbours.identity import Identity
from domain.errors import ExtraSpecNotFound
from domain.identifiers import ProjectId
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.flavors import EXTRA_SPECS_COLUMN, find_flavor
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.schemas.extra_specs import wrong_with


class FlavorExtras:
    def __init__(self, backend: Backend, identity: Identity) -> None:
        self._backend = backend
        self._identity = identity

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        specs, action = "/flavors/{flavor_id}/os-extra_specs", "/flavors/{flavor_id}/action"
        return {
            ("GET", specs): self.extra_specs,
            ("POST", specs): self.add_extra_specs,
            ("GET", f"{specs}/{{key}}"): self.extra_spec,
            ("PUT", f"{specs}/{{key}}"): self.set_extra_spec,
            ("DELETE", f"{specs}/{{key}}"): self.delete_extra_spec,
            ("GET", "/flavors/{flavor_id}/os-flavor-access"): self.access,
            ("POST", action, "addTenantAccess"): self.grant,
            ("POST", action, "removeTenantAccess"): self.revoke,
        }

    async def extra_specs(self, request: Request) -> Response:
        return Response({"extra_specs": await self._specs(request)})

    async def extra_spec(self, request: Request) -> Response:
        specs, key = await self._specs(request), request.path_params["key"]
        if key not in specs:
            raise ExtraSpecNotFound(request.path_params["flavor_id"], key)
        return Response({key: specs[key]})

    async def add_extra_specs(self, request: Request) -> Response:
        await self._set(request, _checked(request, request.body["extra_specs"]))
        return Response(request.body)

    async def set_extra_spec(self, request: Request) -> Response:
        specs = _checked(request, request.body)
        if request.path_params["key"] not in specs:
            raise Fault(400, "Request body and URI mismatch")
        await self._set(request, specs)
        return Response(request.body)

    async def delete_extra_spec(self, request: Request) -> Response:
        params = request.path_params
        await self._backend.ask(request, DeleteExtraSpec(flavor_id=params["flavor_id"], key=params["key"]))
        return Response()

    async def access(self, request: Request) -> Response:
        """The projects that may use a private flavor.

        Raises:
            FlavorNotFound, Fault: 404, also for a public one, which all may use.
        """
        row = await find_flavor(self._backend, request, request.path_params["flavor_id"])
        if row[8]:
            raise Fault(404, "Access list not available for public flavors.")
        return await self._access(row[0])

    async def grant(self, request: Request) -> Response:
        project_id = request.body["addTenantAccess"]["tenant"]
        if not self._identity.project_exists(project_id):
            raise Fault(400, f"Project ID {project_id} is not a valid project.")
        flavor_id = request.path_params["flavor_id"]
        command = GrantFlavorAccess(
            flavor_id=flavor_id, project_id=ProjectId(project_id), only_private=request.version >= V(2, 7)
        )
        await self._backend.ask(request, command)
        return await self._access(flavor_id)

    async def revoke(self, request: Request) -> Response:
        """Of a project that is gone too."""
        project_id, flavor_id = request.body["removeTenantAccess"]["tenant"], request.path_params["flavor_id"]
        await self._backend.ask(request, RevokeFlavorAccess(flavor_id=flavor_id, project_id=ProjectId(project_id)))
        return await self._access(flavor_id)

    async def _specs(self, request: Request) -> dict[str, str]:
        row = await find_flavor(self._backend, request, request.path_params["flavor_id"])
        specs: dict[str, str] = orjson.loads(row[EXTRA_SPECS_COLUMN])
        return specs

    async def _set(self, request: Request, specs: Mapping[str, str]) -> None:
        flavor_id = request.path_params["flavor_id"]
        await self._backend.ask(request, SetExtraSpecs(flavor_id=flavor_id, extra_specs=specs))

    async def _access(self, flavor_id: str) -> Response:
        rows = await self._backend.views.rows(
            "SELECT project_id FROM flavor_access WHERE flavor_id = ? ORDER BY project_id", (flavor_id,)
        )
        return Response({"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project} for (project,) in rows]})


def _checked(request: Request, specs: Mapping[str, Any]) -> dict[str, str]:
    """As text.

    Raises:
        Fault: 400, from 2.86: a name that Nova does not know, or that may not have that value.
    """
    checked: dict[str, str] = {}
    for name, value in specs.items():
        text = checked[name] = str(value)
        wrong = wrong_with(name, text) if request.version >= V(2, 86) else None
        if wrong is not None:
            raise Fault(400, wrong)
    return checked
