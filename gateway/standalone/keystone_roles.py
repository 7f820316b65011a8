"""Roles and who has which (Keystone API v3). A role taken away voids the tokens that were given with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.standalone.accounts import DOMAIN_ID, DOMAIN_NAME, Accounts, User, with_implied
from commands.neighbours.standalone.identity import StandaloneIdentity
from gateway.standalone.account_changes import change, project_of, user_of, with_user
from gateway.standalone.catalog import stable_id
from gateway.standalone.exchange import Refusal, answer, caller, no_content
from gateway.standalone.keystone_listing import listing, require_admin, require_reader
from gateway.standalone.links import Links

Roles = tuple[str, ...]


class RoleRoutes:
    def __init__(self, identity: StandaloneIdentity, links: Links) -> None:
        self._identity = identity
        self._links = links

    def routes(self) -> list[Route]:
        project, system = "/v3/projects/{project}/users/{user}/roles", "/v3/system/users/{user}/roles"
        return [
            Route("/v3/roles", self.list),
            Route("/v3/roles/{role}", self.show),
            Route("/v3/role_assignments", self.assignments),
            Route("/v3/groups", self.groups),
            *(
                route
                for path in (project, system)
                for route in (
                    Route(path, self.held),
                    Route(path + "/{role}", self.holds, methods=["GET"]),
                    Route(path + "/{role}", self.grant, methods=["PUT"]),
                    Route(path + "/{role}", self.take_away, methods=["DELETE"]),
                )
            ),
        ]

    async def list(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        rows = [self._row(request, role) for role in self._identity.accounts.roles]
        return listing(request, self._links, "roles", rows)

    async def show(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        return answer({"role": self._row(request, _role(request, self._identity.accounts))})

    async def groups(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        return listing(request, self._links, "groups", [])

    async def held(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        rows = [self._row(request, role) for role in _held(request, self._identity.accounts)]
        return listing(request, self._links, "roles", rows)

    async def holds(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        accounts = self._identity.accounts
        if _role(request, accounts) not in _held(request, accounts):
            raise Refusal(404, "Could not find role assignment.")
        return no_content()

    async def grant(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))

        def add(accounts: Accounts) -> Accounts:
            role = _role(request, accounts)
            return _with_roles(request, accounts, lambda roles: tuple(dict.fromkeys((*roles, role))))

        await change(self._identity, add)
        return no_content()

    async def take_away(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))

        def remove(accounts: Accounts) -> Accounts:
            role = _role(request, accounts)
            if role not in _held(request, accounts):
                raise Refusal(404, "Could not find role assignment.")
            return _with_roles(request, accounts, lambda roles: tuple(one for one in roles if one != role))

        await change(self._identity, remove)
        return no_content()

    async def assignments(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        query, accounts = request.query_params, self._identity.accounts
        named, effective = "include_names" in query, "effective" in query
        role_ids = {stable_id("role", role): role for role in accounts.roles}
        rows = [
            _assignment(accounts, user, project_id, role, named)
            for user, project_id, assigned in _all_held(accounts)
            for role in (with_implied(assigned) if effective else assigned)
            if query.get("user.id", user.id) == user.id
            and query.get("scope.project.id", project_id) == project_id
            and ("scope.system" not in query or project_id is None)
            and ("scope.domain.id" not in query and "group.id" not in query)
            and ("role.id" not in query or role_ids.get(query["role.id"]) == role)
        ]
        return listing(request, self._links, "role_assignments", rows)

    def _row(self, request: Request, role: str) -> dict[str, Any]:
        role_id = stable_id("role", role)
        link = f"{self._links.service(request)}/v3/roles/{role_id}"
        row: dict[str, Any] = {
            "id": role_id,
            "name": role,
            "domain_id": None,
            "description": None,
            "options": {},
        }
        return row | {"links": {"self": link}}


def _role(request: Request, accounts: Accounts) -> str:
    wanted = request.path_params["role"]
    for role in accounts.roles:
        if stable_id("role", role) == wanted:
            return role
    raise Refusal(404, f"Could not find role: {wanted}.")


def _held(request: Request, accounts: Accounts) -> Roles:
    user = user_of(accounts, request.path_params["user"])
    if (project_id := request.path_params.get("project")) is None:
        return user.system_roles
    return user.roles.get(project_of(accounts, project_id).id, ())


def _with_roles(request: Request, accounts: Accounts, alter: Callable[[Roles], Roles]) -> Accounts:
    user, after = user_of(accounts, request.path_params["user"]), alter(_held(request, accounts))
    if (project_id := request.path_params.get("project")) is None:
        return with_user(accounts, replace(user, system_roles=after))
    others = {key: roles for key, roles in user.roles.items() if key != project_id}
    return with_user(accounts, replace(user, roles=others | ({project_id: after} if after else {})))


def _all_held(accounts: Accounts) -> Iterator[tuple[User, str | None, Roles]]:
    for user in accounts.users.values():
        for project_id, roles in user.roles.items():
            yield user, project_id, roles
        yield user, None, user.system_roles


def _assignment(accounts: Accounts, user: User, project_id: str | None, role: str, named: bool) -> dict[str, Any]:
    domain: dict[str, Any] = {"domain": {"id": DOMAIN_ID, "name": DOMAIN_NAME}} if named else {}
    row: dict[str, Any] = {
        "role": {"id": stable_id("role", role)} | ({"name": role} if named else {}),
        "user": {"id": user.id} | ({"name": user.name} | domain if named else {}),
        "links": {},
    }
    if project_id is None:
        return row | {"scope": {"system": {"all": True}}}
    name = {"name": accounts.projects[project_id].name} | domain if named else {}
    return row | {"scope": {"project": {"id": project_id} | name}}
