"""A PostgreSQL server for the tests, started where the first test asks for it, with a database for each test; and
processes that use it at once.
"""

from __future__ import annotations

import atexit
import multiprocessing
import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from commands.appender import Appender
from commands.assembly import utc_now
from commands.decisions import decisions
from commands.event_store import EventStore
from commands.vault import Vault
from deploy.private_postgresql import PrivatePostgreSQL, programs, start
from domain.quota import DEFAULT_LIMITS

_numbers = count(1)
# In this database's language "a:b" comes after "aa"; for the ledger it must not.
CREATE = "CREATE DATABASE {} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"


@contextmanager
def new_server(**how: Any) -> Iterator[PrivatePostgreSQL]:
    directory = Path(tempfile.mkdtemp(prefix="postgresql-"))  # short: a socket's path has at most 107 bytes
    try:
        with closing(start(directory, **how)) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@cache
def shared_server() -> PrivatePostgreSQL:
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(new_server())


@pytest.fixture
def postgresql() -> PrivatePostgreSQL:
    """The server of all tests."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    return shared_server()


@pytest.fixture
def database(postgresql: PrivatePostgreSQL) -> Iterator[str]:
    """The URL of an empty database."""
    with new_database(postgresql) as url:
        yield url


@contextmanager
def new_database(server: PrivatePostgreSQL) -> Iterator[str]:
    name = f"ledger_{next(_numbers)}"
    administer(server, CREATE.format(name))
    try:
        yield server.url_of(name)
    finally:
        administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def stopped(server: PrivatePostgreSQL) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


def administer(server: PrivatePostgreSQL, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a statement as the server's operator."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters or None)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []


def end_sessions(server: PrivatePostgreSQL, application_name: str) -> int:
    """How many there were."""
    statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    return len(administer(server, statement, application_name))


def appender_on(store: EventStore) -> Appender:
    """As another process has one; they share the master key."""
    return Appender(store, Vault(store, b"k" * 32), decisions(DEFAULT_LIMITS), utc_now, lambda *_: None)


PROCESSES = multiprocessing.get_context("spawn")


@contextmanager
def processes(target: Callable[..., None], *arguments: tuple[Any, ...]) -> Iterator[list[Any]]:
    """One process for each tuple of arguments; those that still run at the end are killed."""
    made = [PROCESSES.Process(target=target, args=each, daemon=True) for each in arguments]
    for process in made:
        process.start()
    try:
        yield made
    finally:
        for process in made:
            process.kill()
            process.join()


class Wire:
    """Between a store and its server: cuts the connection at a COMMIT, before the server hears of it or after it is done."""

    def __init__(self, server: PrivatePostgreSQL) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut: Literal["before", "after"] | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def url_of(self, url: str) -> str:
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        committing, answer = False, b""
        with closing(client), socket.create_connection(("127.0.0.1", self._server.port)) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    data = client.recv(65536)
                    committing |= self.cut is not None and b"COMMIT\0" in data
                    if not data or (committing and self.cut == "before"):
                        break
                    server.sendall(data)
                if server in ready:
                    data = server.recv(65536)
                    answer += data if committing else b""
                    if not data or (committing and b"COMMIT\0" in answer):
                        break
                    if not committing:
                        client.sendall(data)
        if committing:
            self.cut = None
