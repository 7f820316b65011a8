"""Host aggregates over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compute_api import fault
from tests.support.served import Served

PATH = "/os-aggregates"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, ("alpha", "beta"))
    served.ledger.settle()  # the hosts say that they are there
    yield served
    served.close()


def create(api: Served, name: str = "attic", zone: str | None = None, version: str = "2.41") -> Any:
    body = {"name": name} | ({} if zone is None else {"availability_zone": zone})
    return api("POST", PATH, {"aggregate": body}, version=version)


def act(api: Served, action: str, value: Any, number: int = 1) -> Any:
    return api("POST", f"{PATH}/{number}/action", {action: value})


def test_an_aggregate_is_made_without_hosts_and_metadata_in_the_answer(api: Served) -> None:
    made = create(api, zone="attic")

    assert made.status_code == 200
    aggregate = made.json()["aggregate"]
    assert (aggregate["id"], aggregate["name"], aggregate["availability_zone"]) == (1, "attic", "attic")
    assert set(aggregate) == {
        *("id", "uuid", "name", "availability_zone", "created_at", "updated_at", "deleted", "deleted_at")
    }
    assert "uuid" not in create(api, "another", version="2.40").json()["aggregate"]
    assert fault(create(api)) == (409, "conflictingRequest", "Aggregate attic already exists.")


def test_an_aggregate_is_shown_listed_changed_and_deleted(api: Served) -> None:
    create(api)
    shown = api.get(f"{PATH}/1", version="2.41")["aggregate"]
    assert (shown["hosts"], shown["metadata"], shown["updated_at"]) == ([], {}, None)
    assert api.get(PATH, version="2.41")["aggregates"] == [shown]

    renamed = api("PUT", f"{PATH}/1", {"aggregate": {"name": "loft", "availability_zone": "up"}})
    assert renamed.status_code == 200
    loft = renamed.json()["aggregate"]
    assert (loft["name"], loft["availability_zone"], loft["metadata"]) == ("loft", "up", {"availability_zone": "up"})
    assert loft["updated_at"] is not None
    described = act(api, "set_metadata", {"metadata": {"ssd": "true", "gone": None}}).json()["aggregate"]
    assert described["metadata"] == {"availability_zone": "up", "ssd": "true"}

    gone = api("DELETE", f"{PATH}/1")
    assert (gone.status_code, gone.content) == (200, b"")
    assert fault(api("GET", f"{PATH}/1")) == (404, "itemNotFound", "Aggregate 1 could not be found.")


def test_hosts_come_and_go(api: Served) -> None:
    create(api)
    added = act(api, "add_host", {"host": "beta"})
    assert (added.status_code, added.json()["aggregate"]["hosts"]) == (200, ["beta"])
    assert act(api, "add_host", {"host": "alpha"}).json()["aggregate"]["hosts"] == ["beta", "alpha"]
    assert fault(act(api, "add_host", {"host": "beta"}))[2] == "Aggregate 1 already has host beta."
    assert fault(api("DELETE", f"{PATH}/1"))[0] == 400
    assert act(api, "remove_host", {"host": "beta"}).json()["aggregate"]["hosts"] == ["alpha"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "", {"aggregate": {}}, 400, "name"),
        ("POST", "", {"aggregate": {"name": ""}}, 400, ""),
        ("POST", "", {"aggregate": {"name": "x" * 256}}, 400, "too long"),
        ("POST", "", {"aggregate": {"name": "x", "availability_zone": "a:b"}}, 400, ""),
        ("PUT", "/1", {"aggregate": {}}, 400, ""),
        ("PUT", "/1", {"aggregate": {"availability_zone": None}}, 400, "does not support empty named"),
        ("PUT", "/9", {"aggregate": {"name": "x"}}, 404, "Aggregate 9 could not be found."),
        ("GET", "/x", None, 400, "Invalid input received: id must be an integer"),
        ("DELETE", "/x", None, 400, "Invalid input received: id must be an integer"),
        ("GET", f"/{10**30}", None, 404, f"Aggregate {10**30} could not be found."),
        ("DELETE", "/9", None, 404, "Aggregate 9 could not be found."),
        ("POST", "/1/action", {"add_host": {"host": "nowhere"}}, 404, "Compute host nowhere could not be found."),
        ("POST", "/9/action", {"add_host": {"host": "alpha"}}, 404, "Aggregate 9 could not be found."),
        ("POST", "/1/action", {"remove_host": {"host": "alpha"}}, 404, "Cannot remove host alpha in aggregate 1"),
        ("POST", "/1/action", {"add_host": {}}, 400, "host"),
        ("POST", "/1/action", {"set_metadata": {"metadata": {"a": 1}}}, 400, ""),
        ("POST", "/1/action", {"set_metadata": {"metadata": {"availability_zone": ""}}}, 400, "update metadata of"),
        ("POST", "/9/action", {"set_metadata": {"metadata": {}}}, 404, "Aggregate 9 could not be found."),
    ],
)
def test_what_is_refused_records_nothing(
    api: Served, method: str, path: str, body: Any, status: int, message: str
) -> None:
    create(api)
    before = api.recorded()

    answer = fault(api(method, PATH + path, body))

    assert answer[0] == status
    assert message in answer[2]
    assert api.recorded() == before


def test_only_administrators_have_a_say(api: Served) -> None:
    create(api)
    before = api.recorded()
    for method, path, body in (
        ("POST", "", {"aggregate": {"name": "x"}}),
        ("PUT", "/1", {"aggregate": {"name": "x"}}),
        ("DELETE", "/1", None),
        ("GET", "/1", None),
        ("POST", "/1/action", {"add_host": {"host": "alpha"}}),
        ("POST", "/1/action", {"set_metadata": {"metadata": {}}}),
    ):
        assert api(method, PATH + path, body, token="member").status_code == 403
    assert api.recorded() == before
