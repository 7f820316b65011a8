"""How a process says that it is well, and that it can do its work; and where it says so."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from commands.event_store import StoreUnavailable
from gateway.health import Answer, Health, Operators, asgi
from gateway.listening import CannotListen
from gateway.view_reader import CATCH_UP_S, FAR_BEHIND, Reading
from tests.support.hypervisors import eventually

LIMIT_S = 0.05


def well() -> None:
    return None


def unwell() -> str:
    return "it is broken"


class Frozen:
    """A check that answers once it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = 0

    def __call__(self) -> str | None:
        self.asked += 1
        self.let_go.wait(60)
        return None


def told(answer: Answer) -> tuple[int, dict[str, str]]:
    status, _, body = answer
    shown = json.loads(body)
    assert shown["ok"] == (status == 200)
    return status, shown["checks"]


# checks


def test_a_process_of_which_nothing_is_wrong_is_ready() -> None:
    health = Health({"consumers": well}, {"store": well})

    assert told(health.healthz()) == (200, {"consumers": "ok"})
    assert told(health.readyz()) == (200, {"consumers": "ok", "store": "ok"})


def test_what_is_wrong_is_said_and_what_is_right_too() -> None:
    health = Health({"consumers": well}, {"store": unwell, "views": well})

    assert told(health.readyz()) == (503, {"consumers": "ok", "store": "it is broken", "views": "ok"})
    assert told(health.healthz()) == (200, {"consumers": "ok"})


def test_one_that_does_not_live_is_not_ready_either() -> None:
    health = Health({"consumers": unwell}, {"store": well})

    assert told(health.readyz())[0] == told(health.healthz())[0] == 503


def test_a_check_that_fails_is_said_on_one_line() -> None:
    def refused() -> None:
        raise ConnectionRefusedError("nobody\n\tlistens")

    assert told(Health({}, {"store": refused}).readyz()) == (503, {"store": "ConnectionRefusedError: nobody listens"})


def test_a_check_that_does_not_answer_is_not_waited_for_and_asked_once_at_a_time() -> None:
    frozen = Frozen()
    health = Health({}, {"store": frozen, "views": well}, limit_s=LIMIT_S)

    answers = [told(health.readyz()) for _ in range(3)]

    assert answers == [(503, {"store": "no answer within 0.05 s", "views": "ok"})] * 3
    assert frozen.asked == 1
    frozen.let_go.set()
    eventually(lambda: told(health.readyz()) == (200, {"store": "ok", "views": "ok"}), "it answers again")


def test_frozen_checks_are_waited_for_at_the_same_time() -> None:
    checks = {str(number): Frozen() for number in range(50)}

    status, found = told(Health({}, checks, limit_s=LIMIT_S).readyz())

    assert status == 503
    assert set(found.values()) == {"no answer within 0.05 s"}
    for check in checks.values():
        check.let_go.set()


def test_what_is_only_shown_makes_nothing_unready() -> None:
    health = Health({}, {"store": well}, {"kafka": unwell})

    assert told(health.readyz()) == (200, {"store": "ok", "kafka": "it is broken"})
    assert "kafka" not in told(health.healthz())[1]


def test_what_is_only_shown_is_shown_as_it_was_last_known() -> None:
    kafka = Frozen()
    health = Health({}, {}, {"kafka": kafka})

    assert told(health.readyz()) == (200, {"kafka": "not known yet"})
    kafka.let_go.set()
    eventually(lambda: told(health.readyz()) == (200, {"kafka": "ok"}), "it is known")
    kafka.let_go.clear()
    assert told(health.readyz()) == (200, {"kafka": "ok"})
    kafka.let_go.set()


# views


@dataclass
class Views:
    """Of the process under test, and the ledger's head."""

    at: int = 0
    head: int = 0
    now: float = 0.0

    def position(self) -> int:
        return self.at


@pytest.fixture
def views() -> Views:
    return Views()


@pytest.fixture
def reading(views: Views) -> Callable[[], str | None]:
    return Reading(lambda: views.head, views, lambda: views.now)  # type: ignore[arg-type]


