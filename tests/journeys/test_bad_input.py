"""Whatever a client sends, it hears a short 4xx, and nothing is recorded.

No project has any room left in its quota: a create that is right in everything is refused for that, with 403, and so
leaves no trace either. The administrator's project holds the one server there is, which is nobody else's business.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from commands.neighbours.standalone.tokens import Tokens
from gateway.operations import Operation, operations_and_rules
from tests.support.http_client import User, server_body
from tests.support.ledger_process import LedgerProcess, running_ledger

MISSING = "7f0e8c1e-0000-4000-8000-000000000000"
LONGEST_ERROR = 4096
OVER_QUOTA = "Quota exceeded for instances"
MALFORMED = "Malformed request body"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    with running_ledger(tmp_path_factory.mktemp("bad-input")) as process:
        yield process


@dataclass(frozen=True, slots=True)
class World:
    ledger: LedgerProcess
    admin: User
    user: User  # of a project without room for a server
    flavor: str
    image: str  # the user's
    admins_image: str
    network: str
    host: str
    server: str  # the administrator's
    others_request: str  # the id of the request that made it

    def body(self, **more: Any) -> dict[str, Any]:
        return server_body(self.image, self.flavor, **more)

    def refused(self, answer: httpx.Response) -> httpx.Response:
        """An answer that is a short refusal."""
        assert 400 <= answer.status_code < 500, f"{answer.request.url}: {answer.status_code} {answer.text[:500]}"
        assert len(answer.content) < LONGEST_ERROR
        return answer


@pytest.fixture(scope="module")
def everything(ledger: LedgerProcess) -> Iterator[World]:
    with User(ledger, "admin") as admin, User(ledger) as user:
        flavor = admin.create_flavor("tiny")
        private = {"name": "private", "id": "private", "vcpus": 1, "ram": 1, "disk": 1}
        admin("POST", "/flavors", {"flavor": private | {"os-flavor-access:is_public": False}}).raise_for_status()
        admin.set_quota(user.project_id, instances=0)
        image, admins_image = user.upload_image(), admin.upload_image()
        made = admin("POST", "/servers", server_body(admins_image, flavor, "the administrator's"))
        server = made.json()["server"]["id"]
        admin.wait_for(server, "ACTIVE")
        admin.set_quota(admin.project_id, instances=1)
        yield World(
            ledger=ledger,
            admin=admin,
            user=user,
            flavor=flavor,
            image=image,
            admins_image=admins_image,
            network=admin.get("/networks", service="/network/v2.0")["networks"][0]["id"],
            host=admin.get("/os-services")["services"][0]["host"],
            server=server,
            others_request=made.headers["x-compute-request-id"],
        )


@pytest.fixture
def world(everything: World) -> Iterator[World]:
    """Everything that a test does to it is refused: it is as it was when the test ends."""
    before = everything.ledger.position()
    yield everything
    assert everything.ledger.position() == before


def fault(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, key and message of a fault in Nova's form."""
    ((key, inner),) = answer.json().items()
    assert inner["code"] == answer.status_code
    return answer.status_code, key, inner["message"]


# bodies that are no body


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"{'server': 1}",
        b'{"server": NaN}',
        b'{"server": Infinity}',
        b'{"server": {"min_count": 1e400}}',
        b'{"server": {}, "server": {}}',
        b'{"server": {"name": "a", "name": "b"}}',
        b'{"server": {"name": "\\ud800"}}',
        b'{"server": {"name": "\xff\xfe"}}',
        b'{"server": {"name": "a\x00b"}}',
        b'{"server": 01}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"server": {"os:scheduler_hints": ' + b"[" * 40 + b"]" * 40 + b"}}",
    ],
    ids=lambda raw: repr(raw[:30]),
)
@pytest.mark.parametrize("path", ["/servers", "/flavors", f"/servers/{MISSING}/action"])
def test_a_body_that_is_not_json_is_malformed(world: World, path: str, raw: bytes) -> None:
    answer = world.refused(world.admin("POST", path, content=raw))
    assert fault(answer) == (400, "badRequest", MALFORMED)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"server"', b"1", b"true"])
