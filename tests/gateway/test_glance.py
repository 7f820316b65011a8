"""The standalone Glance v2 as its clients call it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.images import StandaloneImages
from gateway.standalone.glance import glance
from gateway.standalone.links import Links

BASE = "http://cloud.example:8774"
PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
BYTES = {"Content-Type": "application/octet-stream"}
DATA = b"\x00" * 100_000
MAX_BYTES = 1 << 20
Call = Callable[..., httpx.Response]

PEOPLE = {
    "admin": ("project-admin", ("admin", "manager", "member", "reader")),
    "ours": ("project-ours", ("member", "reader")),
    "reader": ("project-ours", ("reader",)),
    "theirs": ("project-theirs", ("member", "reader")),
}


class KnownPeople:
    """An identity whose tokens are names."""

    def validate(self, token: str) -> Credentials | None:
        if token not in PEOPLE:
            return None
        project, roles = PEOPLE[token]
        return Credentials(
            user_id=token,
            user_name=token,
            user_domain_id="default",
            user_domain_name="Default",
            project_id=project,
            project_name=project,
            project_domain_id="default",
            project_domain_name="Default",
            roles=roles,
            system_scope=False,
            is_admin_project=True,
            expires_at=datetime(2100, 1, 1, tzinfo=UTC),
            audit_id=token,
        )

    def project_exists(self, project_id: str) -> bool:
        return project_id in {project for project, _ in PEOPLE.values()}


@pytest.fixture
def images(tmp_path: Path) -> StandaloneImages:
    return StandaloneImages(tmp_path, max_bytes=MAX_BYTES)


@pytest.fixture
def call(images: StandaloneImages) -> Call:
    return caller_of(images)


def caller_of(images: StandaloneImages) -> Call:
    app = Starlette(routes=[Mount("/image", glance(images, KnownPeople(), Links()))])

    async def send(method: str, path: str, who: str = "ours", **more: Any) -> httpx.Response:
        headers = {"X-Auth-Token": who} | more.pop("headers", {})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{BASE}/image") as client:
            return await client.request(method, path, headers=headers, **more)

    return lambda *given, **more: asyncio.run(send(*given, **more))


def made(call: Call, who: str = "ours", **fields: Any) -> str:
    body = {"name": "disk", "disk_format": "raw", "container_format": "bare"} | fields
    answer = call("POST", "/v2/images", who, json=body)
    assert answer.status_code == 201, answer.text
    image_id: str = answer.json()["id"]
    return image_id


def uploaded(call: Call, who: str = "ours", data: bytes = DATA, **fields: Any) -> str:
    image_id = made(call, who, **fields)
    assert call("PUT", f"/v2/images/{image_id}/file", who, headers=BYTES, content=data).status_code == 204
    return image_id


def patched(call: Call, image_id: str, *operations: Any, who: str = "ours") -> httpx.Response:
    return call("PATCH", f"/v2/images/{image_id}", who, headers=PATCH, json=list(operations))


def names(answer: httpx.Response) -> list[str]:
    return [image["name"] for image in answer.json()["images"]]


# documents


def test_versions_are_shown_without_a_token_and_the_rest_is_not(call: Call) -> None:
    listed = call("GET", "/versions", "nobody")
    assert listed.status_code == 200
    assert call("GET", "/", "nobody").status_code == 300
    current = listed.json()["versions"][0]
    assert current["status"] == "CURRENT"
    assert current["links"][0]["href"] == f"{BASE}/image/v2/"
    for path in ("/v2/images", "/v2/schemas/image", "/v2/info/import"):
        answer = call("GET", path, "nobody")
        assert (answer.status_code, answer.json()["error"]["title"]) == (401, "Unauthorized")


def test_a_client_that_asks_how_to_import_is_told_of_no_method(call: Call) -> None:
    assert call("GET", "/v2/info/import").json()["import-methods"]["value"] == []


def test_the_schemas_can_be_read(call: Call) -> None:
    fields = call("GET", "/v2/schemas/image").json()["properties"]
    assert set(call("GET", f"/v2/images/{made(call)}").json()) <= set(fields) | {"locations"}
    assert call("GET", "/v2/schemas/images").json()["name"] == "images"


# from create to delete


def test_an_image_is_made_filled_read_back_and_deleted(call: Call) -> None:
    body = {
        "name": "disk",
        "disk_format": "raw",
        "container_format": "bare",
        "min_disk": 1,
        "hw_disk_bus": "scsi",
    }
    answer = call("POST", "/v2/images", json=body)
    image = answer.json()
    assert answer.headers["Location"] == f"{BASE}/image/v2/images/{image['id']}"
    assert (image["status"], image["visibility"], image["owner"]) == ("queued", "shared", "project-ours")
    assert image["hw_disk_bus"] == "scsi"
    assert image["size"] is None
    file = f"/v2/images/{image['id']}/file"
    assert call("GET", file).status_code == 204
    assert call("PUT", file, headers=BYTES, content=DATA).status_code == 204

    image = call("GET", f"/v2/images/{image['id']}").json()
    assert (image["status"], image["size"], image["virtual_size"]) == ("active", len(DATA), len(DATA))
    assert image["checksum"] == hashlib.md5(DATA).hexdigest()
    assert (image["os_hash_algo"], image["os_hash_value"]) == ("sha512", hashlib.sha512(DATA).hexdigest())
    got = call("GET", file)
    assert got.content == DATA
    assert got.headers["Content-MD5"] == image["checksum"]

    assert call("PUT", file, headers=BYTES, content=DATA).status_code == 409
    assert call("DELETE", f"/v2/images/{image['id']}").status_code == 204
    assert call("GET", f"/v2/images/{image['id']}").status_code == 404


def test_an_upload_over_the_limit_is_refused_and_may_be_tried_again(call: Call) -> None:
    file = f"/v2/images/{made(call)}/file"

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 1024):
            yield b"\x01" * 1024

    announced = {"X-OpenStack-Image-Size": str(MAX_BYTES + 1)}
    assert call("PUT", file, headers=BYTES | announced, content=b"").status_code == 413
    assert call("PUT", file, headers=BYTES, content=pieces(MAX_BYTES + 1024)).status_code == 413
    assert call("PUT", file, headers=BYTES, content=pieces(MAX_BYTES)).status_code == 204


def test_an_upload_that_is_not_what_was_announced_leaves_the_image_queued(call: Call) -> None:
    image_id = made(call, disk_format="qcow2")
    file = f"/v2/images/{image_id}/file"
    assert call("PUT", file, headers=BYTES, content=DATA).status_code == 400  # no qcow2
    short = {"X-OpenStack-Image-Size": "5"}
    assert call("PUT", file, headers=BYTES | short, content=b"QFI\xfb").status_code == 400
    assert call("PUT", file, headers={"Content-Type": "text/plain"}, content=DATA).status_code == 415
    assert call("GET", f"/v2/images/{image_id}").json()["status"] == "queued"
    bare = call("POST", "/v2/images", json={}).json()["id"]
    assert call("PUT", f"/v2/images/{bare}/file", headers=BYTES, content=DATA).status_code == 400


def test_a_client_that_goes_away_in_mid_upload_leaves_the_image_queued(images: StandaloneImages) -> None:
    app = glance(images, KnownPeople(), Links())

    async def cut_off() -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            body = {"disk_format": "raw", "container_format": "bare"}
            answer = await client.post("/v2/images", headers={"X-Auth-Token": "ours"}, json=body)
            image_id: str = answer.json()["id"]
        messages = iter([{"type": "http.request", "body": DATA, "more_body": True}, {"type": "http.disconnect"}])
        scope = {
            "type": "http",
            "method": "PUT",
            "scheme": "http",
            "path": f"/v2/images/{image_id}/file",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"x-auth-token", b"ours")],
        }

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            pass

        await app(scope, receive, send)
        return image_id

    image = images.get(asyncio.run(cut_off()))
    assert image is not None
    assert image.status == "queued"


def test_gateways_over_one_directory_show_the_same_images_and_let_one_upload(
    call: Call, images: StandaloneImages, tmp_path: Path
) -> None:
    elsewhere = caller_of(StandaloneImages(tmp_path, max_bytes=MAX_BYTES))
    image_id = made(call)
    image, file = f"/v2/images/{image_id}", f"/v2/images/{image_id}/file"
    upload = images.begin_upload(image_id)
    assert elsewhere("GET", image).json()["status"] == "saving"
    assert elsewhere("PUT", file, headers=BYTES, content=DATA).status_code == 409
    format_now = {"op": "replace", "path": "/disk_format", "value": "qcow2"}
    assert patched(elsewhere, image_id, format_now).status_code == 403  # what comes is checked as raw
    upload.abort()
    assert elsewhere("PUT", file, headers=BYTES, content=DATA).status_code == 204
    assert call("GET", file).content == DATA
    assert names(call("GET", "/v2/images?status=active")) == ["disk"]
    assert call("DELETE", image).status_code == 204
    assert elsewhere("GET", image).status_code == 404
    assert names(elsewhere("GET", "/v2/images")) == []


# who may see and do what


def test_others_do_not_find_an_image_that_is_not_theirs(call: Call) -> None:
    image_id = uploaded(call, visibility="private")
    for method, path in (
        ("GET", ""),
        ("GET", "/file"),
        ("DELETE", ""),
        ("PUT", "/file"),
        ("GET", "/members"),
    ):
        assert call(method, f"/v2/images/{image_id}{path}", "theirs").status_code == 404
    assert patched(call, image_id, who="theirs").status_code == 404
    assert names(call("GET", "/v2/images", "theirs")) == []
    assert names(call("GET", "/v2/images", "admin")) == ["disk"]


def test_only_an_admin_makes_an_image_public_and_nobody_else_changes_it(call: Call) -> None:
    assert call("POST", "/v2/images", json={"visibility": "public"}).status_code == 403
    image_id = made(call, "admin", visibility="public")
    assert call("GET", f"/v2/images/{image_id}", "theirs").status_code == 200
    assert patched(call, image_id, who="theirs").status_code == 403
    assert call("DELETE", f"/v2/images/{image_id}", "theirs").status_code == 403
    own = made(call)
    public = {"op": "replace", "path": "/visibility", "value": "public"}
    assert patched(call, own, public).status_code == 403
    assert patched(call, own, public, who="admin").status_code == 200


def test_a_reader_reads(call: Call) -> None:
    image_id = uploaded(call)
    assert call("GET", f"/v2/images/{image_id}/file", "reader").status_code == 200
    assert call("POST", "/v2/images", "reader", json={}).status_code == 403
    assert call("DELETE", f"/v2/images/{image_id}", "reader").status_code == 403


def test_a_shared_image_is_listed_once_its_member_has_accepted_it(call: Call) -> None:
    image_id = uploaded(call)
    members = f"/v2/images/{image_id}/members"
    assert call("POST", members, json={"member": "project-nowhere"}).status_code == 400
    assert call("POST", members, json={"member": "project-theirs"}).json()["status"] == "pending"
    assert call("POST", members, json={"member": "project-theirs"}).status_code == 409
    assert call("GET", f"/v2/images/{image_id}", "theirs").status_code == 200
    assert names(call("GET", "/v2/images", "theirs")) == []
    member = f"{members}/project-theirs"
    assert call("PUT", member, json={"status": "accepted"}).status_code == 403
    assert call("PUT", member, "theirs", json={"status": "accepted"}).json()["status"] == "accepted"
    assert names(call("GET", "/v2/images", "theirs")) == ["disk"]
    assert call("DELETE", member).status_code == 204
    assert call("GET", f"/v2/images/{image_id}", "theirs").status_code == 404


def test_a_protected_image_is_not_deleted(call: Call) -> None:
    image_id = made(call, protected=True)
    assert call("DELETE", f"/v2/images/{image_id}").status_code == 403
    patched(call, image_id, {"op": "replace", "path": "/protected", "value": False})
    assert call("DELETE", f"/v2/images/{image_id}").status_code == 204


def test_a_deactivated_image_gives_out_no_bytes(call: Call) -> None:
    image_id = uploaded(call)
    assert call("POST", f"/v2/images/{image_id}/actions/deactivate").status_code == 403
    assert call("POST", f"/v2/images/{image_id}/actions/deactivate", "admin").status_code == 204
    assert call("GET", f"/v2/images/{image_id}/file").status_code == 403
    assert call("POST", f"/v2/images/{image_id}/actions/reactivate", "admin").status_code == 204
    assert call("GET", f"/v2/images/{image_id}/file").status_code == 200


# changes


def test_fields_properties_and_tags_are_changed_by_a_patch(call: Call) -> None:
    image_id = made(call, kernel_id="k", old="1")
    image = patched(
        call,
        image_id,
        {"op": "replace", "path": "/name", "value": "renamed"},
        {"op": "add", "path": "/hw_machine_type", "value": "q35"},
        {"op": "add", "path": "/with~1slash", "value": "v"},
        {"op": "replace", "path": "/kernel_id", "value": "k2"},
        {"op": "remove", "path": "/old"},
        {"op": "replace", "path": "/tags", "value": ["b", "a", "b"]},
    ).json()
    assert (image["name"], image["hw_machine_type"], image["kernel_id"]) == ("renamed", "q35", "k2")
    assert "old" not in image
    assert sorted(image["tags"]) == ["a", "b"]
    assert call("PUT", f"/v2/images/{image_id}/tags/c").status_code == 204
    assert call("DELETE", f"/v2/images/{image_id}/tags/a").status_code == 204
    assert call("DELETE", f"/v2/images/{image_id}/tags/a").status_code == 404
    assert sorted(call("GET", f"/v2/images/{image_id}").json()["tags"]) == ["b", "c"]


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "replace", "path": "/status", "value": "active"}, 403),
        ({"op": "replace", "path": "/owner", "value": "project-theirs"}, 403),
        ({"op": "remove", "path": "/name"}, 403),
        ({"op": "add", "path": "/locations", "value": []}, 403),
        ({"op": "replace", "path": "/nowhere", "value": "x"}, 409),
        ({"op": "remove", "path": "/nowhere"}, 409),
        ({"op": "replace", "path": "/disk_format", "value": "qcow2"}, 403),
        ({"op": "replace", "path": "/min_ram", "value": -1}, 400),
        ({"op": "replace", "path": "/visibility", "value": ["public"]}, 400),
        ({"op": "add", "path": "/property", "value": 5}, 400),
        ({"op": "add", "path": "/property"}, 400),
        ({"op": "move", "path": "/name"}, 400),
        ({"op": "add", "path": "no-slash", "value": "x"}, 400),
        ("not an operation", 400),
    ],
)
def test_a_patch_that_may_not_be_changes_nothing(call: Call, operation: object, status: int) -> None:
    image_id = uploaded(call)
    before = call("GET", f"/v2/images/{image_id}").json()
    first = {"op": "add", "path": "/first", "value": "applied before the bad one"}
    assert patched(call, image_id, first, operation).status_code == status
    assert call("GET", f"/v2/images/{image_id}").json() == before


def test_a_patch_of_another_media_type_is_refused(call: Call) -> None:
    assert call("PATCH", f"/v2/images/{made(call)}", json=[]).status_code == 415


# lists


@pytest.fixture
def three(call: Call) -> list[str]:
    return [
        made(call, name="b", os_distro="x", tags=["t"]),
        made(call, name="a", disk_format="qcow2", protected=True),
        made(call, name="c", visibility="private"),
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("name=a", {"a"}),
        ("name=in:a,c", {"a", "c"}),
        ("owner=project-ours", {"a", "b", "c"}),
        ("owner=project-theirs", set()),
        ("visibility=private", {"c"}),
        ("visibility=all", {"a", "b", "c"}),
        ("status=active", set()),
        ("status=in:queued,active", {"a", "b", "c"}),
        ("tag=t", {"b"}),
        ("disk_format=qcow2", {"a"}),
        ("protected=true", {"a"}),
        ("os_distro=x", {"b"}),
        ("created_at=gt:2001-01-01T00:00:00Z", {"a", "b", "c"}),
        ("updated_at=lt:2001-01-01T00:00:00", set()),
        ("os_hidden=true", set()),
        ("size_min=1", set()),
    ],
)
def test_lists_are_filtered(call: Call, three: list[str], query: str, found: set[str]) -> None:
    assert set(names(call("GET", f"/v2/images?{query}"))) == found


def test_a_list_by_ids_has_just_those(call: Call, three: list[str]) -> None:
    assert len(names(call("GET", f"/v2/images?id=in:{three[0]},{three[2]}"))) == 2


def test_lists_are_sorted_and_paged_without_a_gap(call: Call, three: list[str]) -> None:
    assert names(call("GET", "/v2/images")) == ["c", "a", "b"]  # the newest first
    assert names(call("GET", "/v2/images?sort_key=name&sort_dir=desc")) == ["c", "b", "a"]
    page, seen = "/v2/images?limit=1&sort=name:asc", []
    while page:
        answer = call("GET", page)
        seen += names(answer)
        page = answer.json().get("next")
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=x",
        "marker=nowhere",
        "sort=colour:asc",
        "sort_dir=up",
        "visibility=odd",
        "protected=maybe",
        "created_at=gt:yesterday",
        "size_min=x",
        "member_status=odd",
    ],
)
def test_a_query_that_means_nothing_is_a_bad_request(call: Call, three: list[str], query: str) -> None:
    assert call("GET", f"/v2/images?{query}").status_code == 400


# bad requests

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["id", "name", "visibility", "tags", "disk_format", "min_disk", "protected", "owner", "x", ""]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FIELDS), JSON, st.sampled_from(["add", "replace", "remove", ""]))
def test_no_body_of_any_shape_is_an_error_of_the_service(call: Call, field: str, value: object, op: str) -> None:
    assert call("POST", "/v2/images", json={field: value}).status_code < 500
    assert call("POST", "/v2/images", json=value).status_code < 500
    image_id = made(call)
    patch = [{"op": op, "path": f"/{field}", "value": value}]
    assert call("PATCH", f"/v2/images/{image_id}", headers=PATCH, json=patch).status_code < 500
    assert call("PATCH", f"/v2/images/{image_id}", headers=PATCH, json=value).status_code < 500
    assert call("POST", f"/v2/images/{image_id}/members", json={"member": value}).status_code < 500


def test_errors_have_the_shape_that_glances_have_in_json(call: Call) -> None:
    assert call("GET", "/v2/images/nowhere").json() == {
        "code": "404 Not Found",
        "title": "Not Found",
        "message": "No image found with ID nowhere",
    }
