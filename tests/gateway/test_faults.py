"""What refusals and failures look like to a client."""

from __future__ import annotations

import orjson
import pytest

from commands.event_store import StoreUnavailable
from domain import errors
from domain.errors import DomainError
from gateway.faults import Fault, fault_of, status_of, unexpected, unrouted


def every_refusal(kind: type[DomainError] = DomainError) -> list[type[DomainError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in every_refusal(child))]


@pytest.mark.parametrize(
    ("refusal", "status", "key"),
    [
        (errors.InstanceNotFound("x"), 404, "itemNotFound"),
        (errors.InstanceWrongState("start", "x", "vm_state", "active"), 409, "conflictingRequest"),
        (errors.QuotaExceeded("instances", "1", "10", "10"), 403, "forbidden"),
        (errors.BadFlavor("99"), 400, "badRequest"),
        (errors.ConcurrencyConflict("again"), 409, "conflictingRequest"),
    ],
)
def test_a_refusal_has_the_status_and_key_that_nova_gives_it(refusal: DomainError, status: int, key: str) -> None:
    fault = fault_of(refusal)
    assert fault is not None
    content_type, body = fault.body("application/json")
    assert fault.status == status
    assert content_type == "application/json"
    assert orjson.loads(body) == {key: {"code": status, "message": str(refusal)}}


def test_every_refusal_is_the_clients_error() -> None:
    for kind in every_refusal():
        assert 400 <= status_of(kind.__new__(kind)) < 500


def test_a_store_that_does_not_answer_is_503_with_a_time_to_wait() -> None:
    fault = fault_of(StoreUnavailable("database is locked"))
    assert fault is not None
    assert (fault.status, dict(fault.headers)) == (503, {b"retry-after": b"2"})
    assert b"database is locked" not in fault.body("")[1]


def test_a_bug_tells_the_client_only_where_to_look() -> None:
    assert fault_of(KeyError("adminPass")) is None
    _, body = unexpected("req-1").body("")
    assert orjson.loads(body)["computeFault"]["code"] == 500
    assert b"req-1" in body
    assert b"KeyError" not in body


@pytest.mark.parametrize(
    ("status", "key"),
    [(406, "computeFault"), (410, "computeFault"), (415, "badMediaType"), (501, "notImplemented"), (405, "badMethod")],
)
def test_other_statuses_have_novas_keys(status: int, key: str) -> None:
    assert list(orjson.loads(Fault(status, "words").body("")[1])) == [key]


def test_over_limit_tells_in_the_body_too_when_to_come_back() -> None:
    _, body = Fault(413, "too many", retry_after_s=7).body("")
    assert orjson.loads(body) == {"overLimit": {"code": 413, "message": "too many", "retryAfter": "7"}}


@pytest.mark.parametrize("message", ["x" * 500_000, "\x00" * 2000, "🖥" * 2000, "\ud800" * 3000, '"' * 5000])
def test_no_message_makes_a_body_of_4_kb(message: str) -> None:
    _, body = Fault(400, message).body("")
    assert len(body) < 4096
    assert orjson.loads(body)["badRequest"]["message"]


PLAIN = ("text/plain; charset=UTF-8", b"404 Not Found\n\nThe resource could not be found.\n\n   ")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PLAIN[0]),
        ("image/png", PLAIN[0]),
        ("*/*", "text/html; charset=UTF-8"),
        ("application/json", "application/json"),
        ("text/html;q=0.2, application/json;q=0.9", "application/json"),
        ("application/json;q=0", PLAIN[0]),
    ],
)
def test_an_unknown_path_is_answered_in_the_form_the_client_prefers(accept: str, content_type: str) -> None:
    found, body = unrouted().body(accept)
    assert found == content_type
    assert b"The resource could not be found." in body
    if content_type == PLAIN[0]:
        assert body == PLAIN[1]