def test_a_body_that_is_no_object_is_refused(world: World, raw: bytes) -> None:
    for path in ("/servers", "/flavors", "/os-keypairs"):
        status, key, message = fault(world.refused(world.admin("POST", path, content=raw)))
        assert (status, key) == (400, "badRequest")
        assert "is not of type 'object'" in message


def test_a_huge_body_is_refused_unread(world: World) -> None:
    huge = json.dumps(world.body(name="x" * (10 << 20))).encode()
    assert world.refused(world.user("POST", "/servers", content=huge)).status_code == 413

    def parts() -> Iterator[bytes]:  # without a length to believe
        for start in range(0, len(huge), 1 << 16):
            yield huge[start : start + (1 << 16)]

    headers = {"X-Auth-Token": world.user.token, "Content-Type": "application/json"}
    answer = world.user.http.post("/compute/v2.1/servers", content=parts(), headers=headers)
    assert world.refused(answer).status_code == 413


@pytest.mark.parametrize("media_type", ["application/xml", "text/html", "multipart/form-data", "application/jso\xff"])
def test_another_media_type_is_refused(world: World, media_type: str) -> None:
    headers = {"Content-Type": media_type.encode("latin-1")}
    answer = world.refused(world.user("POST", "/servers", content=b"{}", headers=headers))
    assert fault(answer) == (415, "badMediaType", "Unsupported Content-Type")


# every field of every body, with everything that may be wrong about it

POISON = (
    "null", "true", "-1", "0", "1.5", "2147483648", "9223372036854775808", "18446744073709551616", "1e308", '""', '" "',
    '"-1"', '"2147483648"', '"99999999999999999999999"', '"1e400"', '"NaN"', '"\\u0000"', '"a\\nb"', '"\\u202e"',
    '"²"', '"١"', '"e\\u0301\U0001f469\u200d\U0001f469"', f'"{"x" * 256}"', f'"{"x" * 70_000}"', f'"{"é" * 30_000}"',
    '"../../etc/passwd"', "\"'; DROP TABLE servers; --\"", '"%00"', "[]", "{}", "[null]", '[[["x"]]]',
    '{"a": null}', '{"": ""}', f'["{"x" * 50_000}"]', f"[{'1,' * 20_000}1]",
    f'{{"{"k" * 50_000}": 1}}', "[" * 30 + "]" * 30,
)  # fmt: skip


def full_server(world: World) -> dict[str, Any]:
    """Right in every field: the quota alone refuses it."""
    return {
        "name": "a server",
        "imageRef": world.admins_image,
        "flavorRef": world.flavor,
        "networks": [{"uuid": world.network}],
        "adminPass": "a password",
        "metadata": {"role": "web"},
        "OS-DCF:diskConfig": "AUTO",
        "accessIPv4": "192.0.2.1",
        "accessIPv6": "2001:db8::1",
        "availability_zone": "nova",
        "block_device_mapping_v2": [
            {"uuid": world.admins_image, "source_type": "image", "destination_type": "local", "boot_index": 0},
            {"source_type": "blank", "destination_type": "local", "boot_index": -1, "volume_size": 1},
        ],
        "config_drive": True,
        "min_count": 1,
        "max_count": 1,
        "return_reservation_id": False,
        "security_groups": [{"name": "default"}],
        "user_data": "aGVsbG8=",
    }


def newer_server(world: World) -> dict[str, Any]:
    more = {"description": "one", "tags": ["a"], "host": world.host, "hypervisor_hostname": world.host}
    return full_server(world) | more | {"hostname": "a-server", "trusted_image_certificates": ["a"]}


def older_server(world: World) -> dict[str, Any]:
    return full_server(world) | {"personality": [{"path": "/etc/motd", "contents": "aGVsbG8="}]}


