"""Who is the active one: never two who both know it, and soon another where one has gone."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from time import monotonic

import pytest

from commands.election import Always, Election
from deploy.private_postgresql import PrivatePostgreSQL
from tests.support.hypervisors import eventually
from tests.support.postgresql import PROCESSES, administer, database, end_sessions, postgresql, processes, stopped

__all__ = ["database", "postgresql"]

NAMES = ("build", "inbox")
SOON_S = 20  # a session that is silent is ended after five seconds

Stand = Callable[[str], Election]


@pytest.fixture
def stand(database: str) -> Iterator[Stand]:
    """Another candidate, as another process has one."""
    with ExitStack() as stack:
        yield lambda process: stack.enter_context(closing(Election(database, NAMES, process=process)))


def holders(candidates: list[Election], name: str) -> list[Election]:
    return [candidate for candidate in candidates if candidate.holds(name)]


def wins(candidate: Election, *names: str) -> None:
    eventually(lambda: all(candidate.holds(name) for name in names or NAMES), "it is elected", within_s=SOON_S)


def test_of_several_exactly_one_is_elected(stand: Stand) -> None:
    candidates = [stand(f"process {number}") for number in range(4)]
    for name in NAMES:
        eventually(lambda name=name: holders(candidates, name), "one is elected", within_s=SOON_S)  # type: ignore[misc]

    for _ in range(20):
        candidates[0].wait(0.1)
        assert [len(holders(candidates, name)) for name in NAMES] == [1, 1]
    assert not any(candidate.holds("another name") for candidate in candidates)


def test_when_the_active_one_ends_another_is_elected_at_once(stand: Stand) -> None:
    first = stand("first")
    wins(first)
    second = stand("second")
    begun = monotonic()

    first.close()

    assert not first.holds("build")
    wins(second)
    assert monotonic() - begun < 5


def test_who_resigns_leaves_the_name_to_others_for_good(stand: Stand) -> None:
    first = stand("first")
    wins(first)
    second = stand("second")

    first.resign("build")

    assert not first.holds("build")
    wins(second, "build")
    assert first.holds("inbox")
    second.resign("build")
    third = stand("third")
    wins(third, "build")
    assert not first.holds("build")


def test_whoever_waits_hears_of_a_change(stand: Stand) -> None:
    first = stand("first")
    wins(first)
    second = stand("second")
    elected: list[bool] = []

    def wait() -> None:
        deadline = monotonic() + SOON_S
        while not second.holds("build") and (left := deadline - monotonic()) > 0:
            second.wait(left)
        elected.append(second.holds("build") and monotonic() < deadline)

    waiter = threading.Thread(target=wait)
    waiter.start()
    first.close()
    waiter.join()

    assert elected == [True]


# processes


def stand_and_tell(url: str, pipe: Connection) -> None:
    """Another process; it answers each question with what it holds."""
    election = Election(url, NAMES, process="another process")
    while True:
        pipe.recv()
        pipe.send([name for name in NAMES if election.holds(name)])


class Another:
    def __init__(self, pid: int, pipe: Connection) -> None:
        self.pid = pid
        self._pipe = pipe

    def held(self) -> list[str]:
        self._pipe.send(None)
        assert self._pipe.poll(60)
        names: list[str] = self._pipe.recv()
        return names


@pytest.fixture
def another(database: str) -> Iterator[Another]:
    """The active one, in a process of its own."""
    here, there = PROCESSES.Pipe()
    with processes(stand_and_tell, (database, there)) as [process]:
        assert process.pid is not None
        made = Another(process.pid, here)
        eventually(lambda: made.held() == list(NAMES), "it is elected", within_s=60)
        yield made


def test_when_the_active_process_is_killed_another_takes_over(another: Another, stand: Stand) -> None:
    second = stand("second")
    assert not second.holds("build")

    os.kill(another.pid, signal.SIGKILL)

    wins(second)


def test_a_process_that_was_frozen_is_replaced_and_knows_it_when_it_wakes(another: Another, stand: Stand) -> None:
    second = stand("second")
    os.kill(another.pid, signal.SIGSTOP)
    wins(second)

    os.kill(another.pid, signal.SIGCONT)

    for _ in range(20):
        assert another.held() == []
    second.close()
    eventually(lambda: another.held() == list(NAMES), "it is elected again", within_s=SOON_S)


# the database


def test_who_does_not_hear_from_the_database_holds_nothing(postgresql: PrivatePostgreSQL, stand: Stand) -> None:
    candidate = stand("first")
    wins(candidate)

    with postgresql.paused():
        eventually(lambda: not candidate.holds("build"), "it does not count on it", within_s=6)

    wins(candidate)


def test_a_restart_of_the_database_elects_anew(postgresql: PrivatePostgreSQL, stand: Stand) -> None:
    candidates = [stand(f"process {number}") for number in range(3)]
    eventually(lambda: holders(candidates, "build"), "one is elected", within_s=SOON_S)

    with stopped(postgresql):
        eventually(lambda: not holders(candidates, "build"), "nobody is", within_s=6)

    eventually(lambda: holders(candidates, "build"), "one is elected again", within_s=SOON_S)
    assert len(holders(candidates, "build")) == 1


def test_a_session_that_is_ended_is_noticed_and_another_is_opened(
    postgresql: PrivatePostgreSQL, stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    candidate = stand("the active one")
    wins(candidate)

    assert end_sessions(postgresql, "the active one") == 1

    eventually(lambda: "the active one lost: build, inbox" in caplog.messages, "it has lost", within_s=SOON_S)
    wins(candidate)


def test_the_database_shows_which_process_stands(postgresql: PrivatePostgreSQL, stand: Stand) -> None:
    wins(stand("worker on alpha"))

    statement = (
        "SELECT DISTINCT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
    )
    assert administer(postgresql, statement) == [("worker on alpha",)]


def test_a_ledger_of_one_process_is_always_the_active_one() -> None:
    always = Always()

    assert always.holds("build")
    always.resign("build")
    assert not always.holds("build")
    assert always.holds("inbox")
    always.close()
    always.wait(60)
