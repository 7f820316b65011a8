"""Server groups over HTTP, and what else is read of servers: use, and what other services say of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from commands.server_group import CreateServerGroup
from domain.identifiers import ProjectId, ServerGroupId, UserId
from domain.server_group import GroupPolicy
from gateway.policy import Policy
from gateway.tenant_usage import PATH as USAGE
from gateway.tenant_usage import TenantUsage
from tests.support.compute_api import OTHER_PROJECT, PROJECT, Client, fault
from tests.support.served import Served

GROUPS, EVENTS = "/os-server-groups", "/os-server-external-events"
MISSING = "7f0e8c1e-0000-4000-8000-000000000000"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, ("alpha", "beta"))
    served.ledger.with_flavors().settle()
    yield served
    served.close()


def create(api: Served, version: str = "2.64", token: str = "member", **more: Any) -> Any:
    policy = {"policy": "anti-affinity"} if version >= "2.64" else {"policies": ["anti-affinity"]}
    return api("POST", GROUPS, {"server_group": {"name": "web"} | policy | more}, version=version, token=token)


def of_another_project(api: Served) -> str:
    group_id = ServerGroupId(UUID(int=5))
    command = CreateServerGroup(
        server_group_id=group_id,
        project_id=ProjectId(OTHER_PROJECT),
        user_id=UserId("someone"),
        name="theirs",
        policy=GroupPolicy.AFFINITY,
    )
    api.ledger.ask(command)
    return str(group_id)


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", {"id", "name", "policies", "metadata", "members"}),
        ("2.13", {"id", "name", "policies", "metadata", "members", "project_id", "user_id"}),
        ("2.64", {"id", "name", "policy", "rules", "members", "project_id", "user_id"}),
    ],
)
def test_a_group_has_the_fields_of_its_version(api: Served, version: str, keys: set[str]) -> None:
    made = create(api, version)

    assert made.status_code == 200
    group = made.json()["server_group"]
    assert set(group) == keys
    assert api.get(f"{GROUPS}/{group['id']}", version=version, token="reader")["server_group"] == group
    assert api.get(GROUPS, version=version, token="reader")["server_groups"] == [group]


def test_rules_are_kept_as_numbers(api: Served) -> None:
    group = create(api, rules={"max_server_per_host": "3"}).json()["server_group"]
    assert (group["policy"], group["rules"]) == ("anti-affinity", {"max_server_per_host": 3})
    assert api.get(f"{GROUPS}/{group['id']}", version="2.1")["server_group"]["policies"] == ["anti-affinity"]


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 3}}),
        ("2.64", {"rules": {"max_server_per_host": 0}}),
        ("2.64", {"rules": {"other": 1}}),
        ("2.64", {"policy": "legacy"}),
        ("2.64", {"policies": ["affinity"]}),
        ("2.63", {"policies": ["affinity", "anti-affinity"]}),
        ("2.63", {"policies": []}),
        ("2.63", {"policy": "affinity"}),
        ("2.14", {"policies": ["soft-affinity"]}),
        ("2.64", {"name": ""}),
        ("2.64", {"name": " web"}),
    ],
)
def test_a_group_that_makes_no_sense_is_refused_and_records_nothing(
    api: Served, version: str, more: dict[str, Any]
) -> None:
    before = api.recorded()
    assert fault(create(api, version, **more))[0] == 400
    assert api.recorded() == before


def test_soft_policies_are_of_2_15(api: Served) -> None:
    assert create(api, "2.15", policies=["soft-affinity"]).status_code == 200


def test_beyond_the_quota_there_is_none(api: Served) -> None:
    api("PUT", f"/os-quota-sets/{PROJECT}", {"quota_set": {"server_groups": 1}})
    group = create(api).json()["server_group"]
    assert fault(create(api)) == (403, "forbidden", "Quota exceeded, too many server groups.")
    assert api.get("/limits", token="member")["limits"]["absolute"]["totalServerGroupsUsed"] == 1

    assert api("DELETE", f"{GROUPS}/{group['id']}", token="member").status_code == 204
    assert api.get("/limits", token="member")["limits"]["absolute"]["totalServerGroupsUsed"] == 0
    assert create(api).status_code == 200


def test_a_project_sees_its_own_groups(api: Served) -> None:
    theirs, own = of_another_project(api), create(api).json()["server_group"]["id"]
    before = api.recorded()

    missing = (404, "itemNotFound", f"Instance group {theirs} could not be found.")
    assert fault(api("GET", f"{GROUPS}/{theirs}", token="member")) == missing
    assert fault(api("DELETE", f"{GROUPS}/{theirs}", token="member")) == missing
    assert fault(api("GET", f"{GROUPS}/not-an-id", token="member"))[0] == 404
    assert api("DELETE", f"{GROUPS}/{own}", token="reader").status_code == 403
    assert api.recorded() == before
    for query in ("", "?all_projects=true"):
        assert [g["id"] for g in api.get(GROUPS + query, token="member")["server_groups"]] == [own]
    assert [g["id"] for g in api.get(f"{GROUPS}?all_projects")["server_groups"]] == [theirs, own]
    assert api.get(f"{GROUPS}/{theirs}")["server_group"]["name"] == "theirs"
    assert api("DELETE", f"{GROUPS}/{theirs}").status_code == 204


def test_groups_are_listed_from_an_offset(api: Served) -> None:
    ids = [create(api, name=name).json()["server_group"]["id"] for name in "abc"]
    assert [g["id"] for g in api.get(f"{GROUPS}?limit=1&offset=1", token="reader")["server_groups"]] == ids[1:2]
    assert api("GET", f"{GROUPS}?offset=-1").status_code == 400
    assert api("GET", f"{GROUPS}?colour=red", version="2.75").status_code == 400


def test_members_are_those_that_live(api: Served) -> None:
    group_id = ServerGroupId(UUID(int=6))
    project, user = ProjectId("a-project"), UserId("a-user")
    command = CreateServerGroup(
        server_group_id=group_id, project_id=project, user_id=user, name="web", policy=GroupPolicy.AFFINITY
    )
    api.ledger.ask(command)
    one, two = api.ledger.running(2, scheduler_hints={"group": (str(group_id),)})

    assert api.get(f"{GROUPS}/{group_id}")["server_group"]["members"] == [str(one), str(two)]
    assert api.get(f"/servers/{one}", version="2.71")["server"]["server_groups"] == [str(group_id)]
    api.ledger.delete(one)
    api.ledger.settle()
    assert api.get(f"{GROUPS}/{group_id}")["server_group"]["members"] == [str(two)]
    assert api("DELETE", f"{GROUPS}/{group_id}").status_code == 204
    assert api.get(f"/servers/{two}", version="2.71")["server"]["server_groups"] == []


# use


def period(api: Served, hours: float) -> str:
    """Of the query: from the ledger's beginning."""
    start = api.ledger.clock.now - timedelta(hours=100)
    end = start + timedelta(hours=100 + hours)
    return f"start={start:%Y-%m-%dT%H:%M:%S}&end={end:%Y-%m-%dT%H:%M:%S}"