def old_block_device(world: World) -> dict[str, Any]:
    device = {"device_name": "vda", "volume_id": MISSING, "volume_size": 1, "delete_on_termination": True}
    return {"name": "a server", "flavorRef": world.flavor, "block_device_mapping": [device]}


HINTS = {"same_host": [MISSING], "different_host": MISSING, "query": "[]", "cidr": "/24", "x": "y"}
FLAVOR = {
    "name": "a flavor", "id": "an-id", "ram": 1, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 1, "swap": 1,
    "rxtx_factor": 1.0, "os-flavor-access:is_public": True, "description": "one",
}  # fmt: skip
KEYPAIR = {"name": "a key", "type": "ssh", "public_key": "ssh-ed25519 AAAA x", "user_id": "someone"}
QUOTA = dict.fromkeys(("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups"), 1) | {
    "force": True
}
SERVICE = {"status": "disabled", "disabled_reason": "one"}

LEGACY = "2"  # the API before microversions, which drops what it does not know
Made = Callable[[World], dict[str, Any]]

BODIES: dict[str, tuple[str, str, str, Made]] = {
    "server": ("POST", "/servers", "2.96", lambda w: {"server": newer_server(w), "os:scheduler_hints": HINTS}),
    "old server": ("POST", "/servers", "2.1", lambda w: {"server": older_server(w)}),
    "legacy server": ("POST", "/servers", LEGACY, lambda w: {"server": older_server(w)}),
    "server with a volume": ("POST", "/servers", "2.1", lambda w: {"server": old_block_device(w)}),
    "flavor": ("POST", "/flavors", "2.96", lambda w: {"flavor": FLAVOR}),
    "described flavor": ("PUT", f"/flavors/{MISSING}", "2.96", lambda w: {"flavor": {"description": "one"}}),
    "key pair": ("POST", "/os-keypairs", "2.91", lambda w: {"keypair": KEYPAIR}),
    "quota": ("PUT", f"/os-quota-sets/{MISSING}", "2.96", lambda w: {"quota_set": QUOTA}),
    "service": ("PUT", f"/os-services/{MISSING}", "2.96", lambda w: dict(SERVICE)),
    "reboot": ("POST", f"/servers/{MISSING}/action", "2.96", lambda w: {"reboot": {"type": "SOFT"}}),
    "console": ("POST", f"/servers/{MISSING}/action", "2.96", lambda w: {"os-getConsoleOutput": {"length": 1}}),
    "start": ("POST", f"/servers/{MISSING}/action", "2.96", lambda w: {"os-start": None}),
}


def spoiled(value: Any, wrong: str) -> Iterator[Any]:
    """The value with one part at a time replaced, removed, or joined by a stranger."""
    yield wrong
    if isinstance(value, dict):
        yield value | {"stranger": wrong}
        for key, inner in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: bad} for bad in spoiled(inner, wrong))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], bad, *value[index + 1 :]] for bad in spoiled(inner, wrong))


@pytest.mark.parametrize("what", BODIES)
def test_no_field_of_a_body_can_hurt(everything: World, what: str) -> None:
    method, path, version, make = BODIES[what]
    service = "/compute/v2" if version == LEGACY else "/compute/v2.1"
    ledger, admin, body = everything.ledger, everything.admin, make(everything)
    right = admin(method, path, body, version=version, service=service)
    assert right.status_code not in (400, 500) or what in ("server with a volume", "key pair", "quota"), right.text
    position = ledger.position()
    for shape in sorted({json.dumps(one) for one in spoiled(body, "WRONG")}):
        for poison in POISON if '"WRONG"' in shape else ("",):
            raw = shape.replace('"WRONG"', poison).encode()
            answer = admin(method, path, content=raw, version=version, service=service)
            told = f"{answer.status_code} {answer.text[:200]} to {raw[:2000]!r}"
            assert answer.status_code < 500 or (what == "service" and answer.status_code == 501), told
            if answer.is_error:
                assert len(answer.content) < LONGEST_ERROR, told
                assert ledger.position() == position, told
            else:  # right after all: a flavor of another name, say
                position = ledger.position()


