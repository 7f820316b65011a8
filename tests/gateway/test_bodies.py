"""Bodies and queries: what passes, and what a client is told of what does not."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.bodies import BODIES, Validation, action_of, parse_json
from gateway.faults import Fault
from gateway.microversions import NEWEST, OLDEST, V, Version
from gateway.operations import Operation, OperationKey, operations_and_rules
from gateway.request import Query
from gateway.schemas.queries import QUERIES
from tests.support.compute_api import refused

VALIDATION = Validation()
OPERATIONS = {operation.key: operation for operation in operations_and_rules()[0] if operation.kind is None} | {
    operation.key: operation for operation in operations_and_rules()[0] if operation.kind == "legacy_form_404_when_new"
}
CREATE, UPDATE = ("POST", "/servers"), ("PUT", "/servers/{server_id}")
ACTION = "/servers/{server_id}/action"
UUID = "0d9a6b9a-3f4c-4b1e-9d6a-1a2b3c4d5e6f"
SECRET = "hunter2-and-more"


def operation(key: OperationKey) -> Operation:
    return OPERATIONS[key]


def checked(key: OperationKey, version: Version, body: Any, *, loose: bool = False) -> Any:
    return VALIDATION.body(operation(key), version, body, loose=loose)


def refusal(key: OperationKey, version: Version, body: Any, *, loose: bool = False) -> str:
    with pytest.raises(Fault) as raised:
        checked(key, version, body, loose=loose)
    assert raised.value.status == 400
    assert len(raised.value.body("")[1]) < 4096
    return raised.value.message


def queried(key: OperationKey, version: Version, raw: str, *, loose: bool = False) -> Query:
    return VALIDATION.query(operation(key), version, Query.parse(raw.encode()), loose=loose)


def query_refusal(key: OperationKey, version: Version, raw: str) -> str:
    with pytest.raises(Fault) as raised:
        queried(key, version, raw)
    assert raised.value.status == 400
    assert len(raised.value.body("")[1]) < 4096
    return raised.value.message


def server(version: Version = OLDEST, **fields: Any) -> dict[str, Any]:
    least: dict[str, Any] = {"name": "web", "flavorRef": "1"}
    if version >= V(2, 37):
        least["networks"] = "auto"
    return {"server": least | fields}


# JSON


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nope",
        b"{'a': 1}",
        b'{"a": 1, "a": 2}',
        b'{"b": {"a": 1, "\\u0061": 2}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e400}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": 1} {"b": 2}',
        b"[" * 50_000,
        b"[" * 100 + b"]" * 100,
        b'{"a":' * 40 + b"1" + b"}" * 40,
        "﻿{}".encode("utf-16"),
    ],
)
def test_what_is_not_plain_json_is_a_malformed_body(raw: bytes) -> None:
    with pytest.raises(Fault, match="Malformed request body") as raised:
        parse_json(raw)
    assert raised.value.status == 400


def test_text_in_any_script_is_read_as_it_is() -> None:
    assert parse_json('{"name": "веб 🖥 \\u00e9"}'.encode()) == {"name": "веб 🖥 é"}


def test_brackets_within_text_are_not_nesting() -> None:
    assert parse_json(b'{"a": "' + b"[{" * 500 + b'"}')


@pytest.mark.parametrize("body", [None, [], ["os-start"], {}, {"os-start": None, "os-stop": None}, "os-start", 1])
def test_an_action_body_has_one_key(body: Any) -> None:
    with pytest.raises(Fault, match="Malformed request body"):
        action_of(body)


# servers


FULL = {
    "imageRef": UUID,
    "adminPass": SECRET,
    "metadata": {"role": "web: 1_2-3.4"},
    "networks": [{"uuid": UUID, "fixed_ip": "10.0.0.5"}, {"port": UUID}],
    "OS-DCF:diskConfig": "AUTO",
    "accessIPv4": "192.0.2.1",
    "accessIPv6": "2001:db8::1",
    "availability_zone": "nova",
    "block_device_mapping_v2": [
        {"uuid": UUID, "source_type": "image", "destination_type": "volume", "boot_index": 0, "volume_size": "10"}
    ],
    "config_drive": "True",
    "key_name": "my key",
    "min_count": 1,
    "max_count": "2",
    "return_reservation_id": False,
    "security_groups": [{"name": "default"}],
    "user_data": "aGVsbG8=",
}
ADDED = {  # by the first version that takes it, and the first that does not any more
    "description": (V(2, 19), None, "words"),
    "tags": (V(2, 52), None, ["a", "b"]),
    "trusted_image_certificates": (V(2, 63), None, [UUID]),
    "host": (V(2, 74), None, "host-1.example_2"),
    "hypervisor_hostname": (V(2, 74), None, "node-1"),
    "hostname": (V(2, 90), None, "web-1"),
    "personality": (OLDEST, V(2, 57), [{"path": "/etc/motd", "contents": "aGVsbG8="}]),
}


@pytest.mark.parametrize("version", [OLDEST, V(2, 36), V(2, 37), V(2, 42), NEWEST], ids=str)
def test_a_server_may_be_asked_for_in_full(version: Version) -> None:
    body = server(version, **FULL) | {"os:scheduler_hints": {"group": UUID, "same_host": [UUID], "own": "x"}}
    assert checked(CREATE, version, body) == body


@pytest.mark.parametrize("field", ADDED)
def test_a_field_of_a_server_is_taken_from_one_version_to_another(field: str) -> None:
    since, until, value = ADDED[field]
    for minor in range(1, 105):
        version = V(2, minor)
        body = server(version, **{field: value})
        if since <= version and (until is None or version < until):
            checked(CREATE, version, body)
        else:
            assert f"'{field}' was unexpected" in refusal(CREATE, version, body)


def test_networks_have_to_be_said_from_2_37() -> None:
    checked(CREATE, V(2, 36), server())
    assert "'networks' is a required property" in refusal(CREATE, V(2, 37), server())
    refusal(CREATE, V(2, 36), server(networks="auto"))
    refusal(CREATE, V(2, 37), server(networks="any"))


@pytest.mark.parametrize(
    ("minor", "network", "device"),
    [(31, False, False), (32, True, True), (33, True, False), (37, False, False), (41, False, False), (42, True, True)],
)
def test_device_tags_come_and_go(minor: int, network: bool, device: bool) -> None:
    version = V(2, minor)
    for field, taken in (("networks", network), ("block_device_mapping_v2", device)):
        item = {"uuid": UUID, "tag": "nic1"}
        body = server(version, **{field: [item]})
        if taken:
            checked(CREATE, version, body)
        else:
            refusal(CREATE, version, body)


@pytest.mark.parametrize("name", ["a", "x" * 255, "веб", "🖥", "a b", "é", "e\u0301", "a\u00a0b", "مرحبا"])
def test_a_name_may_be_in_any_script(name: str) -> None:
    checked(CREATE, NEWEST, server(NEWEST, name=name))


@pytest.mark.parametrize(
    "name", ["", " ", "x" * 256, " a", "a ", "a\n", "a\x00b", "a\u200db", "\u202ea", "a\tb", None, 1]
)
def test_a_name_is_1_to_255_printable_characters(name: object) -> None:
    refusal(CREATE, NEWEST, server(NEWEST, name=name))


def test_an_unprintable_name_is_refused_in_novas_words() -> None:
    assert refusal(CREATE, NEWEST, server(NEWEST, name=" a")) == (
        "An invalid 'name' value was provided. The name must be: printable characters. Can not start or end with"
        " whitespace."
    )


def test_a_missing_field_is_named_in_novas_words() -> None:
    assert refusal(CREATE, OLDEST, {"server": {"flavorRef": "1"}}) == (
        "Invalid input for field/attribute server. Value: {'flavorRef': '1'}. 'name' is a required property"
    )
    assert refusal(CREATE, OLDEST, {}) == "'server' is a required property"
    assert refusal(CREATE, OLDEST, None) == "None is not of type 'object'"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_count", 0),
        ("min_count", "0"),
        ("min_count", -1),
        ("min_count", 2**63),
        ("min_count", 1e30),
        ("max_count", "9" * 19),
        ("max_count", True),
        ("user_data", "a"),
        ("user_data", "é"),
        ("user_data", "QUJD" * 16384),
        ("metadata", {"k": 1}),
        ("metadata", {"k" * 256: "v"}),
        ("metadata", {"k": "v" * 256}),
        ("metadata", {"": "v"}),
        ("metadata", {"k/": "v"}),
        ("accessIPv4", "2001:db8::1"),
        ("imageRef", "not-a-uuid"),
        ("networks", [{"uuid": "net"}]),
        ("tags", ["a,b"]),
        ("tags", ["x" * 61]),
        ("tags", ["t"] * 51),
        ("hostname", "-x"),
        ("hostname", "x" * 256),
        ("config_drive", 1),
        ("block_device_mapping_v2", [{"volume_size": 2**31}]),
        ("key_name", ""),
        ("server_group", "x"),
    ],
)
def test_a_value_that_cannot_be_is_refused(field: str, value: object) -> None:
    refusal(CREATE, NEWEST, server(NEWEST, **{field: value}))


def test_user_data_may_have_65535_characters() -> None:
    checked(CREATE, NEWEST, server(NEWEST, user_data="QUJD" * 16383))


def test_a_domain_name_is_a_hostname_from_2_94() -> None:
    refusal(CREATE, V(2, 93), server(V(2, 93), hostname="web.example.org"))
    checked(CREATE, V(2, 94), server(V(2, 94), hostname="web.example.org"))


@pytest.mark.parametrize(
    "broken",
    [
        {"adminPass": [SECRET]},
        {"adminPass": SECRET, "bogus": 1},
        {"user_data": SECRET + "!", "name": "web"},
        {"personality": [{"path": "/x", "contents": SECRET, "mode": 1}]},
        {"personality": {"contents": SECRET}},
        {"adminPass": SECRET, "name": ""},
    ],
)
def test_a_refusal_shows_no_secret(broken: dict[str, Any]) -> None:
    assert SECRET not in refusal(CREATE, OLDEST, server(**broken))


def test_an_old_client_has_what_is_not_known_dropped_and_its_name_left_alone() -> None:
    body = server(name=" web ", bogus=1, networks=[{"uuid": "net", "own": 1}])
    assert checked(CREATE, OLDEST, body, loose=True) == server(name=" web ", networks=[{"uuid": "net"}])
    refusal(CREATE, OLDEST, server(name="  "), loose=True)


def test_an_update_grows_at_2_19_2_90_2_94_and_2_104() -> None:
    fields = (("description", 19), ("hostname", 90), ("pinned_availability_zone", 104))
    for field, minor in fields:
        body = {"server": {field: "web-1"}}
        checked(UPDATE, V(2, minor), body)
        refusal(UPDATE, V(2, minor - 1), body)
    checked(UPDATE, NEWEST, {"server": {"pinned_availability_zone": None}})


# actions and the others


def test_a_reboot_has_a_type() -> None:
    for kind in ("HARD", "Soft", "soft"):
        checked(("POST", ACTION, "reboot"), OLDEST, {"reboot": {"type": kind}})
    for broken in ({}, {"type": "warm"}, {"type": None}, {"type": "HARD", "now": True}, None):
        refusal(("POST", ACTION, "reboot"), OLDEST, {"reboot": broken})


@pytest.mark.parametrize("value", [None, {}, "", [1], {"x": 1}])
def test_the_value_of_an_action_without_arguments_is_not_looked_at(value: object) -> None:
    for action in ("os-start", "os-stop"):
        checked(("POST", ACTION, action), NEWEST, {action: value})


@pytest.mark.parametrize(
    ("length", "passes"), [(10, True), ("10", True), (-1, True), (None, True), (-2, False), ("x", False)]
)
def test_console_output_may_be_cut_to_a_length(length: object, passes: bool) -> None:
    body = {"os-getConsoleOutput": {"length": length}}
    key = ("POST", ACTION, "os-getConsoleOutput")
    if passes:
        checked(key, OLDEST, body)
    else:
        refusal(key, OLDEST, body)


def flavor(**fields: Any) -> dict[str, Any]:
    return {"flavor": {"name": "m1", "ram": 512, "vcpus": "1", "disk": 0} | fields}


def test_a_flavor_is_described_from_2_55_and_has_no_factor_from_2_102() -> None:
    create = ("POST", "/flavors")
    checked(create, V(2, 101), flavor(rxtx_factor="1.0"))
    refusal(create, V(2, 102), flavor(rxtx_factor="1.0"))
    refusal(create, V(2, 54), flavor(description="d"))
    checked(create, V(2, 55), flavor(description="d", id="a b", swap=0))


@pytest.mark.parametrize(
    "fields", [{"ram": 0}, {"ram": "0"}, {"vcpus": 2**31}, {"disk": -1}, {"id": " x"}, {"id": ""}, {"name": None}]
)
def test_a_flavor_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    refusal(("POST", "/flavors"), NEWEST, flavor(**fields))


@pytest.mark.parametrize(
    ("minor", "keypair", "passes"),
    [
        (1, {"name": "k"}, True),
        (1, {"name": "k", "type": "ssh"}, False),
        (2, {"name": "k", "type": "ssh"}, True),
        (9, {"name": "k", "user_id": "u"}, False),
        (10, {"name": "k", "user_id": "u"}, True),
        (91, {"name": "k@home.org", "public_key": "p"}, False),
        (92, {"name": "k@home.org", "public_key": "p"}, True),
        (92, {"name": "k"}, False),
    ],
)
def test_a_key_pair_follows_its_versions(minor: int, keypair: dict[str, str], passes: bool) -> None:
    if passes:
        checked(("POST", "/os-keypairs"), V(2, minor), {"keypair": keypair})
    else:
        refusal(("POST", "/os-keypairs"), V(2, minor), {"keypair": keypair})


def test_quotas_lose_networks_at_2_36_and_files_at_2_57() -> None:
    update = ("PUT", "/os-quota-sets/{project_id}")
    for name, until in (("floating_ips", 36), ("injected_files", 57), ("cores", 105)):
        for minor in (1, 36, 57, 104):
            body = {"quota_set": {name: "-1", "force": True}}
            if minor < until:
                checked(update, V(2, minor), body)
            else:
                refusal(update, V(2, minor), body)
    refusal(update, NEWEST, {"quota_set": {"cores": -2}})


def test_a_service_is_changed_by_status_reason_and_force() -> None:
    update = ("PUT", "/os-services/{service_id}")
    checked(update, V(2, 53), {"status": "disabled", "disabled_reason": "disk", "forced_down": True})
    refusal(update, V(2, 53), {"status": "off"})
    refusal(("PUT", "/os-services/disable"), OLDEST, {"host": "h"})


# queries


@pytest.mark.parametrize("value", ["-1", "x", "", "1.5", "9" * 25])
def test_a_limit_is_a_whole_number(value: str) -> None:
    assert query_refusal(("GET", "/servers"), V(2, 96), f"limit={value}").startswith(
        f"Invalid input for query parameters limit. Value: {value}. "
    )


def test_a_refused_query_is_told_in_novas_words() -> None:
    assert query_refusal(("GET", "/servers/detail"), V(2, 96), "limit=-1") == (
        "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"
    )
    assert query_refusal(("GET", "/servers/detail"), V(2, 96), "foo=1") == (
        "'foo' does not match any of the regexes: '^_'"
    )


def test_unknown_fields_are_dropped_until_2_74_and_refused_from_2_75() -> None:
    assert queried(("GET", "/servers"), V(2, 74), "foo=1&name=a&name=b&_x=1").lists() == {
        "name": ["a", "b"],
        "_x": ["1"],
    }
    for key in (
        ("GET", "/flavors"),
        ("GET", "/os-keypairs"),
        ("GET", "/os-services"),
        ("GET", "/os-quota-sets/{project_id}"),
    ):
        assert queried(key, V(2, 74), "foo=1").items == []
        query_refusal(key, V(2, 75), "foo=1")


@pytest.mark.parametrize(
    ("field", "since"), [("tags", 26), ("not-tags-any", 26), ("changes-before", 66), ("locked", 73)]
)
def test_a_filter_of_servers_is_known_from_its_version(field: str, since: int) -> None:
    raw = f"{field}=2026-01-01T00:00:00Z"
    assert field in queried(("GET", "/servers/detail"), V(2, since), raw)
    assert field not in queried(("GET", "/servers/detail"), V(2, since - 1), raw)


def test_what_cannot_be_a_time_or_a_pattern_or_a_sort_key_is_refused() -> None:
    for raw in ("changes-since=yesterday", "name=%28", "sort_key=flavour", "sort_key=tags"):
        query_refusal(("GET", "/servers"), OLDEST, raw)
    queried(("GET", "/servers"), V(2, 73), "sort_key=locked&sort_key=id&changes-since=2026-01-01T00:00:00Z")


def test_every_other_operation_refuses_a_query_from_2_102() -> None:
    key = ("GET", "/servers/{server_id}")
    assert queried(key, V(2, 101), "foo=1").items == [("foo", "1")]
    assert query_refusal(key, V(2, 102), "foo=1") == "Additional properties are not allowed ('foo' was unexpected)"


def test_a_query_that_is_not_utf8_or_endless_is_refused() -> None:
    for raw in (b"name=%ff", b"name=\xff", b"&".join([b"name=a"] * 1001)):
        with pytest.raises(Fault) as raised:
            Query.parse(raw)
        assert raised.value.status == 400


def test_the_last_of_several_values_counts_and_a_next_link_keeps_the_others() -> None:
    query = Query.parse(b"limit=1&limit=2&name=a%20b&tags=")
    assert (query.get("limit"), query.all("limit"), query.get("marker")) == ("2", ["1", "2"], None)
    assert query.with_changed(limit="3", marker="m") == "name=a+b&tags=&limit=3&marker=m"


# whatever is sent


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**31, 2**63, -1, "", " ", "1", "-1", UUID, "x" * 256, "x" * 70_000, "\x00"])
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
KEYS = sorted(BODIES, key=str)
SOME_VERSIONS = st.sampled_from([OLDEST, V(2, 32), V(2, 37), V(2, 57), V(2, 92), NEWEST])
VALID: dict[str, Any] = {
    "server": server(NEWEST, **FULL)["server"],
    "flavor": flavor()["flavor"],
    "keypair": {"name": "k", "public_key": "p"},
    "quota_set": {"cores": 1},
    "reboot": {"type": "HARD"},
    "os-getConsoleOutput": {"length": 1},
}


def refused_or_valid(key: OperationKey, version: Version, body: Any) -> None:
    for loose in (False, True):
        found = refused(partial(checked, key, version, copy.deepcopy(body), loose=loose))
        assert found is None or found.status == 400


@given(key=st.sampled_from(KEYS), version=SOME_VERSIONS, body=JSON, within=st.sampled_from([None, *VALID]))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_valid_or_400(key: OperationKey, version: Version, body: Any, within: str | None) -> None:
    refused_or_valid(key, version, body if within is None else {within: body})


@given(version=SOME_VERSIONS, value=JSON, data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_value_in_any_field_is_valid_or_400(version: Version, value: Any, data: st.DataObject) -> None:
    wrapper = data.draw(st.sampled_from(sorted(VALID)))
    field = data.draw(st.sampled_from([*sorted(VALID[wrapper]), "networks", "tags", "hostname", "description"]))
    for key in KEYS:
        refused_or_valid(key, version, {wrapper: VALID[wrapper] | {field: value}})


@given(raw=st.binary(max_size=200) | JSON.map(lambda content: json.dumps(content).encode()))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_json_or_400(raw: bytes) -> None:
    found = refused(lambda: parse_json(raw))
    assert found is None or found.status == 400


@given(
    key=st.sampled_from(sorted(QUERIES, key=str)),
    version=SOME_VERSIONS,
    fields=st.lists(
        st.tuples(
            st.sampled_from(["limit", "marker", "name", "changes-since", "sort_key", "host", "with_servers", "_x"])
            | st.text(),
            st.text() | st.sampled_from(["1", "-1", "9" * 30, "[", "(" * 200]),
        ),
        max_size=5,
    ),
)
@settings(max_examples=200, deadline=None)
def test_any_query_is_valid_or_400(key: OperationKey, version: Version, fields: list[tuple[str, str]]) -> None:
    found = refused(lambda: VALIDATION.query(operation(key), version, Query(fields)))
    assert found is None or found.status == 400
