"""The standalone Keystone v3 as its clients call it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

from commands.neighbours.standalone.identity import Scope, StandaloneIdentity
from commands.neighbours.standalone.passwords import hash_password
from gateway.standalone.exchange import MAX_JSON_BYTES
from gateway.standalone.keystone import keystone
from gateway.standalone.links import Links

BASE = "http://cloud.example:8774"
UNAUTHORIZED = {
    "error": {
        "code": 401,
        "message": "The request you have made requires authentication.",
        "title": "Unauthorized",
    }
}
Call = Callable[..., httpx.Response]


def caller_of(app: Starlette, base: str = BASE) -> Call:
    async def send(method: str, path: str, **more: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
            return await client.request(method, path, **more)

    return lambda *given, **more: asyncio.run(send(*given, **more))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.fixture(scope="module")
def identity(directory: Path) -> StandaloneIdentity:
    made = StandaloneIdentity(directory, auth_url=f"{BASE}/identity/v3")
    known = hash_password("right")
    made.change_accounts(
        lambda accounts: replace(
            accounts,
            users={key: replace(one, password_hash=known) for key, one in accounts.users.items()},
        )
    )
    return made


@pytest.fixture(scope="module")
def call(identity: StandaloneIdentity) -> Call:
    return caller_of(Starlette(routes=[Mount("/identity", keystone(identity, Links()))]))


def token_of(identity: StandaloneIdentity, name: str, *, system: bool = False) -> dict[str, str]:
    user, project = identity.accounts.users_by_name[name], identity.accounts.projects_by_name[name]
    scope = Scope(system=True) if system else Scope(project_id=project.id)
    return {"X-Auth-Token": identity.issue(user, scope, ("password",))[0]}


@pytest.fixture
def admin(identity: StandaloneIdentity) -> dict[str, str]:
    return token_of(identity, "admin")


@pytest.fixture
def demo(identity: StandaloneIdentity) -> dict[str, str]:
    return token_of(identity, "demo")


def login(name: str, password: str, scope: object = None) -> dict[str, Any]:
    user = {"name": name, "domain": {"name": "Default"}, "password": password}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": user}}}
    return {"auth": auth | ({"scope": scope} if scope else {})}


def to_project(name: str) -> dict[str, Any]:
    return {"project": {"name": name, "domain": {"id": "default"}}}


# versions and logging in


def test_an_unversioned_client_is_shown_a_list_and_a_versioned_one_the_document(call: Call) -> None:
    listed, shown = call("GET", "/identity/"), call("GET", "/identity/v3")
    assert (listed.status_code, shown.status_code) == (300, 200)
    assert listed.json()["versions"]["values"] == [shown.json()["version"]]
    assert shown.json()["version"]["links"] == [{"rel": "self", "href": f"{BASE}/identity/v3/"}]


def test_a_login_answers_a_token_and_the_catalog_at_the_address_that_was_called(
    call: Call, identity: StandaloneIdentity
) -> None:
    answer = call("POST", "/identity/v3/auth/tokens", json=login("demo", "right", to_project("demo")))
    assert answer.status_code == 201
    token = answer.json()["token"]
    assert token["methods"] == ["password"]
    assert token["project"]["name"] == "demo"
    assert token["user"]["domain"]["name"] == "Default"
    assert {role["name"] for role in token["roles"]} == {"member", "reader"}
    urls = {one["type"]: {at["url"] for at in one["endpoints"]} for one in token["catalog"]}
    assert urls == {
        "identity": {f"{BASE}/identity"},
        "compute": {f"{BASE}/compute/v2.1"},
        "image": {f"{BASE}/image"},
        "network": {f"{BASE}/network"},
    }
    assert identity.validate(answer.headers["X-Subject-Token"])


def test_every_failed_login_is_refused_in_the_same_words(call: Call) -> None:
    refused = [
        login("demo", "wrong"),
        login("nobody", "right"),
        login("demo", "right", to_project("admin")),
        login("demo", "right", to_project("nowhere")),
        login("demo", "right", {"system": {"all": True}}),
        login("demo", "right", {"domain": {"id": "default"}}),
        {"auth": {"identity": {"methods": ["totp"]}}},
        {"auth": {"identity": {"methods": ["token"], "token": {"id": "nonsense"}}}},
    ]
    for body in refused:
        answer = call("POST", "/identity/v3/auth/tokens", json=body)
        assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)


def test_without_a_scope_a_token_names_no_project_and_lists_those_it_may_be_exchanged_for(call: Call) -> None:
    unscoped = call("POST", "/identity/v3/auth/tokens", json=login("admin", "right"))
    assert "project" not in unscoped.json()["token"]
    assert "catalog" not in unscoped.json()["token"]
    token = unscoped.headers["X-Subject-Token"]
    (project,) = call("GET", "/identity/v3/auth/projects", headers={"X-Auth-Token": token}).json()["projects"]
    exchange = {"identity": {"methods": ["token"], "token": {"id": token}}}
    scope = {"project": {"id": project["id"]}}
    scoped = call("POST", "/identity/v3/auth/tokens", json={"auth": exchange | {"scope": scope}})
    assert scoped.status_code == 201
    assert scoped.json()["token"]["project"]["name"] == "admin"
    assert scoped.json()["token"]["methods"] == ["password", "token"]
    assert scoped.json()["token"]["expires_at"] == unscoped.json()["token"]["expires_at"]


def test_an_admin_may_work_on_the_system(call: Call) -> None:
    answer = call("POST", "/identity/v3/auth/tokens", json=login("admin", "right", {"system": {"all": True}}))
    assert answer.json()["token"]["system"] == {"all": True}


def test_a_token_is_shown_to_its_user_and_to_admins_and_can_be_revoked(
    call: Call, admin: dict[str, str], demo: dict[str, str]
) -> None:
    about_demo, about_admin = ({"X-Subject-Token": one["X-Auth-Token"]} for one in (demo, admin))
    path = "/identity/v3/auth/tokens"
    assert call("GET", path, headers=demo | about_demo).json()["token"]["user"]["name"] == "demo"
    assert call("HEAD", path, headers=admin | about_demo).status_code == 200
    assert call("GET", path, headers=demo | about_admin).status_code == 403
    assert call("GET", path, headers=admin | {"X-Subject-Token": "nonsense"}).status_code == 404
    assert call("DELETE", path, headers=admin | about_demo).status_code == 204
    assert call("GET", path, headers=admin | about_demo).status_code == 404
    assert call("GET", path, headers=demo | about_demo).json() == UNAUTHORIZED


def test_gateways_over_one_directory_know_each_others_tokens_users_and_revocations(
    call: Call, identity: StandaloneIdentity, admin: dict[str, str], directory: Path
) -> None:
    another = StandaloneIdentity(directory, auth_url=f"{BASE}/identity/v3")
    elsewhere = caller_of(Starlette(routes=[Mount("/identity", keystone(another, Links()))]))
    v3 = "/identity/v3"
    asked = {"user": {"name": "grace", "password": "right"}}
    user = elsewhere("POST", f"{v3}/users", headers=admin, json=asked).json()["user"]["id"]
    token = {"X-Auth-Token": call("POST", f"{v3}/auth/tokens", json=login("grace", "right")).headers["X-Subject-Token"]}
    assert elsewhere("GET", f"{v3}/users/{user}", headers=token).status_code == 200
    about = {"X-Subject-Token": token["X-Auth-Token"]}
    assert call("DELETE", f"{v3}/auth/tokens", headers=token | about).status_code == 204
    assert elsewhere("GET", f"{v3}/users/{user}", headers=token).status_code == 401
    assert elsewhere("DELETE", f"{v3}/users/{user}", headers=admin).status_code == 204
    assert call("POST", f"{v3}/auth/tokens", json=login("grace", "right")).status_code == 401


# who may read what


def test_everybody_may_read_themselves_and_only_admins_the_others(
    call: Call, identity: StandaloneIdentity, admin: dict[str, str], demo: dict[str, str]
) -> None:
    users, projects = identity.accounts.users_by_name, identity.accounts.projects_by_name
    own = [f"users/{users['demo'].id}", f"users/{users['demo'].id}/projects"]
    own += [f"projects/{projects['demo'].id}", "domains/default", "domains", "regions", "auth/catalog"]
    others = [f"users/{users['admin'].id}", f"projects/{projects['admin'].id}", "users", "projects"]
    others += ["roles", "role_assignments", "services", "endpoints", "groups"]
    for path in own + others:
        assert call("GET", f"/identity/v3/{path}", headers=admin).status_code == 200, path
        assert call("GET", f"/identity/v3/{path}").json() == UNAUTHORIZED, path
    for path in own:
        assert call("GET", f"/identity/v3/{path}", headers=demo).status_code == 200, path
    for path in others:
        assert call("GET", f"/identity/v3/{path}", headers=demo).status_code == 403, path


def test_a_reader_of_the_system_reads_what_admins_do_but_changes_nothing(
    call: Call, identity: StandaloneIdentity, admin: dict[str, str]
) -> None:
    demo = identity.accounts.users_by_name["demo"].id
    roles = call("GET", "/identity/v3/roles?name=reader", headers=admin).json()["roles"]
    path = f"/identity/v3/system/users/{demo}/roles/{roles[0]['id']}"
    assert call("PUT", path, headers=admin).status_code == 204
    reader = token_of(identity, "demo", system=True)
    assert call("GET", "/identity/v3/users", headers=reader).status_code == 200
    assert call("POST", "/identity/v3/users", headers=reader, json={"user": {}}).status_code == 403
    assert call("DELETE", path, headers=admin).status_code == 204


def test_lists_are_found_by_name_and_paged(call: Call, admin: dict[str, str]) -> None:
    found = call("GET", "/identity/v3/projects?name=demo", headers=admin).json()["projects"]
    assert [one["name"] for one in found] == ["demo"]
    assert call("GET", "/identity/v3/users?name=nobody", headers=admin).json()["users"] == []
    first = call("GET", "/identity/v3/users?limit=1", headers=admin).json()["users"]
    rest = call("GET", f"/identity/v3/users?marker={first[0]['id']}", headers=admin).json()["users"]
    assert {one["name"] for one in first + rest} >= {"admin", "demo"}
    assert len(first) == 1


# what an operator changes


def test_a_user_is_made_given_a_role_logs_in_and_is_deleted(call: Call, admin: dict[str, str]) -> None:
    v3 = "/identity/v3"
    project = call("POST", f"{v3}/projects", headers=admin, json={"project": {"name": "lab"}}).json()["project"]
    asked = {"name": "ada", "password": "first"}
    user = call("POST", f"{v3}/users", headers=admin, json={"user": asked}).json()["user"]
    assert "password" not in user
    assert "password_hash" not in user
    role = call("GET", f"{v3}/roles?name=member", headers=admin).json()["roles"][0]["id"]
    grant = f"{v3}/projects/{project['id']}/users/{user['id']}/roles/{role}"
    assert call("HEAD", grant, headers=admin).status_code == 404
    assert call("PUT", grant, headers=admin).status_code == 204
    assert call("HEAD", grant, headers=admin).status_code == 204
    held = call("GET", f"{v3}/role_assignments?user.id={user['id']}&include_names", headers=admin).json()
    assert [one["scope"]["project"]["name"] for one in held["role_assignments"]] == ["lab"]

    answer = call("POST", f"{v3}/auth/tokens", json=login("ada", "first", to_project("lab")))
    token = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
    change = {"user": {"original_password": "first", "password": "second"}}
    assert call("POST", f"{v3}/users/{user['id']}/password", json=change).status_code == 204
    assert call("GET", f"{v3}/users/{user['id']}", headers=token).status_code == 401
    assert call("POST", f"{v3}/users/{user['id']}/password", json=change).status_code == 401

    again = call("POST", f"{v3}/users", headers=admin, json={"user": asked})
    assert again.status_code == 409
    assert call("DELETE", f"{v3}/projects/{project['id']}", headers=admin).status_code == 204
    assert call("POST", f"{v3}/auth/tokens", json=login("ada", "second", to_project("lab"))).status_code == 401
    assert call("DELETE", f"{v3}/users/{user['id']}", headers=admin).status_code == 204
    assert call("DELETE", f"{v3}/users/{user['id']}", headers=admin).status_code == 404


def test_a_login_without_a_scope_is_for_the_users_default_project(
    call: Call, identity: StandaloneIdentity, admin: dict[str, str]
) -> None:
    demo = identity.accounts.users_by_name["demo"]
    default = {"user": {"default_project_id": identity.accounts.projects_by_name["demo"].id}}
    assert call("PATCH", f"/identity/v3/users/{demo.id}", headers=admin, json=default).status_code == 200
    scoped = call("POST", "/identity/v3/auth/tokens", json=login("demo", "right"))
    unscoped = call("POST", "/identity/v3/auth/tokens", json=login("demo", "right", "unscoped"))
    assert scoped.json()["token"]["project"]["name"] == "demo"
    assert "project" not in unscoped.json()["token"]


# addresses


def test_forwarded_addresses_are_believed_only_when_a_proxy_is_trusted(identity: StandaloneIdentity) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "public.example, inner"}
    hrefs = []
    for trust in (False, True):
        app = Starlette(routes=[Mount("/identity", keystone(identity, Links(trust_proxy=trust)))])
        document = caller_of(app)("GET", "/identity/v3", headers=forwarded).json()
        hrefs.append(document["version"]["links"][0]["href"])
    assert hrefs == [f"{BASE}/identity/v3/", "https://public.example/identity/v3/"]


def test_a_host_that_is_none_is_not_repeated(call: Call) -> None:
    document = call("GET", "/identity/v3", headers={"Host": 'evil"><script>'}).json()
    assert "evil" not in document["version"]["links"][0]["href"]


# bad requests

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_a_body_that_is_too_large_is_refused_before_it_is_read_to_its_end(call: Call) -> None:
    answer = call("POST", "/identity/v3/auth/tokens", content=b" " * (MAX_JSON_BYTES + 1))
    assert answer.status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"\xff"', b"[" * 1000 + b"]" * 1000, b"{}"])
def test_what_is_not_a_request_is_a_bad_request(call: Call, body: bytes) -> None:
    answer = call("POST", "/identity/v3/auth/tokens", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON, JSON, JSON, JSON)
def test_no_body_of_any_shape_is_an_error_of_the_service(
    call: Call, admin: dict[str, str], a: object, b: object, c: object, d: object
) -> None:
    methods = {"methods": ["password", "token"], "password": a, "token": b}
    bodies = [
        ("auth/tokens", {"auth": {"identity": methods, "scope": c}}),
        ("auth/tokens", {"auth": {"identity": {"methods": d, "password": {"user": a}}, "scope": c}}),
        ("projects", {"project": {"name": a, "description": b, "enabled": c}}),
        ("users", {"user": {"name": a, "password": b, "email": c, "default_project_id": d}}),
    ]
    for path, body in bodies:
        assert call("POST", f"/identity/v3/{path}", headers=admin, json=body).status_code < 500


def test_an_unknown_path_is_not_found_in_keystones_shape(call: Call) -> None:
    answer = call("GET", "/identity/v3/nowhere")
    assert (answer.status_code, answer.json()["error"]["title"]) == (404, "Not Found")


def test_no_password_and_no_token_is_logged(
    call: Call, admin: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        call("POST", "/identity/v3/auth/tokens", json=login("demo", "right", to_project("demo")))
        call("POST", "/identity/v3/auth/tokens", json=login("demo", "a-secret-that-is-wrong"))
        call("GET", "/identity/v3/users", headers=admin)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "a-secret-that-is-wrong" not in logged
    assert admin["X-Auth-Token"] not in logged
