"""A host that the ledger no longer listens to says so, in words that an operator can act on."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from domain.identifiers import ServiceId
from hostagent.agent_api import AgentApiError, KeyRefused
from hostagent.standing import Standing


class Told:
    """What a gateway says, and how often it was asked; a minute goes by with each look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.answer: str | AgentApiError = "current"
        self.session: tuple[int, str] | None = (3, "a-session")
        self.asked: list[tuple[int, str]] = []
        self.now = 0.0
        self.standing = Standing(self._ask, lambda: self.session, ServiceId(UUID(int=1)), elapsed=lambda: self.now)
        self._caplog = caplog
        caplog.set_level(logging.INFO, "hostagent.standing")

    def _ask(self, epoch: int, session: str) -> str:
        self.asked.append((epoch, session))
        if isinstance(self.answer, AgentApiError):
            raise self.answer
        return self.answer

    def minutes(self, count: int) -> list[tuple[int, str]]:
        """What was said meanwhile."""
        self._caplog.clear()
        for _ in range(count):
            self.standing.step()
            self.now += 60
        return [(record.levelno, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


REVOKED = KeyRefused("https://gateway: 401 the key of host alpha is revoked")


def test_nothing_is_said_by_a_host_that_is_listened_to(told: Told) -> None:
    assert told.minutes(30) == []
    assert told.asked == [(3, "a-session")] * 30
    assert told.standing.wrong is None


def test_it_is_asked_once_a_minute_and_not_before_there_is_a_session(told: Told) -> None:
    told.session = None
    told.minutes(5)
    assert told.asked == []
    told.session = (4, "another")
    for _ in range(61):
        told.standing.step()
        told.now += 1

    assert told.asked == [(4, "another")] * 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (REVOKED, ["refuses this host's key", "the key of host alpha is revoked", "enroll the host again"]),
        ("replaced", ["another agent has taken session 3", "stop one of the two", "enroll the host again"]),
    ],
)
def test_what_is_wrong_is_said_at_once_and_then_every_ten_minutes(
    told: Told, answer: str | AgentApiError, words: list[str]
) -> None:
    told.answer = answer
    [(level, line)] = told.minutes(10)
    assert level == logging.WARNING
    assert all(word in line for word in words)
    assert len(told.minutes(20)) == 2
    assert told.standing.wrong == line

    told.answer = "current"
    assert told.minutes(5) == [(logging.INFO, "the ledger takes this host's word again")]
    assert told.standing.wrong is None
    told.answer = answer
    assert [level for level, _ in told.minutes(1)] == [logging.WARNING]


def test_gateways_that_are_away_say_nothing_about_a_host(told: Told) -> None:
    told.answer = AgentApiError("https://gateway: connection refused")
    assert told.minutes(5) == []
    told.answer = REVOKED
    assert len(told.minutes(1)) == 1
    told.answer = AgentApiError("https://gateway: connection refused")
    assert told.minutes(5) == []
    assert told.standing.wrong is not None


def test_a_session_that_stays_unrecorded_is_told_of(told: Told) -> None:
    told.answer = "unheard"

    assert told.minutes(1) == []
    [(level, said)] = told.minutes(5)
    assert level == logging.WARNING
    assert "session 3 of this host is not recorded" in said
    told.answer = "current"
    assert [level for level, _ in told.minutes(1)] == [logging.INFO]