@pytest.fixture
def use(api: Served) -> Client:
    """The API long after: use is told up to now."""
    later = api.ledger.clock.now + timedelta(days=100)
    return Client(TenantUsage(api.backend, 1000, lambda: later).handlers(), Policy())


def used(use: Client, path: str, **more: Any) -> Any:
    answer = use("GET", f"/v2.1/{USAGE}{path}", token="admin", **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_server_is_used_from_its_launch_to_its_end(api: Served, use: Client) -> None:
    [one] = api.ledger.running(1)
    whole = period(api, 4)
    api.ledger.pass_time(3600, step_s=1200)
    api.ledger.delete(one)
    api.ledger.settle()

    usage = used(use, f"/a-project?{whole}")["tenant_usage"]

    [server] = usage["server_usages"]
    assert (server["instance_id"], server["state"], server["flavor"]) == (str(one), "terminated", "small")
    assert (server["vcpus"], server["memory_mb"], server["local_gb"], server["uptime"]) == (1, 512, 1, 3600)
    assert server["hours"] == usage["total_hours"] == 1
    assert (usage["total_memory_mb_usage"], usage["total_vcpus_usage"]) == (512, 1)


def test_a_running_server_is_used_to_the_end_of_the_period(api: Served, use: Client) -> None:
    api.ledger.running(2)
    [usage] = used(use, f"?{period(api, 3)}&detailed=1")["tenant_usages"]
    assert [s["hours"] for s in usage["server_usages"]] == [3, 3]
    assert usage["server_usages"][0]["state"] == "active"
    assert "server_usages" not in used(use, f"?{period(api, 3)}")["tenant_usages"][0]
    assert used(use, f"?{period(api, -1)}")["tenant_usages"] == []
    assert used(use, f"/another-project?{period(api, 3)}")["tenant_usage"] == {}


def test_use_is_told_up_to_now(api: Served, use: Client) -> None:
    api.ledger.running(1)
    usage = used(use, f"/a-project?{period(api, 1000 * 24)}")["tenant_usage"]
    assert usage["total_hours"] == 100 * 24


def test_a_server_that_never_ran_was_not_used(api: Served, use: Client) -> None:
    api.ledger.running(1, requested_host="elsewhere")
    assert used(use, f"/a-project?{period(api, 3)}")["tenant_usage"] == {}


def test_use_is_paged_from_2_40(api: Served, use: Client) -> None:
    first, second = sorted(map(str, api.ledger.running(2)))
    path = f"/a-project?{period(api, 3)}"

    page = used(use, f"{path}&limit=1", version="2.40")
    assert [s["instance_id"] for s in page["tenant_usage"]["server_usages"]] == [first]
    assert f"marker={first}" in page["tenant_usage_links"][0]["href"]
    rest = used(use, f"{path}&marker={first}", version="2.40")
    assert [s["instance_id"] for s in rest["tenant_usage"]["server_usages"]] == [second]
    assert "tenant_usage_links" not in rest
    assert len(used(use, f"{path}&limit=1", version="2.39")["tenant_usage"]["server_usages"]) == 2
    assert used(use, f"?{period(api, 3)}&limit=1", version="2.40")["tenant_usages_links"]
    refused = use("GET", f"/v2.1/{USAGE}{path}&marker={MISSING}", token="admin", version="2.40")
    assert fault(refused) == (400, "badRequest", f"Marker {MISSING} could not be found.")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("start=yesterday", "Invalid datetime string: Datetime is in invalid format"),
        ("start=2020-01-01", "Invalid datetime string: Datetime is in invalid format"),
        ("start=2020-01-02T00:00:00&end=2020-01-01T00:00:00", "Invalid start time. The start time cannot occur"),
    ],
)
def test_a_period_that_makes_no_sense_is_refused(api: Served, query: str, message: str) -> None:
    for path in (f"/{USAGE}", f"/{USAGE}/{PROJECT}"):
        status, _, said = fault(api("GET", f"{path}?{query}"))
        assert status == 400
        assert message in said


