"""Every row of the table of operations, at every version where its answer changes."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.faults import Fault
from gateway.microversions import NEWEST, OLDEST, V, Version
from gateway.operations import REMOVED, Operation, operations_and_rules
from gateway.request import Request, Response
from gateway.surface import Surface
from tests.support.compute_api import refused

OPERATIONS, RULES = operations_and_rules()
ROUTED = [operation for operation in OPERATIONS if not operation.tells_versions]
ALL_VERSIONS = [V(2, minor) for minor in range(1, 105)]
NOTHING_BUILT = Surface(OPERATIONS, {})


async def answer(request: Request) -> Response:
    return Response()


EVERYTHING_BUILT = Surface(OPERATIONS, {operation.key: answer for operation in ROUTED if operation.kind != REMOVED})


def example_of(path: str) -> str:
    """A path with a value for each variable; it names the variable."""
    return path.replace("{", "a-").replace("}", "")


def resolve(surface: Surface, operation: Operation, version: Version) -> tuple[Operation, dict[str, str]]:
    matches = surface.match(operation.method, example_of(operation.path))
    assert matches is not None
    if operation.action:
        assert matches.take_action
        match = matches.action(operation.action, version)
    else:
        match = matches.at(version)
    return match.operation, dict(match.params)


def outcome(surface: Surface, operation: Operation, version: Version) -> int:
    """The status of what becomes of it; 200 when a handler is found."""
    found = refused(lambda: surface.handler(resolve(surface, operation, version)[0]))
    return 200 if found is None else found.status


def test_the_table_is_novas() -> None:
    assert len(OPERATIONS) == 271
    kinds = Counter(operation.kind for operation in OPERATIONS)
    assert kinds == {
        None: 139,
        REMOVED: 53,
        "proxy_404_when_new": 46,
        "legacy_form_404_when_new": 18,
        "alias_404_when_new": 15,
    }
    assert {operation.rule for operation in OPERATIONS if operation.rule} <= set(RULES)


@pytest.mark.parametrize("operation", ROUTED, ids=str)
def test_an_operation_is_found_in_its_versions_and_in_no_other(operation: Operation) -> None:
    for version in ALL_VERSIONS:
        inside = operation.oldest <= version <= (operation.newest or NEWEST)
        expected = (501, 200) if inside else (404, 404)
        if operation.kind == REMOVED:
            expected = (410, 410)
        statuses = outcome(NOTHING_BUILT, operation, version), outcome(EVERYTHING_BUILT, operation, version)
        if inside or operation.kind == REMOVED or statuses == (404, 404):
            assert statuses == expected
        else:  # its path is another operation's too, in these versions: PUT /os-services/enable is, from 2.53
            other, _ = resolve(EVERYTHING_BUILT, operation, version)
            assert other != operation
            assert other.serves(version)


@pytest.mark.parametrize("operation", ROUTED, ids=str)
def test_a_variable_in_the_path_reaches_the_handler_under_its_name(operation: Operation) -> None:
    found, params = resolve(NOTHING_BUILT, operation, operation.oldest)
    assert found is operation
    names = [segment[1:-1] for segment in operation.path.split("/") if segment.startswith("{")]
    assert params == {name: f"a-{name}" for name in names}


@pytest.mark.parametrize("path", sorted({operation.path for operation in ROUTED}))
def test_a_known_path_with_a_method_it_does_not_have_is_no_route(path: str) -> None:
    methods = {operation.method for operation in ROUTED if operation.path == path}
    others = {
        operation.method
        for operation in ROUTED
        if len(operation.path.split("/")) == len(path.split("/"))
        and all(a == b or b.startswith("{") for a, b in zip(path.split("/"), operation.path.split("/"), strict=True))
    }
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} - methods - others:
        assert NOTHING_BUILT.match(method, example_of(path)) is None


def test_what_is_not_built_is_named() -> None:
    matches = NOTHING_BUILT.match("GET", "/os-aggregates")
    assert matches is not None
    with pytest.raises(Fault, match="GET /os-aggregates is not implemented") as raised:
        NOTHING_BUILT.handler(matches.at(OLDEST).operation)
    assert raised.value.status == 501
    assert len(NOTHING_BUILT.unbuilt()) == len(ROUTED) - 53
    assert EVERYTHING_BUILT.unbuilt() == []


@pytest.mark.parametrize(
    "path", ["/nope", "/servers/x/nope", "/servers//action", "//servers", "/servers/x/tags/a/b", ""]
)
def test_an_unknown_path_is_no_route(path: str) -> None:
    assert NOTHING_BUILT.match("GET", path) is None


def test_one_slash_at_the_end_makes_no_difference() -> None:
    assert NOTHING_BUILT.match("GET", "/servers/") is not None
    assert NOTHING_BUILT.match("GET", "/servers//") is None


def test_a_fixed_segment_goes_before_a_variable_one() -> None:
    detail, shown, deleted = (
        NOTHING_BUILT.match(method, path)
        for method, path in (("GET", "/servers/detail"), ("GET", "/servers/x"), ("DELETE", "/servers/detail"))
    )
    assert detail is not None
    assert detail.at(OLDEST).operation.path == "/servers/detail"
    assert shown is not None
    assert shown.at(OLDEST).operation.path == "/servers/{server_id}"
    assert deleted is not None
    assert deleted.at(OLDEST).params == {"server_id": "detail"}


def test_the_second_name_of_servers_has_the_same_handler_until_2_102() -> None:
    surface = Surface(OPERATIONS, {("GET", "/servers/{server_id}"): answer})
    matches = surface.match("GET", "/os-volumes_boot/x")
    assert matches is not None
    assert surface.handler(matches.at(V(2, 102)).operation) is answer
    with pytest.raises(Fault):
        matches.at(V(2, 103))


def test_an_unknown_action_is_400_and_one_of_another_version_404() -> None:
    matches = NOTHING_BUILT.match("POST", "/servers/x/action")
    assert matches is not None
    with pytest.raises(Fault, match="There is no such action: bogus") as unknown:
        matches.action("bogus", OLDEST)
    with pytest.raises(Fault) as too_early:
        matches.action("trigger_crash_dump", V(2, 16))
    assert (unknown.value.status, too_early.value.status) == (400, 404)


def test_a_handler_for_no_operation_is_a_mistake_found_at_start() -> None:
    with pytest.raises(ValueError, match="has no operation"):
        Surface(OPERATIONS, {("GET", "/server"): answer})
