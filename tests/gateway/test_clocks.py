"""A process whose clock is not the store's says so: at its start, and whenever it is asked how it is."""

from __future__ import annotations

import logging

import pytest

from commands.event_store import StoreUnavailable
from gateway.clocks import FRESH_S, StoreClock, apart


@pytest.mark.parametrize("ahead_s", [0.0, 4.9, -4.9])
def test_a_little_is_nothing(ahead_s: float) -> None:
    assert apart(ahead_s) is None


@pytest.mark.parametrize(("ahead_s", "said"), [(7200.0, "7200 s ahead of"), (-5.6, "6 s behind")])
def test_more_is_said(ahead_s: float, said: str) -> None:
    assert said in (apart(ahead_s) or "")


def test_it_is_warned_of_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    StoreClock(lambda: 7200.0).warn()
    StoreClock(lambda: 0.0).warn()

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, apart(7200.0))]


def test_the_store_is_asked_now_and_then() -> None:
    time, ahead, asked = [0.0], [0.0], []

    def ahead_s() -> float:
        asked.append(time[0])
        return ahead[0]

    clock = StoreClock(ahead_s, lambda: time[0])
    assert clock() is None
    ahead[0] = 60.0
    assert clock() is None
    time[0] = FRESH_S
    assert clock() == apart(60.0)
    assert clock() == apart(60.0)
    assert asked == [0.0, FRESH_S]


def test_a_store_that_is_away_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    answers = [StoreUnavailable("it is away"), 60.0]

    def ahead_s() -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = StoreClock(ahead_s)
    clock.warn()
    assert caplog.records == []
    assert clock() == apart(60.0)
