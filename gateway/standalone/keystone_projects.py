"""Projects and the one domain (Keystone API v3). All may read their token's project; the rest is admins'."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.standalone.accounts import DOMAIN_ID, DOMAIN_NAME, Project
from commands.neighbours.standalone.identity import StandaloneIdentity
from gateway.standalone.account_changes import (
    altered_project,
    change,
    project_of,
    with_project,
    without_project,
)
from gateway.standalone.exchange import Refusal, answer, caller, json_object, no_content
from gateway.standalone.keystone_listing import listing, require_admin, require_reader
from gateway.standalone.links import Links


class ProjectRoutes:
    def __init__(self, identity: StandaloneIdentity, links: Links) -> None:
        self._identity = identity
        self._links = links

    def routes(self) -> list[Route]:
        return [
            Route("/v3/domains", self.domains),
            Route("/v3/domains/{id}", self.domain),
            Route("/v3/projects", self.list, methods=["GET"]),
            Route("/v3/projects", self.create, methods=["POST"]),
            Route("/v3/projects/{id}", self.show, methods=["GET"]),
            Route("/v3/projects/{id}", self.update, methods=["PATCH"]),
            Route("/v3/projects/{id}", self.delete, methods=["DELETE"]),
        ]

    async def domains(self, request: Request) -> Response:
        caller(request, self._identity)
        return listing(request, self._links, "domains", [self._domain_row(request)])

    async def domain(self, request: Request) -> Response:
        caller(request, self._identity)
        if request.path_params["id"] != DOMAIN_ID:
            raise Refusal(404, f"Could not find domain: {request.path_params['id']}.")
        return answer({"domain": self._domain_row(request)})

    async def list(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        here = self._links.service(request)
        rows = [project_row(here, one) for one in self._identity.accounts.projects.values()]
        return listing(request, self._links, "projects", rows)

    async def show(self, request: Request) -> Response:
        credentials, project_id = caller(request, self._identity), request.path_params["id"]
        if project_id != credentials.project_id:
            require_reader(credentials)
        return self._answer(request, project_of(self._identity.accounts, project_id))

    async def create(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        project = altered_project(Project(id=uuid4().hex, name=""), await json_object(request, "project"))
        await change(self._identity, lambda accounts: with_project(accounts, project))
        return self._answer(request, project, 201)

    async def update(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        body, project_id = await json_object(request, "project"), request.path_params["id"]
        accounts = await change(
            self._identity,
            lambda before: with_project(before, altered_project(project_of(before, project_id), body)),
        )
        return self._answer(request, project_of(accounts, project_id))

    async def delete(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        project_id = request.path_params["id"]
        await change(self._identity, lambda accounts: without_project(accounts, project_id))
        return no_content()

    def _answer(self, request: Request, project: Project, status: int = 200) -> Response:
        return answer({"project": project_row(self._links.service(request), project)}, status)

    def _domain_row(self, request: Request) -> dict[str, Any]:
        return {
            "id": DOMAIN_ID,
            "name": DOMAIN_NAME,
            "description": "",
            "enabled": True,
            "tags": [],
            "options": {},
            "links": {"self": f"{self._links.service(request)}/v3/domains/{DOMAIN_ID}"},
        }


def project_row(service: str, project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "domain_id": DOMAIN_ID,
        "parent_id": DOMAIN_ID,
        "is_domain": False,
        "description": project.description,
        "enabled": project.enabled,
        "tags": [],
        "options": {},
        "links": {"self": f"{service}/v3/projects/{project.id}"},
    }
