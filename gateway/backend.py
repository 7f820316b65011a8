"""What handlers reach the ledger through: commands in, views out, queries to hosts.

Reads include every write answered before they began: a read asks the store's head once and waits until the views have
reached it. Views that are far behind answer 503, never something older.
"""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson

from commands.appender import Appender
from commands.command import Accepted, Ask, Unit
from commands.log.port import ANSWERS, Log, Message, queries_topic
from commands.vault import Payload, Vault
from domain.errors import DomainError
from domain.identifiers import ProjectId, RequestId, ServiceId, UserId, VaultRef
from domain.recorded import Cause
from gateway.faults import Fault
from projections.views import Views

FAR_BEHIND = 5000  # events
CATCH_UP_S = 10.0
QUERY_DEADLINE_S = 10.0


class QueryFailed(Exception):
    """The host could not answer; the message is its own."""


class QueryUnanswered(Exception):
    """The host did not answer within 10 s."""


class Asking(Protocol):
    """Who asks: what a command's cause is taken from."""

    request_id: str

    @property
    def credentials(self) -> Any: ...


class ViewReader:
    """Reads of the views, from one event loop."""

    def __init__(self, path: Path, the_log: Log, views: Views) -> None:
        self._log = the_log
        self._views = views
        self.database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
        self.database.execute("PRAGMA query_only=ON")
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        views.on_progress(self._progressed)

    async def current(self) -> sqlite3.Connection:
        """The views, once they include all that is recorded now.

        Raises:
            Fault: 503 with Retry-After, they are more than 5,000 events behind, or did not come closer for 10 s.
        """
        head = self._log.head()
        if self._views.position >= head:
            return self.database
        if head - self._views.position > FAR_BEHIND:
            raise _behind()
        self._loop = asyncio.get_running_loop()
        reached: asyncio.Future[None] = self._loop.create_future()
        with self._guard:
            self._waiting.append((head, reached))
        if self._views.position >= head:  # it came while we were queueing
            self._release()
        try:
            await asyncio.wait_for(reached, CATCH_UP_S)
        except TimeoutError:
            raise _behind() from None
        return self.database

    async def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        return (await self.current()).execute(statement, parameters).fetchall()

    async def row(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        return (await self.current()).execute(statement, parameters).fetchone()

    def close(self) -> None:
        self.database.close()

    def _progressed(self, position: int) -> None:
        with self._guard:
            waiting = bool(self._waiting)
        if waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        position = self._views.position
        with self._guard:
            ready = [future for head, future in self._waiting if head <= position]
            self._waiting = [(head, future) for head, future in self._waiting if head > position]
        for future in ready:
            if not future.done():
                future.set_result(None)


def _behind() -> Fault:
    return Fault(503, "The views are being brought up to date; nothing older is shown.", retry_after_s=2)


class Backend:
    def __init__(self, appender: Appender, the_log: Log, views: ViewReader, vault: Vault) -> None:
        self._appender = appender
        self._log = the_log
        self._vault = vault
        self.views = views

    async def ask(
        self,
        asking: Asking,
        command: Any,
        payloads: Mapping[VaultRef, Payload] | None = None,
        command_id: uuid.UUID | None = None,
    ) -> Accepted:
        """Have a command decided and recorded.

        Raises:
            DomainError: refused; nothing was recorded.
            StoreUnavailable: HTTP answers 503.
        """
        credentials = asking.credentials
        cause = Cause(
            command_id=command_id or uuid.uuid4(),
            request_id=RequestId(asking.request_id),
            user_id=UserId(credentials.user_id),
            project_id=ProjectId(credentials.project_id),
        )
        unit = Unit(asks=(Ask(command=command, cause=cause, payloads=payloads or {}),))
        result = await asyncio.wrap_future(self._appender.submit(unit))
        outcome = result.outcomes[0]
        if isinstance(outcome, DomainError):
            raise outcome
        return outcome

    def payload(self, ref: VaultRef) -> bytes | None:
        return self._vault.payload(ref)

    async def console(self, service_id: ServiceId, instance_id: str) -> bytes:
        """A guest's console, asked of its host and never recorded.

        Raises:
            QueryFailed, QueryUnanswered.
        """
        answer = await asyncio.to_thread(self._query, service_id, {"what": "console", "instance_id": instance_id})
        if "error" in answer:
            raise QueryFailed(answer["error"])
        return base64.b64decode(answer["console"])

    def _query(self, service_id: ServiceId, query: Mapping[str, str]) -> dict[str, str]:
        key = str(uuid.uuid4())
        after = self._log.end(ANSWERS)
        self._log.publish([Message(queries_topic(service_id), key, orjson.dumps(query))])
        deadline = time.monotonic() + QUERY_DEADLINE_S
        while (left := deadline - time.monotonic()) > 0:
            for record in self._log.read(ANSWERS, after, 100):
                after = record.offset
                if record.key == key and record.value is not None:
                    answer: dict[str, str] = orjson.loads(record.value)
                    return answer
            self._log.wait(ANSWERS, after, min(left, 1.0))
        raise QueryUnanswered("the host did not answer within 10 s")
