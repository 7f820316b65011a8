"""The Compute API over a ledger that is stepped: every handler there is, no process and no thread. What a request asks for
is recorded before its answer, and each read shows all that is recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from commands.command import Unit, UnitResult
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.backend import Backend
from gateway.faces import handlers
from gateway.options import Options
from gateway.policy import Policy
from gateway.server_filters import install
from tests.support.compute_api import Client, Tokens
from tests.support.ledger import Ledger


class Inline:
    """The ledger's appender, asked on the caller's thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def submit(self, unit: Unit) -> Future[UnitResult]:
        future: Future[UnitResult] = Future()
        try:
            future.set_result(self._ledger.appender.execute(unit))
        except Exception as error:
            future.set_exception(error)
        return future


class Stepped:
    """The ledger's views, stepped to the head before each read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._database = sqlite3.connect(ledger.directory / "views.db", isolation_level=None, check_same_thread=False)
        install(self._database)

    async def current(self) -> sqlite3.Connection:
        while self._ledger.step("views"):
            pass
        return self._database

    async def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        return (await self.current()).execute(statement, parameters).fetchall()

    async def row(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        return (await self.current()).execute(statement, parameters).fetchone()

    def close(self) -> None:
        self._database.close()


class Served:
    """A ledger with views, and a client of its API: `api("GET", "/flavors", version="2.61")`."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("alpha",), **options: Any) -> None:
        self.ledger = Ledger(directory, hosts, views=True)
        self.ledger.settle()
        self.options = Options(directory=directory, url="http://cloud.example", **options)
        self.identity: Any = Tokens()
        self.images = StandaloneImages(directory / "images", max_bytes=1 << 30)
        self.networks = StandaloneNetworks(name="private", bridge=None)
        self.views = Stepped(self.ledger)
        self.backend = Backend(Inline(self.ledger), self.ledger.log, self.views, self.ledger.vault)  # type: ignore[arg-type]
        self._client = Client(handlers(self), Policy())

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """One request, as an administrator's where no token is named; `path` is below /v2.1."""
        more.setdefault("token", "admin")
        if body is not None:
            more["json"] = body
        return self._client(method, f"/v2.1{path}", **more)

    def get(self, path: str, **more: Any) -> Any:
        answer = self("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def recorded(self) -> int:
        """The head: a request that was refused leaves it where it was."""
        return self.ledger.log.head()

    def close(self) -> None:
        self.views.close()
        self.ledger.close()