def test_views_at_the_head_or_a_little_behind_can_be_read(views: Views, reading: Callable[[], str | None]) -> None:
    for views.head in (0, 1, FAR_BEHIND):
        assert reading() is None


def test_views_far_behind_cannot(views: Views, reading: Callable[[], str | None]) -> None:
    views.head = FAR_BEHIND + 1
    assert reading() == f"{FAR_BEHIND + 1} events behind"


def test_without_views_nothing_can_be_read(views: Views, reading: Callable[[], str | None]) -> None:
    views.at = -1
    assert reading() == "there are none on this machine"


def test_views_that_stand_still_behind_the_head_cannot_be_read(views: Views, reading: Callable[[], str | None]) -> None:
    views.now = 1000.0
    assert reading() is None  # they stand at the head, for as long as nothing happens
    views.head = 3
    views.now += 1000
    assert reading() is None
    views.now += CATCH_UP_S + 1
    assert reading() == f"3 events behind, and they have stood still for {CATCH_UP_S + 1:.0f} s"
    views.at = 1
    assert reading() is None
    views.now += CATCH_UP_S + 1
    assert reading() == f"2 events behind, and they have stood still for {CATCH_UP_S + 1:.0f} s"
    views.at = 3
    assert reading() is None


def test_who_asks_first_is_told_since_when_views_stand_still(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.view_reader.LOOK_EVERY_S", 0.001)
    looks: list[float] = []

    def head() -> int:
        looks.append(views.now)
        if len(looks) == 2:
            raise StoreUnavailable("for a moment")
        return views.head

    reading = Reading(head, views, lambda: views.now)  # type: ignore[arg-type]
    views.head = 3
    reading.start()
    eventually(lambda: len(looks) > 3, "it has looked by itself")
    views.now = 60.0

    assert reading() == "3 events behind, and they have stood still for 60 s"
    reading.close()


# where it is said


@contextmanager
def operators(health: Health, metrics: Callable[[], bytes] = lambda: b"a 1\n") -> Iterator[str]:
    served = Operators("127.0.0.1:0", health, metrics)
    served.start()
    try:
        yield served.url
    finally:
        served.stop()


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_operators_are_told_at_an_address_of_their_own() -> None:
    with operators(Health({}, {"store": unwell})) as url:
        assert get(f"{url}/healthz") == (200, "application/json", b'{"ok":true,"checks":{}}')
        assert get(f"{url}/readyz?verbose")[0] == 503
        status, content_type, body = get(f"{url}/metrics")
        assert (status, body) == (200, b"a 1\n")
        assert content_type.startswith("text/plain; version=")
        assert get(f"{url}/anything")[0] == 404


def test_who_asks_while_a_check_does_not_answer_does_not_hold_up_the_others() -> None:
    frozen = Frozen()
    with operators(Health({}, {"store": frozen}, limit_s=60)) as url:
        waiting = threading.Thread(target=get, args=(f"{url}/readyz",))
        waiting.start()
        eventually(lambda: frozen.asked, "readiness is being asked")
        assert get(f"{url}/metrics")[0] == 200
        frozen.let_go.set()
        waiting.join()


def test_a_request_that_fails_is_logged_and_the_next_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bytes:
        raise RuntimeError("no metrics")

    with operators(Health({}, {}), broken) as url:
        with pytest.raises(OSError):  # noqa: PT011 (whichever way a connection ends)
            get(f"{url}/metrics")
        assert get(f"{url}/healthz")[0] == 200
    assert "an operator's request failed" in caplog.text


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}"):
            Operators(f"127.0.0.1:{port}", Health({}, {}), lambda: b"")


async def answered(answer: Callable[[], Answer]) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await asgi(answer)({"type": "http"}, lambda: None, send)  # type: ignore[arg-type]
    return sent


def test_beside_an_api_it_is_said_in_the_same_words() -> None:
    import asyncio

    start, body = asyncio.run(answered(Health({}, {"store": unwell}).readyz))

    assert start["status"] == 503
    assert body["body"] == b'{"ok":false,"checks":{"store":"it is broken"}}'
