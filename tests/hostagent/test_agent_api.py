"""A host's side of the agent API, against real gateways over TLS."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from commands.instance.create import payload_ref
from commands.log.signed import TIME_HEADER
from domain.identifiers import InstanceId
from gateway import enrollment
from hostagent.agent_api import PAUSES_S, AgentApi, AgentApiError, KeyRefused
from hostagent.drivers.protocol import DriverError
from hostagent.images import ImageCache
from hostagent.payloads import Files
from tests.support.agent_api import MEBIBYTE, SECRET, Offered
from tests.support.certificates import certificate_of
from tests.support.hypervisors import guest_spec
from tests.support.ledger import Ledger

App = Callable[..., Any]


class Certified:
    """A certificate for 127.0.0.1 that vouches for itself."""

    def __init__(self, directory: Path, name: str = "gateway") -> None:
        self.certificate, self.key = certificate_of(directory, name)


class Served:
    """An application on a free port, over TLS."""

    def __init__(self, app: App, certified: Certified) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            ssl_certfile=certified.certificate,
            ssl_keyfile=certified.key,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()


class Gateways:
    """Gateways, and a host that asks them; the pauses it would make are counted, not made."""

    def __init__(self, api: Offered, directory: Path) -> None:
        self.api = api
        self.certified = Certified(directory)
        self.served: list[Served] = []
        self.clients: list[AgentApi] = []
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None  # what happens while it waits
        self.ahead_s = 0.0  # of the host's clock

    def serve(self, app: App | None = None) -> str:
        served = Served(app or self.api.app, self.certified)
        self.served.append(served)
        return served.url

    def client(self, *urls: str, cafile: Path | None = None) -> AgentApi:
        client = AgentApi(
            urls,
            self.api.alpha,
            cafile or self.certified.certificate,
            clock=lambda: self.api.now + self.ahead_s,
            elapsed=lambda: self.api.now,
            pause=self._pause,
        )
        self.clients.append(client)
        return client

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.meanwhile()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        for served in self.served:
            served.stop()


@pytest.fixture
def gateways(two_hosts: Ledger, tmp_path: Path) -> Iterator[Gateways]:
    made = Gateways(Offered(two_hosts), tmp_path)
    yield made
    made.stop()


def nowhere() -> str:
    """Where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{taken.getsockname()[1]}"


async def unavailable(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b"no gateway of ours answers"})


async def no_such_page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"<html>"})


def test_payloads_and_images_come_over_tls(gateways: Gateways, tmp_path: Path) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    client = gateways.client(gateways.serve() + "/")

    assert client.payload(guest, payload_ref(guest, "user_data")) == SECRET
    client.fetch_image(guest, "an-image", tmp_path / "image")
    assert (tmp_path / "image").read_bytes() == b"a disk"


def test_a_large_image_comes_whole(gateways: Gateways, tmp_path: Path) -> None:
    gateways.api.images.images["an-image"] = 48 * MEBIBYTE + 17
    guest = gateways.api.guest_on(gateways.api.alpha)

    gateways.client(gateways.serve()).fetch_image(guest, "an-image", tmp_path / "image")

    assert (tmp_path / "image").stat().st_size == 48 * MEBIBYTE + 17


def test_what_is_not_there_is_none_and_an_image_an_error(gateways: Gateways, tmp_path: Path) -> None:
    theirs = gateways.api.guest_on(gateways.api.beta)
    client = gateways.client(gateways.serve())

    assert client.payload(theirs, payload_ref(theirs, "user_data")) is None
    with pytest.raises(AgentApiError, match="nothing here for this host"):
        client.fetch_image(theirs, "an-image", tmp_path / "image")
    assert not (tmp_path / "image").exists()
    assert gateways.pauses == []


def test_another_gateway_answers_where_one_does_not(gateways: Gateways) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    client = gateways.client(nowhere(), gateways.serve(unavailable), gateways.serve())

    assert client.payload(guest, payload_ref(guest, "user_data")) == SECRET
    assert gateways.pauses == []


def test_a_gateway_that_is_being_restarted_is_waited_for(gateways: Gateways) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    answers = iter([unavailable, unavailable])

    async def restarting(scope: Any, receive: Any, send: Any) -> None:
        await next(answers, gateways.api.app)(scope, receive, send)

    assert gateways.client(gateways.serve(restarting)).payload(guest, payload_ref(guest, "user_data")) == SECRET
    assert gateways.pauses == [1.0, 2.0]


def test_it_is_not_waited_for_without_end(gateways: Gateways) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    client = gateways.client(nowhere(), gateways.serve(unavailable))

    with pytest.raises(AgentApiError) as failed:
        client.payload(guest, payload_ref(guest, "user_data"))

    assert gateways.pauses == list(PAUSES_S)
    assert "refused" in str(failed.value)
    assert "503 answered in no form of the agent API" in str(failed.value)


def test_an_image_cut_off_on_its_way_is_fetched_again_from_its_beginning(gateways: Gateways, tmp_path: Path) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    cut: list[int] = []

    async def cuts_once(scope: Any, receive: Any, send: Any) -> None:
        if cut:
            await gateways.api.app(scope, receive, send)
            return
        cut.append(1)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half of it and more", "more_body": True})
        raise ConnectionResetError

    gateways.client(gateways.serve(cuts_once)).fetch_image(guest, "an-image", tmp_path / "image")

    assert (tmp_path / "image").read_bytes() == b"a disk"


