"""Users (Keystone API v3). All may read themselves and change their own password; the rest is admins'."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.standalone.accounts import DOMAIN_ID, User
from commands.neighbours.standalone.identity import LoginRefused, StandaloneIdentity
from gateway.standalone.account_changes import (
    LONGEST_PASSWORD,
    altered_user,
    change,
    off_the_loop,
    user_of,
    with_user,
    without_user,
)
from gateway.standalone.exchange import (
    Refusal,
    answer,
    caller,
    json_object,
    no_content,
    text,
    unauthorized,
)
from gateway.standalone.keystone_listing import listing, require_admin, require_reader
from gateway.standalone.keystone_projects import project_row
from gateway.standalone.links import Links


class UserRoutes:
    def __init__(self, identity: StandaloneIdentity, links: Links) -> None:
        self._identity = identity
        self._links = links

    def routes(self) -> list[Route]:
        return [
            Route("/v3/users", self.list, methods=["GET"]),
            Route("/v3/users", self.create, methods=["POST"]),
            Route("/v3/users/{id}", self.show, methods=["GET"]),
            Route("/v3/users/{id}", self.update, methods=["PATCH"]),
            Route("/v3/users/{id}", self.delete, methods=["DELETE"]),
            Route("/v3/users/{id}/password", self.change_password, methods=["POST"]),
            Route("/v3/users/{id}/projects", self.projects),
            Route("/v3/users/{id}/groups", self.groups),
        ]

    async def list(self, request: Request) -> Response:
        require_reader(caller(request, self._identity))
        rows = [self._row(request, one) for one in self._identity.accounts.users.values()]
        return listing(request, self._links, "users", rows)

    async def show(self, request: Request) -> Response:
        return answer({"user": self._row(request, self._itself_or_read(request))})

    async def create(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        body = await json_object(request, "user")
        if not text(body, "password", longest=LONGEST_PASSWORD):
            raise Refusal(400, "Expecting to find password in user.")
        new = User(id=uuid4().hex, name="", password_hash="")
        user = await off_the_loop(lambda: altered_user(new, body))
        await change(self._identity, lambda accounts: with_user(accounts, user))
        return answer({"user": self._row(request, user)}, 201)

    async def update(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        body, user_id = await json_object(request, "user"), request.path_params["id"]
        return answer({"user": self._row(request, await self._alter(user_id, body))})

    async def change_password(self, request: Request) -> Response:
        """Needs the password there was, and no token: it may have been the reason."""
        body, user_id = await json_object(request, "user"), request.path_params["id"]
        before = text(body, "original_password", longest=LONGEST_PASSWORD) or ""
        after = text(body, "password", longest=LONGEST_PASSWORD)
        if not after:
            raise Refusal(400, "Expecting to find password in user.")
        user = self._identity.accounts.users.get(user_id)
        try:
            await off_the_loop(lambda: self._identity.log_in(user, before))
        except LoginRefused:
            raise unauthorized() from None
        await self._alter(user_id, {"password": after})
        return no_content()

    async def delete(self, request: Request) -> Response:
        require_admin(caller(request, self._identity))
        user_id = request.path_params["id"]
        await change(self._identity, lambda accounts: without_user(accounts, user_id))
        return no_content()

    async def projects(self, request: Request) -> Response:
        user, here = self._itself_or_read(request), self._links.service(request)
        projects = self._identity.accounts.projects
        rows = [project_row(here, projects[one]) for one in user.roles if one in projects]
        return listing(request, self._links, "projects", rows)

    async def groups(self, request: Request) -> Response:
        self._itself_or_read(request)
        return listing(request, self._links, "groups", [])

    async def _alter(self, user_id: str, body: dict[str, Any]) -> User:
        accounts = await change(
            self._identity,
            lambda before: with_user(before, altered_user(user_of(before, user_id), body)),
        )
        return user_of(accounts, user_id)

    def _itself_or_read(self, request: Request) -> User:
        credentials, user_id = caller(request, self._identity), request.path_params["id"]
        if user_id != credentials.user_id:
            require_reader(credentials)
        return user_of(self._identity.accounts, user_id)

    def _row(self, request: Request, user: User) -> dict[str, Any]:
        return {
            "id": user.id,
            "name": user.name,
            "domain_id": DOMAIN_ID,
            "description": user.description,
            "email": user.email,
            "enabled": user.enabled,
            "default_project_id": user.default_project_id,
            "password_expires_at": None,
            "options": {},
            "links": {"self": f"{self._links.service(request)}/v3/users/{user.id}"},
        }
