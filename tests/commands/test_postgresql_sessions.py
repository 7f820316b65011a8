"""Who waits for the database to say something hears it at once, and sleeps until then."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from commands.election import Election
from commands.postgresql_sessions import CommitBell, Hearing, Session, connect
from commands.postgresql_store import PostgreSQLEventStore
from deploy.private_postgresql import PrivatePostgreSQL
from tests.support.hypervisors import eventually
from tests.support.postgresql import administer, database, end_sessions, postgresql

__all__ = ["database", "postgresql"]

LIMIT_S = 60
WATCHED_S = 2.0
FEW = 10  # wake-ups in that time, of threads that ask once a second at most


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    with connect(database, "one who hears") as made:
        made.execute("LISTEN here")
        yield made


@pytest.fixture
def hearing() -> Iterator[Hearing]:
    with closing(Hearing()) as made:
        yield made


def notify(database: str, payload: str) -> None:
    with connect(database, "one who tells") as other:
        other.execute("SELECT pg_notify('here', %s)", (payload,))


def test_a_database_that_freezes_is_named(postgresql: PrivatePostgreSQL, session: Session) -> None:
    with (
        postgresql.paused(),
        pytest.raises(psycopg.OperationalError, match=f"PostgreSQL at 127.0.0.1:{postgresql.port}: "),
    ):
        session.execute("SELECT 1")
    session.close()


def test_what_comes_while_nobody_waits_is_heard(database: str, session: Session, hearing: Hearing) -> None:
    notify(database, "one")
    session.execute("SELECT 1")
    notify(database, "two")

    heard: list[str] = []
    while len(heard) < 2:
        heard += hearing.wait(session, LIMIT_S)

    assert heard == ["one", "two"]
    assert hearing.wait(session, 0) == []


def test_what_comes_while_one_waits_is_heard(database: str, session: Session, hearing: Hearing) -> None:
    heard: list[str] = []
    waiter = threading.Thread(target=lambda: heard.extend(hearing.wait(session, LIMIT_S)))
    waiter.start()

    notify(database, "one")

    waiter.join(LIMIT_S / 2)
    assert heard == ["one"]


def test_a_session_that_is_ended_is_heard_of(postgresql: PrivatePostgreSQL, session: Session, hearing: Hearing) -> None:
    end_sessions(postgresql, "one who hears")

    with pytest.raises(psycopg.OperationalError):
        hearing.wait(session, LIMIT_S)


def test_who_waits_can_be_stopped(session: Session, hearing: Hearing) -> None:
    waiter = threading.Thread(target=lambda: hearing.wait(session, LIMIT_S))
    waiter.start()

    hearing.stop()

    waiter.join(LIMIT_S / 2)
    assert not waiter.is_alive()


def woken(thread: threading.Thread) -> int:
    """How often it has waited so far (proc(5), /proc/pid/task/tid/status)."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


LISTENS = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND state = 'idle' AND query LIKE 'SELECT%%'"


def test_at_rest_nothing_is_woken(postgresql: PrivatePostgreSQL, database: str) -> None:
    with (
        closing(PostgreSQLEventStore(database)) as store,
        closing(CommitBell(database, application_name="the bell")) as bell,
        closing(Election(database, ["a seat"], process="one")) as election,
    ):
        bell.wait(store.head(), 0)
        eventually(lambda: administer(postgresql, LISTENS, "the bell"), "it listens", within_s=LIMIT_S)
        threads = [bell._thread, election._thread]
        eventually(lambda: election.holds("a seat"), "it is elected", within_s=LIMIT_S)
        before = [woken(thread) for thread in threads if thread is not None]

        assert not bell.wait(store.head(), WATCHED_S)

        after = [woken(thread) for thread in threads if thread is not None]
        assert [now - then < FEW for now, then in zip(after, before, strict=True)] == [True, True]


def test_who_stands_for_nothing_asks_nobody(database: str) -> None:
    with closing(Election(database, [], process="nobody")) as election:
        assert election._thread is None
        assert not election.holds("build")
