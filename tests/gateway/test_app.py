"""What happens to a request before and after its handler."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from commands.event_store import StoreUnavailable
from domain.errors import InstanceNotFound
from gateway.access_log import write_line
from gateway.faults import Fault
from gateway.policy import Policy
from gateway.request import Handler, HandlerKey, Request, Response
from tests.support.compute_api import BASE, OTHER_PROJECT, PROJECT, Client, fault

POLICY = Policy()
ACTION = "/servers/{server_id}/action"
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MICROVERSION_HEADERS = ("OpenStack-API-Version", "X-OpenStack-Nova-API-Version")

seen: list[Request] = []


async def show(request: Request) -> Response:
    seen.append(request)
    return Response(
        {"server": {"id": request.path_params["server_id"], "links": [request.base_url, request.bookmark_url]}}
    )


async def ready_json(request: Request) -> Response:
    seen.append(request)
    return Response(b'{"servers":[]}')


async def create(request: Request) -> Response:
    seen.append(request)
    return Response({"server": {"id": "1"}}, 202, [("location", f"{request.base_url}/servers/1")])


async def accept(request: Request) -> Response:
    seen.append(request)
    return Response(status=202)


async def delete(request: Request) -> Response:
    match request.path_params["server_id"]:
        case "missing":
            raise InstanceNotFound("missing")
        case "no-store":
            raise StoreUnavailable("disk I/O error at /secret/path")
        case "bug":
            raise KeyError("a secret")
        case "teapot":
            raise Fault(409, "not now", retry_after_s=3)
        case "surrogate":
            return Response({"name": "\ud800"})
        case _:
            return Response(status=204)


async def quota(request: Request) -> Response:
    return Response({"quota_set": {}})


HANDLERS: dict[HandlerKey, Handler] = {
    ("GET", "/servers/{server_id}"): show,
    ("GET", "/servers/detail"): ready_json,
    ("POST", "/servers"): create,
    ("DELETE", "/servers/{server_id}"): delete,
    ("POST", ACTION, "os-stop"): accept,
    ("GET", "/os-quota-sets/{project_id}"): quota,
    ("GET", "/os-hypervisors"): ready_json,
    ("GET", "/os-console-auth-tokens/{console_token}"): quota,
}


@pytest.fixture
def client() -> Iterator[Client]:
    seen.clear()
    yield Client(HANDLERS, POLICY, max_body_bytes=4096)
    seen.clear()


# what every answer has


def test_every_answer_has_a_request_id_under_both_names_and_logs_it(client: Client) -> None:
    responses = [
        client("GET", "/v2.1/servers/1"),
        client("GET", "/v2.1/servers/1", token=None),
        client("GET", "/v2.1/nope"),
        client("GET", "/"),
        client("DELETE", "/v2.1/servers/missing"),
    ]
    for response, line in zip(responses, client.log, strict=True):
        request_id = response.headers["x-openstack-request-id"]
        assert REQUEST_ID.fullmatch(request_id)
        assert response.headers["x-compute-request-id"] == line["request_id"] == request_id
        assert line["status"] == response.status_code


def test_the_callers_own_request_id_is_logged_when_it_is_one(client: Client) -> None:
    theirs = "req-0d9a6b9a-3f4c-4b1e-9d6a-1a2b3c4d5e6f"
    response = client("GET", "/v2.1/servers/1", headers={"X-OpenStack-Request-ID": theirs})
    assert response.headers["x-openstack-request-id"] != theirs
    assert (client.log[-1]["global_request_id"], seen[-1].global_request_id) == (theirs, theirs)
    client("GET", "/v2.1/servers/1", headers={"X-OpenStack-Request-ID": 'req-1" injected'})
    assert client.log[-1]["global_request_id"] is None


def test_an_answer_says_its_version_in_both_headers_and_varies_by_both(client: Client) -> None:
    response = client("GET", "/v2.1/servers/1", version="2.90")
    assert response.headers["OpenStack-API-Version"] == "compute 2.90"
    assert response.headers["X-OpenStack-Nova-API-Version"] == "2.90"
    assert response.headers.get_list("Vary") == list(MICROVERSION_HEADERS)
    assert client("GET", "/v2.1/servers/1", version="latest").headers["X-OpenStack-Nova-API-Version"] == "2.104"
    assert client("GET", "/v2.1/servers/1").headers["X-OpenStack-Nova-API-Version"] == "2.1"


def test_a_refusal_within_a_version_says_that_version(client: Client) -> None:
    response = client("DELETE", "/v2.1/servers/missing", version="2.90")
    assert fault(response) == (404, "itemNotFound", "Instance missing could not be found.")
    assert response.headers["X-OpenStack-Nova-API-Version"] == "2.90"


def test_a_malformed_version_is_400_without_and_an_unknown_one_406_with_version_headers(client: Client) -> None:
    malformed = client("GET", "/v2.1/servers/1", version="abc")
    assert fault(malformed)[:2] == (400, "badRequest")
    assert not any(header in malformed.headers for header in MICROVERSION_HEADERS)
    unknown = client("GET", "/v2.1/servers/1", version="2.105")
    assert fault(unknown)[:2] == (406, "computeFault")
    assert unknown.headers["OpenStack-API-Version"] == "compute 2.105"


# paths


def test_versions_are_told_without_a_token(client: Client) -> None:
    listed = client("GET", "/", token=None).json()["versions"]
    assert [(one["id"], one["links"][0]["href"]) for one in listed] == [
        ("v2.0", f"{BASE}/compute/v2/"),
        ("v2.1", f"{BASE}/compute/v2.1/"),
    ]
    for path in ("/v2.1/", "/v2.1/versions/v2.1"):
        version = client("GET", path, token=None).json()["version"]
        assert (version["min_version"], version["version"], version["status"]) == ("2.1", "2.104", "CURRENT")
    assert client("GET", "/v2/", token=None).json()["version"]["version"] == ""
    assert fault(client("GET", "/v2.1/versions/v3", token=None))[0] == 404


def test_a_path_without_a_version_is_300_with_the_choices(client: Client) -> None:
    response = client("GET", "/servers", token=None)
    assert response.status_code == 300
    assert [one["links"][0]["href"] for one in response.json()["choices"]] == [
        f"{BASE}/compute/v2.1/servers",
        f"{BASE}/compute/v2/servers",
    ]
    assert client("POST", "/servers", token=None).status_code == 404


def test_the_prefix_without_its_slash_is_302(client: Client) -> None:
    response = client("GET", "/v2.1", token=None)
    assert (response.status_code, response.headers["location"]) == (302, f"{BASE}/compute/v2.1/")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2.1/nope"),
        ("PATCH", "/v2.1/servers"),
        ("GET", f"/v2.1/{PROJECT}"),
        ("HEAD", "/v2.1/servers"),
        ("POST", "/v2.1/"),
    ],
)
def test_an_unknown_path_or_method_is_404_in_text_without_version_headers(
    client: Client, method: str, path: str
) -> None:
    response = client(method, path, headers={"Accept": ""})
    assert response.status_code == 404
    assert response.headers["content-type"] == "text/plain; charset=UTF-8"
    assert not any(header in response.headers for header in MICROVERSION_HEADERS)


def test_links_keep_the_project_id_when_the_path_has_it(client: Client) -> None:
    short, long = client("GET", "/v2.1/servers/1").json(), client("GET", f"/v2.1/{PROJECT}/servers/1").json()
    assert short["server"]["links"] == [f"{BASE}/compute/v2.1", f"{BASE}/compute"]
    assert long["server"]["links"] == [f"{BASE}/compute/v2.1/{PROJECT}", f"{BASE}/compute/{PROJECT}"]


def test_a_path_with_another_project_is_400(client: Client) -> None:
    for token in ("member", "admin"):
        assert fault(client("GET", f"/v2.1/{OTHER_PROJECT}/servers/1", token=token)) == (
            400,
            "badRequest",
            f"Malformed request URL: URL's project_id '{OTHER_PROJECT}' doesn't match Context's project_id '{PROJECT}'",
        )


def test_what_is_not_built_is_501_and_what_is_gone_410(client: Client) -> None:
    assert fault(client("GET", "/v2.1/os-aggregates")) == (
        501,
        "notImplemented",
        "GET /os-aggregates is not implemented.",
    )
    assert fault(client("GET", "/v2.1/os-cells"))[:2] == (410, "computeFault")
    assert fault(client("GET", "/v2.1/images", version="2.36"))[:2] == (404, "itemNotFound")


def test_v2_has_no_microversions_and_drops_what_it_does_not_know(client: Client) -> None:
    response = client(
        "POST", "/v2/servers", version="2.90", json={"server": {"name": " a", "flavorRef": "1", "bogus": 1}}
    )
    assert response.status_code == 202
    assert not any(header in response.headers for header in (*MICROVERSION_HEADERS, "Vary"))
    assert seen[-1].body == {"server": {"name": " a", "flavorRef": "1"}}
    assert (seen[-1].legacy_v2, str(seen[-1].version), seen[-1].base_url) == (True, "2.1", f"{BASE}/compute/v2")
    assert client("GET", "/v2/servers/1", version="2.105").status_code == 200


# who


def test_without_a_token_it_is_401_in_the_form_of_keystones_middleware(client: Client) -> None:
    for response in (client("GET", "/v2.1/servers/1", token=None), client("GET", "/v2.1/nope", token="stolen")):
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == f'Keystone uri="{BASE}/identity"'
        assert response.json() == {
            "error": {
                "code": 401,
                "title": "Unauthorized",
                "message": "The request you have made requires authentication.",
            }
        }


def test_policy_is_asked_with_the_project_that_the_path_names(client: Client) -> None:
    assert client("GET", f"/v2.1/os-quota-sets/{PROJECT}", token="reader").status_code == 200
    denied = client("GET", f"/v2.1/os-quota-sets/{OTHER_PROJECT}", token="reader")
    assert fault(denied) == (
        403,
        "forbidden",
        "Policy doesn't allow os_compute_api:os-quota-sets:show to be performed.",
    )
    assert client("GET", f"/v2.1/os-quota-sets/{OTHER_PROJECT}", token="admin").status_code == 200


def test_a_reader_changes_nothing_and_a_member_is_no_admin(client: Client) -> None:
    assert fault(client("POST", "/v2.1/servers/1/action", token="reader", json={"os-stop": None}))[0] == 403
    assert fault(client("GET", "/v2.1/os-hypervisors", token="member"))[0] == 403
    assert seen == []
    assert client("GET", "/v2.1/os-hypervisors", token="admin").status_code == 200


# bodies


def test_a_handler_gets_the_valid_body_and_its_answer_is_sent(client: Client) -> None:
    body = {"server": {"name": "веб", "flavorRef": "1"}}
    response = client("POST", "/v2.1/servers", json=body)
    assert response.status_code == 202
    assert response.headers["location"] == f"{BASE}/compute/v2.1/servers/1"
    assert seen[-1].body == body


def test_ready_json_is_sent_as_it_is_and_nothing_as_nothing(client: Client) -> None:
    listed = client("GET", "/v2.1/servers/detail?limit=1&name=a&name=b")
    assert (listed.content, listed.headers["content-type"]) == (b'{"servers":[]}', "application/json")
    assert seen[-1].query.all("name") == ["a", "b"]
    accepted = client("POST", "/v2.1/servers/1/action", json={"os-stop": None})
    assert (accepted.status_code, accepted.content, accepted.headers["content-length"]) == (202, b"", "0")
    assert "content-type" not in accepted.headers
    assert seen[-1].action == "os-stop"
    deleted = client("DELETE", "/v2.1/servers/1")
    assert (deleted.status_code, "content-length" in deleted.headers) == (204, False)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"a":1,"b":2}', b'{"os-stop":null,"os-stop":null}', b"[1]"]
)
def test_a_body_without_one_action_is_400(client: Client, content: bytes) -> None:
    response = client("POST", "/v2.1/servers/1/action", content=content)
    assert fault(response) == (400, "badRequest", "Malformed request body")


def test_an_unknown_action_is_400(client: Client) -> None:
    response = client("POST", "/v2.1/servers/1/action", json={"bogus": None})
    assert fault(response) == (400, "badRequest", "There is no such action: bogus")


def test_a_body_of_another_type_is_415(client: Client) -> None:
    for content_type, status in (
        ("application/xml", 415),
        ("text/html", 415),
        ("application/json; charset=UTF-8", 202),
    ):
        response = client(
            "POST",
            "/v2.1/servers/1/action",
            content=b'{"os-stop":null}',
            headers={"Content-Type": content_type},
        )
        assert response.status_code == status


def test_a_body_that_says_it_is_too_large_is_refused_unread(client: Client) -> None:
    response = client("POST", "/v2.1/servers", token=None, content=b"x" * 10_000_000, headers={"Accept": ""})
    assert (response.status_code, response.text) == (
        413,
        "413 Request Entity Too Large\n\nRequest is too large.\n\n   ",
    )


def test_a_body_that_turns_out_too_large_is_read_no_further(client: Client) -> None:
    read: list[int] = []

    async def chunks() -> Any:
        for number in range(1000):
            read.append(number)
            yield b"x" * 1024

    assert client("POST", "/v2.1/servers", content=chunks()).status_code == 413
    assert len(read) < 20


def test_a_length_that_is_no_number_is_400(client: Client) -> None:
    for length in ("-1", "1e3", "٣"):
        sent = {"Content-Length": length.encode()}
        response = client("POST", "/v2.1/servers", content=b"{}", headers=sent)  # type: ignore[arg-type]
        assert response.status_code == 400


def test_a_client_that_leaves_in_the_middle_is_answered_nothing(client: Client) -> None:
    sent: list[Any] = []

    async def leave() -> None:
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/compute/v2.1/servers",
            "root_path": "/compute",
            "query_string": b"",
            "headers": [(b"x-auth-token", b"member")],
            "scheme": "http",
            "server": ("cloud", 80),
        }
        await client.app(scope, receive, send)

    asyncio.run(leave())
    assert sent == []


# failures


def test_a_bug_is_500_without_its_nature_and_is_logged_under_the_request_id(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = client("DELETE", "/v2.1/servers/bug", version="2.90")
    status, key, message = fault(response)
    assert (status, key) == (500, "computeFault")
    assert "KeyError" not in message
    assert "a secret" not in message
    assert response.headers["x-openstack-request-id"] in message
    assert response.headers["x-openstack-request-id"] in caplog.text
    assert "KeyError" in caplog.text
    assert fault(client("DELETE", "/v2.1/servers/surrogate"))[0] == 500


def test_a_store_that_does_not_answer_is_503(client: Client) -> None:
    response = client("DELETE", "/v2.1/servers/no-store")
    assert fault(response)[:2] == (503, "serviceUnavailable")
    assert response.headers["Retry-After"] == "2"
    assert "secret" not in response.text


def test_a_fault_of_a_handler_is_sent_with_its_headers(client: Client) -> None:
    response = client("DELETE", "/v2.1/servers/teapot")
    assert fault(response) == (409, "conflictingRequest", "not now")
    assert response.headers["Retry-After"] == "3"


# the log


def test_the_log_has_no_query_no_token_and_no_console_token(client: Client) -> None:
    client("GET", "/v2.1/servers/detail?name=hush", token="member")
    client("GET", "/v2.1/os-console-auth-tokens/hush", token="admin")
    assert "hush" not in str(client.log)
    assert "member" not in str(client.log)
    assert client.log[0]["path"] == "/compute/v2.1/servers/detail"
    assert client.log[1]["path"] == "/compute/v2.1/os-console-auth-tokens/***"
    assert (client.log[0]["user_id"], client.log[0]["project_id"]) == ("user", PROJECT)
    assert client.log[0]["ms"] >= 0


def test_a_line_of_the_log_is_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_line({"path": "/servers\n", "status": 200})
    line = capfdbinary.readouterr().err
    assert line.count(b"\n") == 1
    assert orjson.loads(line)["path"] == "/servers\n"


def test_any_bytes_in_path_query_and_headers_are_answered(client: Client) -> None:
    for path in (
        "/v2.1/servers/%ff",
        "/v2.1/servers/%00",
        "/v2.1/servers/1?%ff=%ff",
        "/v2.1/servers/" + "x" * 9000,
        "/v2.1/%2e%2e/x",
    ):
        assert client("GET", path).status_code < 500
    for value in (b"\xff", b"compute \xff", b"compute 2.1,\xff"):
        response: httpx.Response = client("GET", "/v2.1/servers/1", headers={"OpenStack-API-Version": value})  # type: ignore[dict-item]
        assert response.status_code < 500