# queries

QUERY_FIELDS = (
    "limit", "marker", "sort_key", "sort_dir", "status", "name", "ip", "ip6", "image", "flavor", "host", "hostname",
    "changes-since", "changes-before", "deleted", "all_tenants", "tags", "not-tags-any", "locked", "vm_state",
    "task_state", "power_state", "created_at", "config_drive", "key_name", "reservation_id", "uuid", "project_id",
    "is_public", "minRam", "minDisk", "user_id", "with_servers", "hypervisor_hostname_pattern", "binary", "tenant_id",
    "stranger", "_ours",
)  # fmt: skip
QUERY_VALUES = (
    "", "%20", "-1", "0", "1.5", "2147483648", "9223372036854775808", "99999999999999999999999", "NaN", "null", "%00",
    "%C2%B2", "%D9%A1", "%FF", "%ED%A0%80", "%F0%9F%92%A9", "x" * 3000, "(", "(a%2B)%2Bb", "[[[", "%27%20OR%201=1%20--",
    "2026-13-45T99:99:99Z", "0001-01-01T00:00:00-23:59", "9999-12-31T23:59:59%2B00:00", "2026-01-01",
)  # fmt: skip
LISTS = (
    "/servers", "/servers/detail", "/flavors", "/flavors/detail", "/os-keypairs", "/os-hypervisors",
    "/os-hypervisors/detail", "/os-services", "/os-availability-zone", "/limits", "/servers/{}/os-instance-actions",
    "/os-quota-sets/{}/detail",
)  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
def test_no_field_of_a_query_can_hurt(world: World, path: str) -> None:
    path = path.format(world.admin.project_id if "quota" in path else world.server)
    for version in ("2.74", "2.104"):  # the last that ignores fields it does not know, and the newest
        for name in QUERY_FIELDS:
            for value in QUERY_VALUES:
                answer = world.admin("GET", f"{path}?{name}={value}", version=version)
                what = f"{version} {path}?{name}={value[:50]}: {answer.status_code} {answer.text[:200]}"
                assert answer.status_code < 500, what
                assert answer.is_success or len(answer.content) < LONGEST_ERROR, what


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=-1", "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"),
        ("foo=1", "'foo' does not match any of the regexes: '^_'"),
        (f"marker={MISSING}", f"marker [{MISSING}] not found"),
        ("status=bogus", "Invalid status value"),
    ],
)
def test_a_bad_query_of_the_server_list_is_told_as_nova_tells_it(world: World, query: str, message: str) -> None:
    status, key, told = fault(world.refused(world.admin("GET", f"/servers?{query}")))
    assert (status, key) == (400, "badRequest")
    assert message in told


def test_a_bad_status_is_an_empty_list_for_old_clients(world: World) -> None:
    assert world.admin.get("/servers?status=bogus", version="2.37") == {"servers": []}


@pytest.mark.parametrize("key", ["bogus", "id; DROP TABLE servers", "NAME", "x" * 5000])
def test_a_bad_sort_key_is_refused(world: World, key: str) -> None:
    for path in ("/servers", "/servers/detail", "/flavors"):
        answer = world.refused(world.admin("GET", f"{path}?{httpx.QueryParams({'sort_key': key})}"))
        assert fault(answer)[:2] == (400, "badRequest")


def test_a_limit_of_very_much_is_the_most_there_is_and_one_of_none_is_none(world: World) -> None:
    for limit in ("1000000", "9223372036854775807"):
        assert len(world.admin.get(f"/servers?limit={limit}")["servers"]) == 1
    assert world.admin.get("/servers?limit=0")["servers"] == []


