"""The Compute API's shell for tests: tokens that name their roles, and a client of an application built from handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from commands.neighbours.identity import Credentials
from gateway.app import Shell, compute_app
from gateway.faults import Fault
from gateway.policy import Policy
from gateway.request import Handler, HandlerKey
from gateway.standalone.links import Links

PROJECT = "11111111111111111111111111111111"
OTHER_PROJECT = "22222222222222222222222222222222"
BASE = "http://cloud.example:8774"

NOBODY, READER, MEMBER, ADMIN = (), ("reader",), ("member", "reader"), ("admin", "manager", "member", "reader")


def credentials(
    roles: tuple[str, ...] = MEMBER,
    *,
    project_id: str | None = PROJECT,
    user_id: str = "user",
    system_scope: bool = False,
) -> Credentials:
    return Credentials(
        user_id=user_id,
        user_name=user_id,
        user_domain_id="default",
        user_domain_name="Default",
        project_id=project_id,
        project_name=project_id and "project",
        project_domain_id=project_id and "default",
        project_domain_name=project_id and "Default",
        roles=roles,
        system_scope=system_scope,
        is_admin_project=True,
        expires_at=datetime(2100, 1, 1, tzinfo=UTC),
        audit_id="audit",
    )


class Tokens:
    """An identity service with five tokens; each is the name of the roles it has, but a member's of another project."""

    known: Mapping[str, Credentials] = {
        "nobody": credentials(NOBODY),
        "reader": credentials(READER),
        "member": credentials(MEMBER),
        "admin": credentials(ADMIN),
        "stranger": credentials(MEMBER, project_id=OTHER_PROJECT, user_id="stranger"),
    }

    def validate(self, token: str) -> Credentials | None:
        return self.known.get(token)

    def project_exists(self, project_id: str) -> bool:
        return project_id in (PROJECT, OTHER_PROJECT)


class Client:
    """Calls an application mounted at /compute, and keeps what it wrote to its access log."""

    def __init__(
        self, handlers: Mapping[HandlerKey, Handler], policy: Policy, *, max_body_bytes: int = 114_688
    ) -> None:
        self.log: list[dict[str, Any]] = []
        shell = Shell(
            identity=Tokens(),
            policy=policy,
            links=Links(),
            max_body_bytes=max_body_bytes,
            access_log=self.log.append,
        )
        self.app = compute_app(shell, handlers)

    def __call__(
        self,
        method: str,
        path: str,
        *,
        token: str | None = "member",
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if token is not None:
            sent["X-Auth-Token"] = token
        if version is not None:
            sent["OpenStack-API-Version"] = f"compute {version}"

        async def mounted(scope: Any, receive: Any, send: Any) -> None:
            await self.app({**scope, "root_path": "/compute", "app_root_path": ""}, receive, send)

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(mounted)
            async with httpx.AsyncClient(transport=transport, base_url=f"{BASE}/compute") as client:
                return await client.request(method, path, headers=sent, **more)

        return asyncio.run(call())


def refused(call: Callable[[], object]) -> Fault | None:
    """The fault that a call ends in; None when it does not."""
    found = None
    try:
        call()
    except Fault as raised:
        found = raised
    assert found is None or len(found.body("")[1]) < 4096
    return found


def fault(response: httpx.Response) -> tuple[int, str, str]:
    """Status, fault key and message of a fault, whose body is checked on the way."""
    assert len(response.content) < 4096
    ((key, inner),) = response.json().items()
    assert inner["code"] == response.status_code
    return response.status_code, key, inner["message"]