def test_a_project_sees_its_own_use(api: Served) -> None:
    assert api.get(f"/{USAGE}/{PROJECT}", token="reader") == {"tenant_usage": {}}
    assert api("GET", f"/{USAGE}/{OTHER_PROJECT}", token="reader").status_code == 403
    assert api.get(f"/{USAGE}") == {"tenant_usages": []}


# what other services say


def test_events_of_known_servers_are_taken(api: Served) -> None:
    [there] = api.ledger.running(1)
    [nowhere] = api.ledger.running(1, requested_host="elsewhere")
    plugged = {"name": "network-vif-plugged", "server_uuid": str(there), "tag": "port", "status": "completed"}

    taken = api("POST", EVENTS, {"events": [plugged]})
    assert (taken.status_code, taken.json()) == (200, {"events": [plugged | {"code": 200}]})

    some = api(
        "POST",
        EVENTS,
        {
            "events": [
                plugged,
                plugged | {"server_uuid": MISSING},
                plugged | {"server_uuid": str(nowhere)},
                {"name": "volume-extended", "server_uuid": str(there)},
            ]
        },
        version="2.51",
    )
    assert some.status_code == 207
    assert [(e["code"], e["status"]) for e in some.json()["events"]] == [
        (200, "completed"),
        (404, "failed"),
        (422, "failed"),
        (400, "failed"),
    ]


@pytest.mark.parametrize(
    ("version", "name", "known"),
    [
        ("2.50", "volume-extended", False),
        ("2.51", "volume-extended", True),
        ("2.75", "power-update", False),
        ("2.76", "power-update", True),
        ("2.82", "accelerator-request-bound", True),
        ("2.92", "volume-reimaged", False),
        ("2.93", "volume-reimaged", True),
        ("2.93", "anything", False),
    ],
)
def test_what_may_be_told_grows(api: Served, version: str, name: str, known: bool) -> None:
    body = {"events": [{"name": name, "server_uuid": MISSING, "tag": "t"}]}
    assert api("POST", EVENTS, body, version=version).status_code == (207 if known else 400)


@pytest.mark.parametrize("events", [[], [{}], [{"name": "network-changed"}], [{"server_uuid": MISSING}]])
def test_events_without_sense_are_refused(api: Served, events: Any) -> None:
    assert fault(api("POST", EVENTS, {"events": events}))[0] == 400


def test_a_user_tells_no_events(api: Served) -> None:
    body = {"events": [{"name": "network-changed", "server_uuid": MISSING}]}
    assert api("POST", EVENTS, body, token="member").status_code == 403