# a server's fields, as Nova answers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "Invalid input for field/attribute name. Value: None. None is not of type 'string'"),
        ({"name": ""}, "'' should be non-empty"),
        ({"name": "x" * 256}, "is too long"),
        ({"name": " x"}, "Can not start or end with whitespace."),
        ({"name": "a\u0000b"}, "printable characters"),
        ({"flavorRef": "99"}, "Flavor 99 could not be found."),
        ({"flavorRef": "private-to-nobody"}, "Flavor private-to-nobody could not be found."),
        ({"imageRef": MISSING}, "Can not find requested image"),
        ({"imageRef": "not-a-uuid"}, "Invalid input for field/attribute imageRef."),
        ({"key_name": "none"}, "Invalid key_name provided."),
        ({"min_count": 2, "max_count": 1}, "min_count must be <= max_count"),
        ({"min_count": 0}, "0 is less than the minimum of 1"),
        ({"user_data": "A" * 65_536}, "is too long"),
        ({"user_data": "not base64!"}, "Invalid input for field/attribute user_data."),
        ({"user_data": "abc"}, "Invalid input for field/attribute user_data."),
        ({"availability_zone": "nowhere"}, "The requested availability zone is not available"),
        ({"metadata": {"x": "v" * 256}}, "is too long"),
        ({"metadata": {"x": 1}}, "1 is not of type 'string'"),
        ({"bogus": 1}, "Additional properties are not allowed ('bogus' was unexpected)"),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_server_that_cannot_be_made_is_refused_in_novas_words(
    world: World, change: Mapping[str, Any], message: str
) -> None:
    status, key, told = fault(world.refused(world.user("POST", "/servers", changed(world, change))))
    assert (status, key) == (400, "badRequest")
    assert message in told


def test_more_metadata_than_the_quota_allows_is_forbidden(world: World) -> None:
    metadata = {f"k{number}": "v" for number in range(129)}
    answer = world.refused(world.user("POST", "/servers", changed(world, {"metadata": metadata})))
    assert fault(answer) == (403, "forbidden", "Maximum number of metadata items exceeds 128")


def changed(world: World, change: Mapping[str, Any]) -> dict[str, Any]:
    return {"server": world.body()["server"] | change}


def test_a_missing_name_or_network_is_named(world: World) -> None:
    for field in ("name", "networks"):
        body = world.body()
        del body["server"][field]
        status, _, told = fault(world.refused(world.user("POST", "/servers", body)))
        assert status == 400
        assert told.startswith("Invalid input for field/attribute server. Value: {")
        assert told.endswith(f"'{field}' is a required property")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "x" * 255},
        {"name": "e\u0301 \U0001f469"},
        {"user_data": base64.b64encode(b"x" * 49_149).decode()},  # 65,532 characters: the most that fits
        {"metadata": {"k" * 255: "v" * 255}},
        {"min_count": 1, "max_count": 2**31},
        {"description": None},
    ],
    ids=lambda x: repr(x)[:40],
)
def test_what_is_just_allowed_is_refused_for_the_quota_alone(world: World, change: Mapping[str, Any]) -> None:
    status, key, told = fault(world.refused(world.user("POST", "/servers", changed(world, change))))
    assert (status, key) == (403, "forbidden")
    assert told.startswith(OVER_QUOTA)


def test_a_refusal_never_repeats_a_secret(world: World) -> None:
    secrets = {"adminPass": "canary-password", "user_data": "canary-user-data?"}
    for change in ({**secrets, "bogus": 1}, {**secrets, "name": None}, {"adminPass": ["canary-password"]}, secrets):
        assert "canary" not in world.refused(world.user("POST", "/servers", changed(world, change))).text


# actions


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"bogus": None}, "There is no such action: bogus"),
        ({"x" * 100_000: None}, "There is no such action: x"),
        ({"os-start": None, "os-stop": None}, MALFORMED),
        ({}, MALFORMED),
        ({"reboot": {"type": "GENTLE"}}, "Invalid input for field/attribute type. Value: GENTLE."),
        ({"reboot": None}, "Invalid input for field/attribute reboot. Value: None."),
        ({"os-getConsoleOutput": {"length": -2}}, "Invalid input for field/attribute length."),
        ({"os-getConsoleOutput": {"length": "1e3"}}, "Invalid input for field/attribute length."),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_bad_action_is_refused(world: World, body: Mapping[str, Any], message: str) -> None:
    for server in (world.server, MISSING):
        status, key, told = fault(world.refused(world.admin("POST", f"/servers/{server}/action", body)))
        assert (status, key) == (400, "badRequest")
        assert message in told