def test_a_host_that_is_refused_is_told_why_and_does_not_insist(gateways: Gateways) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    client = gateways.client(gateways.serve())
    enrollment.revoke(gateways.api.ledger.storage, "alpha")
    gateways.api.ledger.clock.advance(1)

    with pytest.raises(AgentApiError, match="401 the key of host alpha is revoked"):
        client.payload(guest, payload_ref(guest, "user_data"))
    assert gateways.pauses == []


@pytest.mark.parametrize("ahead_s", [-86_400.0, -61.5, 62.0, 86_400.0])
def test_a_host_whose_clock_is_off_goes_by_the_gateways_and_says_so_once_in_ten_minutes(
    gateways: Gateways, caplog: pytest.LogCaptureFixture, ahead_s: float
) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    gateways.ahead_s = ahead_s
    client = gateways.client(gateways.serve())
    ref = payload_ref(guest, "user_data")

    for _ in range(3):
        assert client.payload(guest, ref) == SECRET
    gateways.ahead_s = 3 * ahead_s
    assert client.payload(guest, ref) == SECRET
    [line] = [record for record in caplog.records if "clock" in record.getMessage() and record.name.startswith("host")]
    assert line.levelno == logging.WARNING
    assert f"is {ahead_s:+.0f} s from the gateway's, where it is 2030-03-17T17:46:40" in line.getMessage()
    assert gateways.pauses == []

    gateways.ahead_s = 0
    gateways.api.now += 601
    assert client.payload(guest, ref) == SECRET
    assert caplog.text.count("requests go by the gateway's") == 2


def test_a_wrong_time_that_no_gateway_tells_may_pass(gateways: Gateways) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)

    async def tells_no_time(scope: Any, receive: Any, send: Any) -> None:
        async def without(message: Any) -> None:
            message["headers"] = [h for h in message.get("headers", ()) if h[0] != TIME_HEADER.encode()]
            await send(message)

        await gateways.api.app(scope, receive, without)

    gateways.ahead_s = 100
    gateways.meanwhile = lambda: setattr(gateways, "ahead_s", 0)  # somebody sets it

    client = gateways.client(gateways.serve(tells_no_time))
    assert client.payload(guest, payload_ref(guest, "user_data")) == SECRET
    assert gateways.pauses == [1.0]


def test_a_host_asks_what_its_session_is_and_does_not_wait_for_an_answer(gateways: Gateways) -> None:
    session = gateways.api.ledger.hosts["alpha"].agent.session
    assert session is not None
    client = gateways.client(nowhere(), gateways.serve())
    assert client.session(*session) == "current"
    assert client.session(session[0], "another") == "replaced"

    for app in (unavailable, no_such_page):
        with pytest.raises(AgentApiError) as failed:
            gateways.client(nowhere(), gateways.serve(app)).session(*session)
        assert not isinstance(failed.value, KeyRefused)
    assert gateways.pauses == []


def test_a_key_that_is_refused_is_told_from_a_gateway_that_is_away(gateways: Gateways) -> None:
    client = gateways.client(gateways.serve(), nowhere())
    enrollment.revoke(gateways.api.ledger.storage, "alpha")
    gateways.api.ledger.clock.advance(1)

    with pytest.raises(KeyRefused, match="401 the key of host alpha is revoked"):
        client.session(1, "a-session")


def test_a_gateway_that_nobody_vouches_for_gets_no_answer(gateways: Gateways, tmp_path: Path) -> None:
    guest = gateways.api.guest_on(gateways.api.alpha)
    stranger = Certified(tmp_path, "stranger")
    client = gateways.client(gateways.serve(), cafile=stranger.certificate)

    with pytest.raises(AgentApiError, match="certificate verify failed"):
        client.payload(guest, payload_ref(guest, "user_data"))
    assert gateways.pauses == [], "it is not waited for"


def test_a_file_without_authorities_is_refused_at_once(gateways: Gateways, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("no certificate")
    for cafile in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(AgentApiError, match="holds no certificates"):
            gateways.client("https://127.0.0.1", cafile=cafile)
    with pytest.raises(AgentApiError, match="no gateway"):
        gateways.client()


def test_it_is_said_when_secrets_travel_in_the_open(gateways: Gateways, caplog: pytest.LogCaptureFixture) -> None:
    gateways.client("http://127.0.0.1:1", "https://gateway.example")
    assert "for all to read" not in caplog.text
    gateways.client("http://gateway.example")
    assert "for all to read" in caplog.text


def test_no_line_of_the_log_holds_a_payload_or_a_signature(
    gateways: Gateways, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guest = gateways.api.guest_on(gateways.api.alpha)
    gateways.client(gateways.serve()).payload(guest, payload_ref(guest, "user_data"))

    assert "secret" not in caplog.text
    assert "x-ledger-signature" not in caplog.text


# what a create makes of it


def test_a_guest_whose_files_cannot_be_had_fails_with_the_reason(gateways: Gateways, tmp_path: Path) -> None:
    client = gateways.client(gateways.serve(unavailable))
    files = Files(client, ImageCache(tmp_path / "images", max_bytes=1), tmp_path, gateways.api.ledger.clock)
    guest = guest_spec(InstanceId(gateways.api.guest_on(gateways.api.alpha)))
    ref = payload_ref(guest.instance_id, "user_data")

    with pytest.raises(DriverError, match=r"a payload of the guest cannot be had: .*503"):
        files.prepare(replace(guest, image=None, config_drive=True, user_data=ref))
