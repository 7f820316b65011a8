"""Logging in, and what a token says (Keystone API v3, "Authentication and token management").

Refusals are all alike, and take the same time whether a user exists or not.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.accounts import DOMAIN_ID, DOMAIN_NAME, Accounts, User
from commands.neighbours.standalone.identity import LoginRefused, Scope, StandaloneIdentity
from commands.neighbours.standalone.tokens import Claims
from gateway.standalone.account_changes import LONGEST_PASSWORD, off_the_loop
from gateway.standalone.catalog import catalog, stable_id
from gateway.standalone.exchange import (
    Refusal,
    answer,
    caller,
    json_object,
    no_content,
    part,
    text,
    unauthorized,
)
from gateway.standalone.keystone_listing import NOT_AUTHORIZED, listing
from gateway.standalone.links import Links

DOMAIN = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


class TokenRoutes:
    def __init__(self, identity: StandaloneIdentity, links: Links) -> None:
        self._identity = identity
        self._links = links

    def routes(self) -> list[Route]:
        return [
            Route("/v3/auth/tokens", self.issue, methods=["POST"]),
            Route("/v3/auth/tokens", self.show, methods=["GET"]),
            Route("/v3/auth/tokens", self.revoke, methods=["DELETE"]),
            Route("/v3/auth/catalog", self.catalog),
            Route("/v3/auth/projects", self.projects),
            Route("/v3/auth/domains", self.domains),
            Route("/v3/auth/system", self.system),
        ]

    async def issue(self, request: Request) -> Response:
        auth = await json_object(request, "auth")
        methods = part(auth, "identity").get("methods")
        if not isinstance(methods, list) or not methods:
            raise Refusal(400, "Expecting to find a list of methods in auth.identity.")
        if not all(method in ("password", "token") for method in methods):
            raise unauthorized()
        accounts = self._identity.accounts
        try:
            user, parent = await self._who(auth, set(methods), accounts)
            scope = _scope(auth, user, accounts)
            used = tuple(sorted({*methods, *(parent.methods if parent else ())}))
            token, claims = self._identity.issue(user, scope, used, parent)
        except LoginRefused:
            raise unauthorized() from None
        return self._token_answer(request, token, claims, 201)

    async def show(self, request: Request) -> Response:
        token, claims = self._subject(request, readers=("admin", "service"))
        return self._token_answer(request, token, claims, 200)

    async def revoke(self, request: Request) -> Response:
        token, _ = self._subject(request, readers=("admin",))
        await off_the_loop(lambda: self._identity.revoke(token))
        return no_content()

    async def catalog(self, request: Request) -> Response:
        caller(request, self._identity)
        return answer({"catalog": catalog(self._links.base(request)), "links": {}})

    async def projects(self, request: Request) -> Response:
        user = self._identity.accounts.users[caller(request, self._identity).user_id]
        projects = [self._identity.accounts.projects[one] for one, roles in user.roles.items() if roles]
        rows = [
            {"id": one.id, "name": one.name, "domain_id": DOMAIN_ID, "enabled": one.enabled, "links": {}}
            for one in projects
            if one.enabled
        ]
        return listing(request, self._links, "projects", rows)

    async def domains(self, request: Request) -> Response:
        caller(request, self._identity)
        return answer({"domains": [], "links": {}})  # nobody has a role on the domain

    async def system(self, request: Request) -> Response:
        user = self._identity.accounts.users[caller(request, self._identity).user_id]
        return answer({"system": [{"all": True}] if user.system_roles else [], "links": {}})

    async def _who(self, auth: dict[str, Any], methods: set[str], accounts: Accounts) -> tuple[User, Claims | None]:
        """Raises:
        LoginRefused, Refusal
        """
        user: User | None = None
        parent: Claims | None = None
        if "token" in methods:
            token = text(part(auth, "identity", "token"), "id", longest=LONGEST_PASSWORD) or ""
            parent = self._identity.claims(token)
            if parent is None:
                raise LoginRefused
            user = accounts.users.get(parent.user_id)
        if "password" in methods:
            asked = part(auth, "identity", "password", "user")
            password = text(asked, "password", longest=LONGEST_PASSWORD)
            if password is None:
                raise Refusal(400, "Expecting to find password in auth.identity.password.user.")
            named = _user(asked, accounts)
            logged_in = await off_the_loop(lambda: self._identity.log_in(named, password))
            if user is not None and user.id != logged_in.id:
                raise LoginRefused
            user = logged_in
        if user is None:
            raise LoginRefused
        return user, parent

    def _subject(self, request: Request, readers: tuple[str, ...]) -> tuple[str, Claims]:
        """The token asked about: the caller's own user's, or anybody's for `readers`."""
        credentials = caller(request, self._identity)
        token = request.headers.get("x-subject-token", "")
        claims = self._identity.claims(token) if token else None
        allowed = bool(set(readers) & set(credentials.roles))
        if claims is None:
            raise Refusal(404, "Could not find token.")
        if claims.user_id != credentials.user_id and not allowed:
            raise Refusal(403, NOT_AUTHORIZED)
        return token, claims

    def _token_answer(self, request: Request, token: str, claims: Claims, status: int) -> Response:
        credentials = self._identity.validate(token)
        if credentials is None:
            raise unauthorized()  # something changed in this very moment
        body = token_body(claims, credentials)
        if (claims.project_id or claims.system) and "nocatalog" not in request.query_params:
            body["catalog"] = catalog(self._links.base(request))
        return answer({"token": body}, status, {"X-Subject-Token": token, "Vary": "X-Auth-Token"})