def test_an_action_from_the_wrong_state_says_so(world: World) -> None:
    answer = world.refused(world.admin("POST", f"/servers/{world.server}/action", {"os-start": None}))
    told = f"Cannot 'start' instance {world.server} while it is in vm_state active"
    assert fault(answer) == (409, "conflictingRequest", told)


# what is not there, and what is somebody else's

SURFACE = [
    operation
    for operation in operations_and_rules()[0]
    if "{server_id}" in operation.path and operation.kind in (None, "alias_404_when_new")
]


@pytest.mark.parametrize("server", [MISSING, "not-a-uuid", "1", "²", "a%00b", "x" * 1000])
def test_a_server_that_is_not_there_is_not_found(world: World, server: str) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/os-instance-actions", None),
        ("POST", "/action", {"os-stop": None}),
        ("POST", "/action", {"os-getConsoleOutput": {}}),
    ):
        answer = world.refused(world.user(method, f"/servers/{server}{path}", body))
        status, key, told = fault(answer)
        assert (status, key) == (404, "itemNotFound")
        assert re.fullmatch(r"Instance .* could not be found\.", told, re.DOTALL)


@pytest.mark.parametrize("operation", SURFACE, ids=str)
def test_another_projects_server_answers_as_one_that_is_not_there(world: World, operation: Operation) -> None:
    def answer(server: str) -> tuple[int, str]:
        path = re.sub(r"\{(?!server_id)\w+\}", MISSING, operation.path).replace("{server_id}", server)
        body = {operation.action: None} if operation.action else {}
        version = str(operation.newest or "2.104")
        got = world.user(operation.method, path, body if operation.method in ("POST", "PUT") else None, version=version)
        assert got.status_code != 500
        return got.status_code, got.text.replace(server, "ID")

    theirs, nobodys = answer(world.server), answer(MISSING)
    assert theirs == nobodys
    assert theirs[0] in (400, 403, 404, 501)


@pytest.mark.parametrize("path", ["", "/os-instance-actions", "/os-instance-actions/{request}"])
def test_nothing_of_another_projects_server_can_be_read(world: World, path: str) -> None:
    path = path.format(request=world.others_request)
    status, key, told = fault(world.refused(world.user("GET", f"/servers/{world.server}{path}")))
    assert (status, key, told) == (404, "itemNotFound", f"Instance {world.server} could not be found.")
    assert world.admin("GET", f"/servers/{world.server}{path}").status_code == 200


def test_no_other_thing_of_another_project_can_be_used(world: World) -> None:
    def same(method: str, path: str, theirs: str, nobodys: str, body: Any = None) -> tuple[int, str]:
        def answer(thing: str) -> tuple[int, str]:
            sent = None if body is None else json.loads(json.dumps(body).replace("THING", thing))
            got = world.refused(world.user(method, path.replace("THING", thing), sent))
            return got.status_code, got.text.replace(thing, "THING")

        assert answer(theirs) == answer(nobodys)
        return answer(theirs)

    server = world.body()["server"]
    assert same("GET", "/servers?marker=THING", world.server, MISSING)[0] == 400
    assert same("POST", "/servers", world.admins_image, MISSING, {"server": server | {"imageRef": "THING"}})[0] == 400
    assert same("POST", "/servers", "private", "nobodys", {"server": server | {"flavorRef": "THING"}})[0] == 400
    assert same("GET", "/flavors/THING", "private", "nobodys")[0] == 404
    assert same("GET", "/flavors/THING/os-extra_specs", "private", "nobodys")[0] == 404
    assert same("GET", "/flavors?marker=THING", "private", "nobodys")[0] == 400
    assert same("GET", "/os-quota-sets/THING", world.admin.project_id, "0" * 32)[0] == 403
    assert same("GET", "/limits?tenant_id=THING", world.admin.project_id, "0" * 32)[0] == 403
    assert same("GET", "/os-keypairs?user_id=THING", world.admin.user_id, "0" * 32)[0] == 403
    assert same("GET", "/THING/servers", world.admin.project_id, "0" * 32)[0] == 400


