"""The tags of a server, and finding servers by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compute_api import BASE
from tests.support.servers import Servers

V226 = "2.26"
WRITES = [
    ("PUT", "", {"tags": ["blue"]}, "update tags"),
    ("DELETE", "", None, "delete tags"),
    ("PUT", "/blue", None, "update tag"),
    ("DELETE", "/blue", None, "delete tag"),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


def tags(api: Servers, server: str, tag: str = "", method: str = "GET", body: Any = None, **more: Any) -> Any:
    return api(method, f"/servers/{server}/tags{tag}", body, version=V226, **{"token": "member", **more})


def test_tags_are_put_on_and_taken_off(api: Servers) -> None:
    server = api.made(tags=("blue",))

    new = tags(api, server, "/d%C3%A9j%C3%A0", "PUT")
    assert (new.status_code, new.content) == (201, b"")
    assert new.headers["location"] == f"{BASE}/compute/v2.1/servers/{server}/tags/d%C3%A9j%C3%A0"
    before = api.recorded()
    known = tags(api, server, "/blue", "PUT")
    assert (known.status_code, known.content, api.recorded()) == (204, b"", before)
    assert tags(api, server, token="reader").json() == {"tags": ["blue", "déjà"]}
    assert tags(api, server, "/blue", token="reader").status_code == 204
    assert tags(api, server, "/blue", "DELETE").status_code == 204
    assert api.refused(lambda: tags(api, server, "/blue")) == (404, f"Server {server} has no tag 'blue'")
    replaced = tags(api, server, "", "PUT", {"tags": ["b", "a", "b"]})
    assert (replaced.status_code, replaced.json()) == (200, {"tags": ["b", "a"]})
    assert api.show(server, version=V226)["tags"] == ["b", "a"]
    assert tags(api, server, "", "DELETE").status_code == 204
    assert tags(api, server).json() == {"tags": []}


def test_a_tag_that_is_none_is_refused(api: Servers) -> None:
    server = api.made(tags=tuple(f"tag{n}" for n in range(49)))
    rules = "It must be a non empty string without characters '/' and ','. Validation error message: "

    for method, path, body, said in (
        ("PUT", "/a,b", None, f"Tag 'a,b' is invalid. {rules}'a,b' does not match '^[^,/]*$'"),
        ("PUT", "/" + "a" * 61, None, f"Tag '{'a' * 61}' is invalid. {rules}'{'a' * 61}' is too long"),
        ("PUT", "", {"tags": ["a/b"]}, "does not match"),
        ("PUT", "", {"tags": ["a" * 61]}, "too long"),
        ("PUT", "", {"tags": [""]}, "non-empty"),
        ("PUT", "", {"tags": [f"t{n}" for n in range(51)]}, "field/attribute tags"),
        ("PUT", "", {}, "'tags' is a required property"),
        ("PUT", "/a", {"tags": ["a"]}, "is not of type 'null'"),
    ):
        status, message = api.refused(lambda args=(path, method, body): tags(api, server, *args))
        assert status == 400
        assert said in message

    assert tags(api, server, "/last", "PUT").status_code == 201
    for tag in ("/onemore", "/last"):
        assert api.refused(lambda tag=tag: tags(api, server, tag, "PUT")) == (
            400,
            "The number of tags exceeded the per-server limit 50",
        )


def test_a_tag_that_is_not_there_cannot_be_taken_off(api: Servers) -> None:
    server = api.made()

    refusal = api.refused(lambda: tags(api, server, "/blue", "DELETE"))

    assert refusal == (404, f"Instance {server} has no tag 'blue'")


@pytest.mark.parametrize(("method", "path", "body", "action"), WRITES)
def test_who_may_and_when(api: Servers, method: str, path: str, body: Any, action: str) -> None:
    theirs, locked = api.others(tags=("blue",)), api.made(tags=("blue",))

    def write(server: str, **more: Any) -> Any:
        return tags(api, server, path, method, body, **more)

    assert api.refused(lambda: write(theirs)) == (404, f"Instance {theirs} could not be found.")
    assert api.refused(lambda: write(locked, token="reader"))[0] == 403
    api.done(locked, "lock")
    assert write(locked).status_code in (200, 201, 204), "a lock does not stop tags"
    new = api.made(settled=False)
    assert api.refused(lambda: write(new)) == (
        409,
        f"Cannot '{action}' instance {new} while it is in vm_state building",
    )


def test_there_are_none_before_2_26(api: Servers) -> None:
    server = api.made(tags=("blue",))

    assert api("GET", f"/servers/{server}/tags", version="2.25").status_code == 404
    assert "tags" not in api.show(server, version="2.25")
    assert api.listed("tags=green", version="2.25") == ["a server"], "a filter that is not known is dropped"


def test_servers_are_found_by_their_tags(api: Servers) -> None:
    for name, has in (("none", ()), ("one", ("a",)), ("two", ("a", "b")), ("other", ("c",))):
        api.made(name=name, tags=has)

    for query, found in {
        "tags=a": {"one", "two"},
        "tags=a,b": {"two"},
        "tags-any=b,c": {"two", "other"},
        "not-tags=a,b": {"none", "one", "other"},
        "not-tags-any=a,c": {"none"},
        "tags=a&not-tags=b": {"one"},
        "tags=a,a": {"one", "two"},
    }.items():
        assert set(api.listed(query, token="member", version=V226)) == found, query
