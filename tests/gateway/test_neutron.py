"""The standalone Neutron v2.0 as its clients call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.standalone.links import Links
from gateway.standalone.neutron import COLLECTIONS, neutron

BASE = "http://cloud.example:8774"
Call = Callable[..., httpx.Response]


class OneProject:
    """An identity with one token."""

    def validate(self, token: str) -> Credentials | None:
        if token != "valid":
            return None
        return Credentials(
            user_id="u",
            user_name="u",
            user_domain_id="default",
            user_domain_name="Default",
            project_id="project",
            project_name="project",
            project_domain_id="default",
            project_domain_name="Default",
            roles=("member", "reader"),
            system_scope=False,
            is_admin_project=True,
            expires_at=datetime(2100, 1, 1, tzinfo=UTC),
            audit_id="a",
        )

    def project_exists(self, project_id: str) -> bool:
        return project_id == "project"


def caller_of(networks: StandaloneNetworks) -> Call:
    app = Starlette(routes=[Mount("/network", neutron(networks, OneProject(), Links()))])

    async def send(method: str, path: str, token: str = "valid", **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"{BASE}/network") as client:
            return await client.request(method, path, headers={"X-Auth-Token": token}, **more)

    return lambda *given, **more: asyncio.run(send(*given, **more))


@pytest.fixture(scope="module")
def call() -> Call:
    return caller_of(StandaloneNetworks())


def test_versions_are_shown_without_a_token_and_the_rest_is_not(call: Call) -> None:
    (version,) = call("GET", "/", "nobody's").json()["versions"]
    assert (version["id"], version["links"][0]["href"]) == ("v2.0", f"{BASE}/network/v2.0/")
    answer = call("GET", "/v2.0/networks", "nobody's")
    assert (answer.status_code, answer.json()["error"]["title"]) == (401, "Unauthorized")


@pytest.mark.parametrize("path", COLLECTIONS)
def test_every_list_can_be_read(call: Call, path: str) -> None:
    answer = call("GET", f"/v2.0/{path}")
    assert answer.status_code == 200
    assert list(answer.json()) == [COLLECTIONS[path][0]]
    if path == "availability_zones":
        return  # they have no ids
    for row in answer.json()[COLLECTIONS[path][0]]:
        shown = call("GET", f"/v2.0/{path}/{row.get('id', row.get('alias'))}")
        assert shown.json() == {COLLECTIONS[path][1]: row}


def test_the_network_has_the_subnet_that_guests_see(call: Call) -> None:
    (network,) = call("GET", "/v2.0/networks?name=private").json()["networks"]
    (subnet,) = call("GET", f"/v2.0/subnets?network_id={network['id']}").json()["subnets"]
    assert network["subnets"] == [subnet["id"]]
    assert (subnet["cidr"], subnet["gateway_ip"]) == ("10.0.2.0/24", "10.0.2.2")


def test_a_bridge_has_no_subnet_that_is_known_here() -> None:
    call = caller_of(StandaloneNetworks(name="lab", bridge="br0"))
    assert call("GET", "/v2.0/networks?name=lab").json()["networks"][0]["subnets"] == []
    assert call("GET", "/v2.0/subnets").json() == {"subnets": []}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=private", 1),
        ("name=public", 0),
        ("name=public&name=private", 1),
        ("id=nowhere", 0),
        ("router:external=true", 0),
        ("router:external=False", 1),
        ("shared=True", 1),
        ("limit=1", 1),
        ("marker=nowhere", 1),
    ],
)
def test_lists_are_filtered(call: Call, query: str, found: int) -> None:
    assert len(call("GET", f"/v2.0/networks?{query}").json()["networks"]) == found


def test_only_the_fields_asked_for_are_shown(call: Call) -> None:
    assert call("GET", "/v2.0/networks?fields=name&fields=status").json() == {
        "networks": [{"name": "private", "status": "ACTIVE"}]
    }


def test_a_projects_group_is_its_own(call: Call) -> None:
    (group,) = call("GET", "/v2.0/security-groups?project_id=project").json()["security_groups"]
    assert (group["name"], group["project_id"]) == ("default", "project")
    assert call("GET", "/v2.0/security-groups?project_id=other").json()["security_groups"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "networks"),
        ("PUT", "networks/1"),
        ("DELETE", "ports/1"),
        ("POST", "security-groups"),
        ("POST", "floatingips"),
        ("PUT", "quotas/project"),
        ("PUT", "routers/1/add_router_interface"),
    ],
)
def test_every_change_is_refused_in_neutrons_words(call: Call, method: str, path: str) -> None:
    answer = call(method, f"/v2.0/{path}", content=b"\xff not even JSON")
    assert answer.status_code == 403
    assert set(answer.json()["NeutronError"]) == {"type", "message", "detail"}
    assert "private" in answer.json()["NeutronError"]["message"]


def test_what_is_not_there_is_not_found_in_neutrons_words(call: Call) -> None:
    answer = call("GET", "/v2.0/networks/nowhere")
    assert (answer.status_code, answer.json()["NeutronError"]["type"]) == (404, "NetworkNotFound")
    assert call("GET", "/v2.0/nothing").status_code == 404
    assert call("GET", "/v2.0/nothing/1").status_code == 404


def test_quotas_are_without_limit(call: Call) -> None:
    assert call("GET", "/v2.0/quotas/project").json()["quota"]["port"] == -1
    assert call("GET", "/v2.0/quotas/project/details.json").json()["quota"]["port"]["limit"] == -1
    assert call("GET", "/v2.0/quotas/other").status_code == 404