# who asks


def test_a_token_that_is_missing_wrong_or_expired_is_told_where_to_log_in(world: World) -> None:
    tokens = Tokens(world.ledger.directory / "token.key")
    claims = tokens.open(world.user.token)
    assert claims is not None
    expired = tokens.seal(replace(claims, audit_ids=("old",), issued_at=1.0, expires_at=2.0))
    forged = Tokens(world.ledger.directory.parent / "another.key").seal(claims)
    for token in ("", "wrong", "x" * 5000, "\xff", expired, forged, world.user.token[:-2], world.user.token + "x"):
        for method, path in (("GET", "/servers"), ("POST", "/servers"), ("DELETE", f"/servers/{MISSING}")):
            headers = {"X-Auth-Token": token.encode("latin-1")}
            answer = world.refused(world.user(method, path, headers=headers))
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{world.ledger.url}/identity"'
            assert answer.json()["error"]["code"] == 401
            assert answer.json()["error"]["title"] == "Unauthorized"


def test_a_revoked_token_is_worth_nothing(world: World) -> None:
    with User(world.ledger) as leaving:
        leaving.get("/servers")
        headers = {"X-Subject-Token": leaving.token}
        assert leaving("DELETE", "/auth/tokens", headers=headers, service="/identity/v3").status_code == 204
        assert world.refused(leaving("GET", "/servers")).status_code == 401


def test_a_token_for_no_project_has_no_servers(world: World) -> None:
    auth = world.ledger.credentials("admin")
    user = {"name": auth["username"], "password": auth["password"], "domain": {"name": "Default"}}
    login = {"identity": {"methods": ["password"], "password": {"user": user}}}
    for scope in ("unscoped", {"system": {"all": True}}):
        answer = world.user.http.post("/identity/v3/auth/tokens", json={"auth": login | {"scope": scope}})
        headers = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
        for method, path, body in (
            ("GET", "/servers", None),
            ("GET", "/limits", None),
            ("POST", "/servers", world.body()),
            ("DELETE", f"/servers/{MISSING}", None),
        ):
            assert world.refused(world.user(method, path, body, headers=headers)).status_code in (400, 403, 404)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/flavors", {"flavor": {"name": "x", "vcpus": 1, "ram": 1, "disk": 1}}),
        ("DELETE", "/flavors/tiny", None),
        ("GET", "/os-hypervisors", None),
        ("GET", "/os-services", None),
        ("PUT", f"/os-quota-sets/{MISSING}", {"quota_set": {"instances": 1}}),
        ("GET", "/servers?all_tenants=1", None),
    ],
)
def test_a_user_may_not_do_what_is_the_administrators(world: World, method: str, path: str, body: Any) -> None:
    status, key, told = fault(world.refused(world.user(method, path, body)))
    assert (status, key) == (403, "forbidden")
    assert re.search(r"os_compute_api:[\w:-]+", told)  # the rule is named


# versions


@pytest.mark.parametrize("version", ["2.0", "2.105", "2.999", "1.1", "3.1", "999.999"])
def test_a_version_that_is_not_served_is_406_and_echoed(world: World, version: str) -> None:
    answer = world.refused(world.user("GET", "/servers", version=version))
    status, key, told = fault(answer)
    assert (status, key) == (406, "computeFault")
    assert told == f"Version {version} is not supported by the API. Minimum is 2.1 and maximum is 2.104."
    assert answer.headers["OpenStack-API-Version"] == f"compute {version}"
    assert answer.headers["X-OpenStack-Nova-API-Version"] == version


