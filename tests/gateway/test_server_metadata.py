"""The metadata of a server, as its users write and read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Servers

MISSING = "7f0e8c1e-0000-4000-8000-000000000000"
WRITES = [
    ("POST", "", {"metadata": {"a": "1"}}),
    ("PUT", "", {"metadata": {"a": "1"}}),
    ("PUT", "/role", {"meta": {"role": "db"}}),
    ("DELETE", "/role", None),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


def path(server: str, key: str = "") -> str:
    return f"/servers/{server}/metadata{key}"


def test_items_are_added_changed_replaced_and_taken_away(api: Servers) -> None:
    server = api.made(metadata={"role": "web"})

    added = api("POST", path(server), {"metadata": {"role": "db", "rack": "7"}}, token="member")
    assert (added.status_code, added.json()) == (200, {"metadata": {"role": "db", "rack": "7"}})
    changed = api("PUT", path(server, "/rack"), {"meta": {"rack": "8"}}, token="member")
    assert (changed.status_code, changed.json()) == (200, {"meta": {"rack": "8"}})
    assert api.get(path(server, "/rack"), token="reader") == {"meta": {"rack": "8"}}
    gone = api("DELETE", path(server, "/role"), token="member")
    assert (gone.status_code, gone.content) == (204, b"")
    assert api.get(path(server), token="reader") == {"metadata": {"rack": "8"}}
    replaced = api("PUT", path(server), {"metadata": {"owner": "me"}}, token="member")
    assert (replaced.status_code, replaced.json()) == (200, {"metadata": {"owner": "me"}})
    assert api.show(server)["metadata"] == {"owner": "me"}
    assert api("PUT", path(server), {"metadata": {}}, token="member").json() == {"metadata": {}}
    assert api.show(server)["metadata"] == {}


def test_what_is_as_it_was_records_nothing(api: Servers) -> None:
    server = api.made(metadata={"role": "web"})
    before = api.recorded()

    for method, key, body in (
        ("POST", "", {"metadata": {"role": "web"}}),
        ("PUT", "", {"metadata": {"role": "web"}}),
        ("PUT", "/role", {"meta": {"role": "web"}}),
    ):
        assert api(method, path(server, key), body, token="member").status_code == 200

    assert api.recorded() == before


@pytest.mark.parametrize(
    ("method", "key", "body", "said"),
    [
        ("PUT", "/a", {"meta": {"b": "1"}}, "Request body and URI mismatch"),
        ("PUT", "/a", {"meta": {}}, "{}"),
        ("PUT", "/a", {"meta": {"a": "1", "b": "2"}}, "meta"),
        ("PUT", "/a", {"metadata": {"a": "1"}}, "meta"),
        ("POST", "", {"metadata": {"a": 1}}, "1 is not of type 'string'"),
        ("POST", "", {"metadata": {"a" * 256: "1"}}, "does not match any of the regexes"),
        ("POST", "", {"metadata": {"a": "1" * 256}}, "too long"),
        ("PUT", "", {"metadata": None}, "None is not of type 'object'"),
        ("PUT", "", {}, "'metadata' is a required property"),
    ],
)
def test_a_body_that_is_none_is_refused(api: Servers, method: str, key: str, body: Any, said: str) -> None:
    server = api.made()

    status, message = api.refused(lambda: api(method, path(server, key), body, token="member"))

    assert status == 400
    assert said in message


@pytest.mark.parametrize(("method", "key", "body"), [*WRITES, ("GET", "", None), ("GET", "/role", None)])
def test_another_projects_server_does_not_exist(api: Servers, method: str, key: str, body: Any) -> None:
    for server in (api.others(metadata={"role": "web"}), MISSING, "not-an-id"):
        assert api.refused(lambda server=server: api(method, path(server, key), body, token="member")) == (
            404,
            f"Instance {server} could not be found.",
        )


@pytest.mark.parametrize(("method", "key", "body"), WRITES)
def test_readers_do_not_write(api: Servers, method: str, key: str, body: Any) -> None:
    server = api.made(metadata={"role": "web"})

    status, message = api.refused(lambda: api(method, path(server, key), body, token="reader"))

    assert status == 403
    assert message.startswith("Policy doesn't allow os_compute_api:server-metadata:")


@pytest.mark.parametrize(("method", "key", "body"), WRITES)
def test_a_server_that_is_not_there_yet_takes_none(api: Servers, method: str, key: str, body: Any) -> None:
    server = api.made(metadata={"role": "web"}, settled=False)

    status, message = api.refused(lambda: api(method, path(server, key), body, token="member"))

    what = "delete" if method == "DELETE" else "update"
    assert (status, message) == (
        409,
        f"Cannot '{what} metadata' instance {server} while it is in vm_state building",
    )


@pytest.mark.parametrize(("method", "key", "body"), WRITES)
def test_a_locked_server_is_written_by_administrators_only(api: Servers, method: str, key: str, body: Any) -> None:
    server = api.made(metadata={"role": "web"})
    api.done(server, "lock")

    assert api.refused(lambda: api(method, path(server, key), body, token="member")) == (
        409,
        f"Instance {server} is locked",
    )
    assert api(method, path(server, key), body, token="admin").status_code in (200, 204)


def test_an_item_that_is_not_there_is_not_found(api: Servers) -> None:
    server = api.made()

    for method in ("GET", "DELETE"):
        assert api.refused(lambda method=method: api(method, path(server, "/role"), token="member")) == (
            404,
            "Metadata item was not found",
        )


def test_no_more_items_than_the_quota_allows(api: Servers) -> None:
    server = api.made(metadata={"kept": "yes"})
    many = {f"key{n}": "value" for n in range(128)}
    refusal = (403, "Maximum number of metadata items exceeds 128")

    assert api.refused(lambda: api("POST", path(server), {"metadata": many}, token="member")) == refusal
    assert api("PUT", path(server), {"metadata": many}, token="member").status_code == 200
    assert api.refused(lambda: api("PUT", path(server, "/b"), {"meta": {"b": "1"}}, token="member")) == refusal
    assert api("PUT", path(server, "/key1"), {"meta": {"key1": "another"}}, token="member").status_code == 200


def test_a_request_that_waits_for_its_outcome_waits_on(api: Servers) -> None:
    server = api.made()
    api.act(server, "os-stop")

    assert api("POST", path(server), {"metadata": {"a": "1"}}, token="member").status_code == 200
    api.ledger.settle_without("alpha")
    assert api.ledger.parts["deadlines"].waiting == 1  # type: ignore[attr-defined]

    api.ledger.settle()
    assert api.show(server)["status"] == "SHUTOFF"
