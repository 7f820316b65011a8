"""How PostgreSQL is reached: sessions that give up in time, and the bell that rings when somebody has committed."""

from __future__ import annotations

import hashlib
import logging
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 2
ANSWER_LIMIT_S = 2.5  # longer than a lock is waited for
MOST_SESSIONS = 8
HEAD = "SELECT COALESCE(MAX(notification_id), 0) FROM stored_events"
HEAD_CHANNEL = "ledger_head"
POLL_S = 3.0
PAUSE_S = 0.5

# How soon a database that has vanished, or a process of ours that has, is noticed. Parameters of the URL win.
# No statement_timeout: it would end a COMMIT's wait for a synchronous standby, and let it count as committed.
CONNECTION = {
    "connect_timeout": 2,  # the least that libpq knows
    "tcp_user_timeout": 2000,  # ms
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "target_session_attrs": "read-write",  # of several hosts, the primary
    "client_encoding": "utf8",
}
SESSION = {
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "1500ms",  # a frozen writer gives up its lock before others give up on it
    "client_connection_check_interval": "2s",  # what nobody waits for any more is ended
    "synchronous_commit": "on",
    "search_path": "public",
}


class Session(psycopg.Connection[Any]):
    """A connection that does not wait for ever: a server that is frozen keeps its connections up."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, ANSWER_LIMIT_S)
        except psycopg.errors._WaitTimeout as error:
            place = _places({"host": self.info.host, "port": self.info.port})
            raise psycopg.OperationalError(f"{place}: {error}") from error


def connect(url: str, application_name: str, **settings: str) -> Session:
    """Open a session of its own; each statement is a transaction, unless it begins one.

    Raises:
        psycopg.Error
    """
    parameters: dict[str, Any] = {**CONNECTION, **conninfo_to_dict(url), "application_name": application_name}
    options = " ".join(f"-c {name}={value}" for name, value in {**SESSION, **settings}.items())
    parameters["options"] = f"{options} {parameters.get('options') or ''}"
    try:
        return Session.connect(autocommit=True, **parameters)
    except psycopg.errors.ConnectionTimeout as error:  # the one failure that does not say where
        raise psycopg.OperationalError(f"{_places(parameters)}: {error}") from error


def _places(parameters: Mapping[str, Any]) -> str:
    """The host and port of each server that is meant, and no more of a URL: it may hold a password."""
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "this machine").split(",")
    ports = str(parameters.get("port") or 5432).split(",")
    ports *= len(hosts) if len(ports) == 1 else 1
    return f"PostgreSQL at {', '.join(map(':'.join, zip(hosts, ports, strict=False)))}"


def advisory_key(name: str) -> int:
    """The number of a lock that is about a name; PostgreSQL takes a signed one of 64 bits."""
    return int.from_bytes(hashlib.sha256(f"compute-ledger/{name}".encode()).digest()[:8], signed=True)


class Sessions:
    """Open sessions, to be used again. One is opened where it is needed: who meets a dead database hears it at once, and
    nothing has to find out that it lives again."""

    def __init__(self, url: str, application_name: str) -> None:
        self._url = url
        self._application_name = application_name
        self._idle: list[Session] = []
        self._free = threading.BoundedSemaphore(MOST_SESSIONS)

    @contextmanager
    def one(self) -> Iterator[Session]:
        """A session for the caller alone; one in which anything failed is not used again.

        Raises:
            psycopg.Error
        """
        if not self._free.acquire(timeout=LOCK_TIMEOUT_S):
            raise psycopg.OperationalError(f"all {MOST_SESSIONS} sessions are in use")
        try:
            session = self._take()
            try:
                yield session
            except BaseException:
                session.close()
                raise
            self._idle.append(session)
        finally:
            self._free.release()

    def _take(self) -> Session:
        while True:
            try:
                session = self._idle.pop()
            except IndexError:
                return connect(self._url, self._application_name)
            if _stands(session):
                return session
            session.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class Hearing:
    """Waits for what a server sends unasked, without waking up before something comes; for one thread."""

    def __init__(self) -> None:
        self._end, self._other_end = socket.socketpair()

    def wait(self, session: Session, timeout_s: float) -> list[str]:
        """What was notified, as soon as there is something, or `stop` was called.

        Raises:
            psycopg.Error: the session was ended.
        """
        heard = _notified(session)  # beside an answer it may have come already
        if not heard:
            poll = select.poll()
            poll.register(session.fileno(), select.POLLIN)
            poll.register(self._end, select.POLLIN)
            if poll.poll(max(0.0, timeout_s) * 1000):
                heard = _notified(session)
        return heard

    def stop(self) -> None:
        """Nobody waits from now on."""
        self._other_end.send(b".")

    def close(self) -> None:
        self._end.close()
        self._other_end.close()


def _notified(session: Session) -> list[str]:
    return [notice.payload for notice in session.notifies(timeout=0)]


def _stands(session: Session) -> bool:
    """Whether the server has not hung up meanwhile. Asks it nothing."""
    poll = select.poll()
    try:
        poll.register(session.fileno(), select.POLLIN)
        while poll.poll(0):
            session.pgconn.consume_input()
    except psycopg.Error:
        return False
    return True


class CommitBell:
    """Rings when events have been committed, by whichever process.

    It is a bell and no messenger: a ring may be lost, with its connection or without, so the head is also asked for every
    few seconds. Whoever waits is never told of a failure; the store will tell.
    """

    def __init__(self, url: str, *, application_name: str = "compute-ledger bell") -> None:
        self._url = url
        self._application_name = application_name
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._hearing = Hearing()
        self._woken = 0
        self._failing = False
        self.head = 0  # the newest position heard of; there may be newer ones

    def wait(self, after: int, timeout_s: float) -> bool:
        """Whether there is something after this position, as soon as there is or `wake` is called."""
        self._start()
        with self._changed:
            woken = self._woken
            self._changed.wait_for(lambda: self.head > after or self._woken != woken, timeout_s)
            return self.head > after

    def wake(self) -> None:
        """Let everyone who waits go on."""
        with self._changed:
            self._woken += 1
            self._changed.notify_all()

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._hearing.stop()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self._hearing.close()

    def _start(self) -> None:
        with self._changed:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="commit bell", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with connect(self._url, self._application_name) as session:
                    self._listen(session)
            except psycopg.Error as error:
                if not self._failing:
                    log.warning("the commit bell hears nothing until the database is back: %s", error)
                self._failing = True
                self._closing.wait(PAUSE_S)

    def _listen(self, session: Session) -> None:
        session.execute(f"LISTEN {HEAD_CHANNEL}")
        self._failing = False
        asked = -POLL_S
        while not self._closing.is_set():
            if monotonic() - asked >= POLL_S:
                asked = monotonic()
                for (head,) in session.execute(HEAD):
                    self._ring(head)
            for payload in self._hearing.wait(session, asked + POLL_S - monotonic()):
                if payload.isdecimal():
                    self._ring(int(payload))

    def _ring(self, head: int) -> None:
        with self._changed:
            if head > self.head:
                self.head = head
                self._changed.notify_all()