def token_body(claims: Claims, credentials: Credentials) -> dict[str, Any]:
    body: dict[str, Any] = {
        "methods": claims.methods,
        "user": {
            "id": credentials.user_id,
            "name": credentials.user_name,
            "domain": DOMAIN,
            "password_expires_at": None,
        },
        "audit_ids": claims.audit_ids,
        "issued_at": _time(claims.issued_at),
        "expires_at": _time(claims.expires_at),
    }
    if credentials.project_id:
        body["project"] = {
            "id": credentials.project_id,
            "name": credentials.project_name,
            "domain": DOMAIN,
        }
        body["is_domain"] = False
    if credentials.system_scope:
        body["system"] = {"all": True}
    if credentials.roles:
        body["roles"] = [{"id": stable_id("role", role), "name": role} for role in credentials.roles]
    return body


def _user(asked: dict[str, Any], accounts: Accounts) -> User | None:
    """By id, or by name and domain; None is checked like a user, and refused."""
    if (user_id := text(asked, "id")) is not None:
        return accounts.users.get(user_id)
    name = text(asked, "name")
    if name is None:
        raise Refusal(400, "Expecting to find id or name in auth.identity.password.user.")
    return accounts.users_by_name.get(name) if _our_domain(part(asked, "domain")) else None


def _scope(auth: dict[str, Any], user: User, accounts: Accounts) -> Scope:
    """Raises:
    LoginRefused: it names nothing that is here.
    """
    if auth.get("scope") == "unscoped":
        return Scope()
    if auth.get("scope") is None:
        default = user.default_project_id
        return Scope(project_id=default if default in user.roles else None)
    scope = part(auth, "scope")
    if "system" in scope:
        if part(scope, "system").get("all") is not True:
            raise Refusal(400, "Expecting to find all: true in auth.scope.system.")
        return Scope(system=True)
    if "unscoped" in scope:
        return Scope()
    if "project" not in scope:
        raise LoginRefused  # a domain: nobody has a role on it
    asked = part(scope, "project")
    if (project_id := text(asked, "id")) is not None:
        return Scope(project_id=project_id)
    name = text(asked, "name")
    if name is None:
        raise Refusal(400, "Expecting to find id or name in auth.scope.project.")
    project = accounts.projects_by_name.get(name) if _our_domain(part(asked, "domain")) else None
    if project is None:
        raise LoginRefused
    return Scope(project_id=project.id)


def _our_domain(asked: dict[str, Any]) -> bool:
    domain_id, name = text(asked, "id"), text(asked, "name")
    return domain_id == DOMAIN_ID or (domain_id is None and (name or "").lower() == DOMAIN_NAME.lower())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