@pytest.mark.parametrize("version", ["abc", "2", "2.", "2.1.1", "-2.1", "2.01", "²", "9" * 5000])
def test_a_version_of_another_form_is_400(world: World, version: str) -> None:
    headers = {"OpenStack-API-Version": f"compute {version}".encode("latin-1")}
    answer = world.refused(world.user("GET", "/servers", headers=headers))
    status, key, told = fault(answer)
    assert (status, key) == (400, "badRequest")
    assert re.fullmatch(
        r"API Version String .* is of invalid format\. Must be of format MajorNum\.MinorNum\.", told, re.DOTALL
    )
    assert "OpenStack-API-Version" not in answer.headers


# paths


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/bogus"), ("PATCH", "/servers"), ("PUT", "/servers"), ("HEAD", "/servers"),
        ("GET", "/servers/x/y/z"), ("DELETE", "/flavors"), ("GET", "//servers"), ("GET", "/%FF%FE"),
        ("GET", "/" + "a/" * 3000), ("TRACE", "/"),
    ],
)  # fmt: skip
def test_an_unknown_path_or_method_is_404_in_plain_text(world: World, method: str, path: str) -> None:
    url = httpx.URL(world.ledger.url).copy_with(raw_path=b"/compute/v2.1" + path.encode())
    answer = world.refused(world.user.http.request(method, url, headers={"X-Auth-Token": world.user.token}))
    assert answer.status_code == 404
    assert not answer.headers["Content-Type"].startswith("application/json")
    assert "OpenStack-API-Version" not in answer.headers


def test_an_unbuilt_operation_says_that_it_is_not_implemented(world: World) -> None:
    for method, path, body in (
        ("POST", f"/servers/{world.server}/action", {"trigger_crash_dump": None}),
        ("GET", f"/servers/{world.server}/topology", None),
    ):
        answer = world.admin(method, path, body)
        assert answer.status_code == 501
        assert fault(answer)[1] == "notImplemented"


@pytest.mark.parametrize("service", ["/identity/v3/auth/tokens", "/image/v2/images"])
@pytest.mark.parametrize("poison", POISON, ids=lambda poison: repr(poison[:20]))
def test_the_services_beside_it_take_no_harm_either(world: World, service: str, poison: str) -> None:
    good: dict[str, Any] = {
        "/identity/v3/auth/tokens": {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": "x", "password": "y", "domain": {"name": "Default"}}},
                },
                "scope": {"project": {"name": "demo", "domain": {"id": "default"}}},
            }
        },
        "/image/v2/images": {
            "name": "x", "disk_format": "raw", "container_format": "bare", "min_disk": 1, "visibility": "private",
            "tags": ["a"], "protected": False,
        },
    }  # fmt: skip
    for shape in sorted({json.dumps(one) for one in spoiled(good[service], "WRONG")}):
        raw = shape.replace('"WRONG"', poison).encode()
        if service.startswith("/identity") and '"y"' in shape and '"name": "x"' in shape:
            continue  # hashing a password that is right in form is slow on purpose
        answer = world.user("POST", "", content=raw, service=service)
        assert answer.status_code < 500, f"{raw[:300]!r}: {answer.text[:200]}"


# what is allowed, comes back as it was sent


@pytest.mark.parametrize(
    "name",
    ["日本語のサーバー", "naïve café", "e\u0301 is not é", "\U0001f4a9 pile", "مرحبا", "a 'quoted\" \\ <name> & more"],
)
def test_a_name_in_any_script_comes_back_as_it_was_sent(everything: World, name: str) -> None:
    admin = everything.admin
    admin.set_quota(admin.project_id, instances=2)
    server = admin.create_server(everything.admins_image, everything.flavor, name)
    assert admin.wait_for(server, "ACTIVE")["name"] == name
    found = admin.get(f"/servers?{httpx.QueryParams({'name': f'^{re.escape(name)}$'})}")["servers"]
    assert [one["id"] for one in found] == [server]
    admin.delete_server(server)
    admin.wait_until_gone(server)
