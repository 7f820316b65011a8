"""What a host gets of the agent API: the payloads and images of its own guests, when it asks itself, now, and once."""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from commands.event_store import StoreUnavailable
from commands.instance.create import payload_ref
from commands.log.signed import (
    NONCE_HEADER,
    REPORT,
    REQUEST,
    SERVICE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    bytes_to_sign,
    request_body,
)
from domain.identifiers import InstanceId
from gateway import enrollment
from hostagent.host_key import HostCredential
from tests.support.agent_api import MEBIBYTE, SECRET, Offered
from tests.support.enrolled import enroll
from tests.support.ledger import Ledger


@pytest.fixture
def api(two_hosts: Ledger) -> Offered:
    return Offered(two_hosts)


def signed(
    api: Offered,
    by: HostCredential,
    path: str,
    *,
    method: str = "GET",
    later: float = 0,
    nonce: str = "",
    purpose: bytes = REQUEST,
) -> dict[str, str]:
    time_s, nonce = int(api.now + later), nonce or uuid4().hex
    signature = by.sign(bytes_to_sign(purpose, by.service_id, request_body(method, path, time_s, nonce)))
    return {
        SERVICE_HEADER: str(by.service_id),
        TIME_HEADER: str(time_s),
        NONCE_HEADER: nonce,
        SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }


def get(api: Offered, path: str, headers: dict[str, str], method: str = "GET") -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(api.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway/agent") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(send())


def asked(api: Offered, by: HostCredential, path: str, **how: Any) -> httpx.Response:
    return get(api, path, signed(api, by, path, **how))


def code(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert error["message"]
    return response.status_code, error["code"]


def user_data(instance_id: InstanceId) -> str:
    return f"/v1/instances/{instance_id}/payloads/{payload_ref(instance_id, 'user_data')}"


# its own


def test_a_host_gets_the_payloads_of_its_guest(api: Offered) -> None:
    response = asked(api, api.alpha, user_data(api.guest_on(api.alpha)))

    assert (response.status_code, response.content) == (200, SECRET)
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("image_id", "content"), [("an-image", b"a disk"), ("a-kernel", b"a kernel"), ("a-ramdisk", b"a ramdisk")]
)
def test_a_host_gets_the_images_of_its_guest(api: Offered, image_id: str, content: bytes) -> None:
    response = asked(api, api.alpha, f"/v1/instances/{api.guest_on(api.alpha)}/images/{image_id}")

    assert (response.status_code, response.content) == (200, content)


def test_a_guest_that_is_still_being_made_is_its_hosts_already(api: Offered) -> None:
    api.ledger.hosts["alpha"].paused = True

    assert asked(api, api.alpha, user_data(api.guest_on(api.alpha))).content == SECRET


def test_a_large_image_is_sent_in_pieces(api: Offered) -> None:
    api.images.images["an-image"] = 64 * MEBIBYTE
    path = f"/v1/instances/{api.guest_on(api.alpha)}/images/an-image"
    pieces: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            pieces.append(len(message["body"]))

    async def receive() -> Any:
        await asyncio.Event().wait()

    headers = [(k.encode(), v.encode()) for k, v in signed(api, api.alpha, path).items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": f"/agent{path}",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
    }
    asyncio.run(api.app(scope, receive, send))

    assert sum(pieces) == 64 * MEBIBYTE
    assert max(pieces) == MEBIBYTE
    [file] = api.images.opened
    assert set(file.reads) == {MEBIBYTE}
    assert file.was_closed


# itself


def standing(api: Offered, by: HostCredential, epoch: int, session: str) -> str:
    response = asked(api, by, f"/v1/session/{epoch}/{session}")
    assert response.status_code == 200
    return str(response.json()["session"])


def test_a_host_learns_what_its_session_is_to_the_ledger(api: Offered) -> None:
    session = api.ledger.hosts["alpha"].agent.session
    assert session is not None
    epoch, name = session

    assert standing(api, api.alpha, epoch, name) == "current"
    assert standing(api, api.alpha, epoch, "another") == "replaced"
    assert standing(api, api.alpha, epoch - 1, name) == "replaced"
    assert standing(api, api.alpha, epoch + 1, "another") == "unheard"
    assert standing(api, enroll(api.ledger, "gamma"), 1, "its first") == "unheard"
    assert code(asked(api, api.alpha, f"/v1/session/{'9' * 5000}/{name}")) == (404, "not_found")
    assert code(asked(api, api.alpha, f"/v1/session/first/{name}")) == (404, "not_found")


def test_only_a_host_with_a_key_learns_it(api: Offered) -> None:
    path = "/v1/session/1/a-session"
    assert code(get(api, path, {})) == (401, "unsigned")

    enrollment.revoke(api.ledger.storage, "alpha")
    api.ledger.clock.advance(1)
    assert code(asked(api, api.alpha, path)) == (401, "revoked")


# another's


def test_a_host_gets_nothing_of_anothers_guest(api: Offered, caplog: pytest.LogCaptureFixture) -> None:
    theirs = api.guest_on(api.beta)

    assert code(asked(api, api.alpha, user_data(theirs))) == (404, "not_found")
    assert code(asked(api, api.alpha, f"/v1/instances/{theirs}/images/an-image")) == (404, "not_found")
    assert "request of host alpha refused, not_yours" in caplog.text


def test_what_is_not_there_looks_like_what_is_anothers(api: Offered) -> None:
    theirs = asked(api, api.alpha, user_data(api.guest_on(api.beta)))
    nobodys = asked(api, api.alpha, user_data(InstanceId(UUID(int=5))))
    no_id = asked(api, api.alpha, "/v1/instances/no-id/payloads/x")

    assert (theirs.status_code, theirs.content) == (nobodys.status_code, nobodys.content)
    assert (theirs.status_code, theirs.content) == (no_id.status_code, no_id.content)


def test_a_host_gets_nothing_of_anothers_by_way_of_its_own_guest(api: Offered) -> None:
    ours, theirs = api.guest_on(api.alpha), api.guest_on(api.beta)
    api.images.images["another-image"] = b"private"

    for path in (
        f"/v1/instances/{ours}/payloads/{payload_ref(theirs, 'user_data')}",
        f"/v1/instances/{ours}/payloads/{payload_ref(ours, 'admin_password')}",
        f"/v1/instances/{ours}/payloads/None",
        f"/v1/instances/{ours}/images/another-image",
        f"/v1/instances/{ours}/images/../../ledger.db",
    ):
        assert asked(api, api.alpha, path).status_code in (401, 404), path


@pytest.mark.parametrize("meanwhile", ["deleted", "deleted while its host was away", "failed there"])
def test_what_became_of_a_guest_ends_what_its_host_may_have(api: Offered, meanwhile: str) -> None:
    ledger, host = api.ledger, api.ledger.hosts["alpha"]
    if meanwhile == "failed there":
        host.faults.crash("create", error=ZeroDivisionError("oops"))
        instance_id = api.guest_on(api.alpha)
    else:
        instance_id = api.guest_on(api.alpha)
        host.paused = meanwhile != "deleted"
        if host.paused:
            ledger.pass_time(120)
        ledger.delete(instance_id)
        ledger.settle()

    assert code(asked(api, api.alpha, user_data(instance_id))) == (404, "not_found")


# not itself, not now, not once


def test_a_request_that_is_not_signed_is_refused(api: Offered) -> None:
    path = user_data(api.guest_on(api.alpha))
    good = signed(api, api.alpha, path)

    assert code(get(api, path, {})) == (401, "unsigned")
    for header in good:
        assert code(get(api, path, {k: v for k, v in good.items() if k != header})) == (401, "unsigned")


@pytest.mark.parametrize(
    ("header", "value", "reason"),
    [
        (SERVICE_HEADER, "alpha", "undecodable"),
        (SERVICE_HEADER, str(UUID(int=7)), "unknown_host"),
        (TIME_HEADER, "now", "undecodable"),
        (TIME_HEADER, "9" * 5000, "bad_signature"),
        (TIME_HEADER, "1900000001", "bad_signature"),
        (NONCE_HEADER, "short", "undecodable"),
        (NONCE_HEADER, "x" * 65, "undecodable"),
        (NONCE_HEADER, "x" * 20, "bad_signature"),
        (SIGNATURE_HEADER, "*", "undecodable"),
        (SIGNATURE_HEADER, "AAAA", "bad_signature"),
    ],
)
def test_a_request_that_was_altered_is_refused(api: Offered, header: str, value: str, reason: str) -> None:
    path = user_data(api.guest_on(api.alpha))

    assert code(get(api, path, {**signed(api, api.alpha, path), header: value})) == (401, reason)


def test_a_signature_is_for_one_path_one_method_one_purpose_and_one_host(api: Offered) -> None:
    path, other = user_data(api.guest_on(api.alpha)), user_data(api.guest_on(api.alpha, "another"))
    as_beta = {**signed(api, api.alpha, path), SERVICE_HEADER: str(api.beta.service_id)}

    assert code(get(api, other, signed(api, api.alpha, path))) == (401, "bad_signature")
    assert code(get(api, path, signed(api, api.alpha, path, method="POST"))) == (401, "bad_signature")
    assert code(get(api, path, signed(api, api.alpha, path, purpose=REPORT))) == (401, "bad_signature")
    assert code(get(api, path, as_beta)) == (401, "bad_signature")


def test_a_key_that_was_replaced_or_revoked_opens_nothing(api: Offered) -> None:
    path = user_data(api.guest_on(api.alpha))
    assert asked(api, api.alpha, path).status_code == 200
    again = enroll(api.ledger, "alpha")
    api.ledger.clock.advance(1)
    assert code(asked(api, api.alpha, path)) == (401, "bad_signature")
    assert asked(api, again, path).status_code == 200

    enrollment.revoke(api.ledger.storage, "alpha")
    api.ledger.clock.advance(1)
    assert code(asked(api, again, path)) == (401, "revoked")


@pytest.mark.parametrize(("later", "status"), [(-61, 401), (-59, 200), (59, 200), (62, 401)])
def test_a_request_is_of_this_minute(api: Offered, later: float, status: int) -> None:
    response = asked(api, api.alpha, user_data(api.guest_on(api.alpha)), later=later)

    assert response.status_code == status
    if status == 401:
        assert code(response) == (401, "wrong_time")
        assert " s apart" in response.json()["error"]["message"]
        assert response.headers[TIME_HEADER] == str(int(api.now))


@pytest.mark.parametrize("later", [-59, 0, 59])
def test_a_request_is_answered_once(api: Offered, later: float) -> None:
    path = user_data(api.guest_on(api.alpha))
    headers = signed(api, api.alpha, path, later=later)
    assert get(api, path, headers).status_code == 200

    for _ in range(13):
        assert get(api, path, headers).status_code == 401
        api.now += 10


def test_a_request_with_another_hosts_nonce_is_another(api: Offered) -> None:
    for by in (api.alpha, api.beta):
        path = user_data(api.guest_on(by))
        assert asked(api, by, path, nonce="the very same nonce").status_code == 200


def test_a_host_that_asks_without_end_hurts_itself(api: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.host_requests.NONCES_A_HOST", 3)
    path, other = user_data(api.guest_on(api.alpha)), user_data(api.guest_on(api.beta))

    assert [asked(api, api.alpha, path).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert asked(api, api.beta, other).status_code == 200
    api.now += 121
    assert asked(api, api.alpha, path).status_code == 200


def test_a_gateway_whose_clock_is_set_back_soon_hears_a_host_again_that_asked_too_often(
    api: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.host_requests.NONCES_A_HOST", 3)
    path = user_data(api.guest_on(api.alpha))
    assert [asked(api, api.alpha, path).status_code for _ in range(4)] == [200, 200, 200, 429]
    api.set_by = -3600
    api.now += 121

    assert asked(api, api.alpha, path, later=-3600).status_code == 200


# what can go wrong


def test_a_store_that_is_away_is_a_503(api: Offered) -> None:
    path = user_data(api.guest_on(api.alpha))
    assert asked(api, api.alpha, path).status_code == 200

    def away(*args: object) -> None:
        raise StoreUnavailable("away")

    api.ledger.store.read_stream = away  # type: ignore[assignment]
    response = asked(api, api.alpha, path)

    assert code(response) == (503, "store_unavailable")
    assert response.headers["retry-after"]


def test_an_image_that_is_gone_is_a_404(api: Offered) -> None:
    path = f"/v1/instances/{api.guest_on(api.alpha)}/images/an-image"
    del api.images.images["an-image"]

    assert code(asked(api, api.alpha, path)) == (404, "not_found")


def test_a_payload_that_does_not_open_is_said_without_a_word_of_it(
    api: Offered, caplog: pytest.LogCaptureFixture
) -> None:
    path = user_data(api.guest_on(api.alpha))
    found = api.ledger.store.payload
    api.ledger.store.payload = lambda ref: (found(ref)[0], found(ref)[1][:-1] + b"?")  # type: ignore[index, method-assign]

    assert code(asked(api, api.alpha, path)) == (500, "payload_damaged")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written_there(api: Offered, method: str) -> None:
    path = user_data(api.guest_on(api.alpha))

    assert get(api, path, signed(api, api.alpha, path, method=method), method).status_code == 405


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/instances", "/v2/instances/x/payloads/y"])
def test_nothing_else_is_there(api: Offered, path: str) -> None:
    assert code(get(api, path, {})) == (404, "not_found")


def test_no_line_of_the_log_holds_a_payload(api: Offered, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert asked(api, api.alpha, user_data(api.guest_on(api.alpha))).content == SECRET

    assert "secret" not in caplog.text
