"""Reads of the views that include every write answered before they began.

A read asks the store's head once and waits until the views have reached it. Views that are far behind answer 503, never
something older. Where several processes each keep the views, a read takes those that are far enough.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from commands.event_store import StoreUnavailable
from commands.log.port import Events
from gateway.faults import Fault
from projections.views import Views

log = logging.getLogger(__name__)

FAR_BEHIND = 5000  # events
CATCH_UP_S = 10.0
POLL_S = 0.001  # while a read waits for another process's views
SEARCH_EVERY_S = 1.0
LOOK_EVERY_S = 1.0

Prepare = Callable[[sqlite3.Connection], None]


class Heads(Protocol):
    async def head(self) -> int:
        """The position of the newest event, asked for after the call began.

        Raises:
            StoreUnavailable
        """


class ViewSource(Protocol):
    def reached(self, position: int) -> sqlite3.Connection | None:
        """Views that include this position, if there are some."""

    def position(self) -> int:
        """How far the views furthest on have come; -1 without any."""

    def on_progress(self, listener: Callable[[], None]) -> bool:
        """Call it after each step, on any thread; False: steps are not told, ask again."""

    def close(self) -> None: ...


class ViewReader:
    """For one event loop."""

    def __init__(self, heads: Heads, source: ViewSource) -> None:
        self._heads = heads
        self._source = source
        self._waiting: list[tuple[int, asyncio.Future[sqlite3.Connection]]] = []
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = source.on_progress(self._progressed)
        self._polling: asyncio.Task[None] | None = None

    async def current(self) -> sqlite3.Connection:
        """The views, once they include all that is recorded now.

        Raises:
            Fault: 503 with Retry-After, they are more than 5,000 events behind, or did not come closer for 10 s.
            StoreUnavailable
        """
        head = await self._heads.head()
        database = self._source.reached(head)
        if database is not None:
            return database
        if head - self._source.position() > FAR_BEHIND:
            raise _behind()
        self._loop = asyncio.get_running_loop()
        reached: asyncio.Future[sqlite3.Connection] = self._loop.create_future()
        with self._guard:
            self._waiting.append((head, reached))
        self._release()  # it may have come while this was queueing
        if not self._told and (self._polling is None or self._polling.done()):
            self._polling = self._loop.create_task(self._poll())
        try:
            return await asyncio.wait_for(reached, CATCH_UP_S)
        except TimeoutError:
            raise _behind() from None

    async def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        return (await self.current()).execute(statement, parameters).fetchall()

    async def row(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        return (await self.current()).execute(statement, parameters).fetchone()

    def close(self) -> None:
        self._source.close()

    def _progressed(self) -> None:
        with self._guard:
            waiting = bool(self._waiting)
        if waiting and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release)

    async def _poll(self) -> None:
        while self._waiting:
            self._release()
            await asyncio.sleep(POLL_S)

    def _release(self) -> None:
        with self._guard:
            waiting, self._waiting = self._waiting, []
        still = []
        for head, future in waiting:
            if future.done():
                continue
            database = self._source.reached(head)
            if database is None:
                still.append((head, future))
            else:
                future.set_result(database)
        with self._guard:
            self._waiting += still


def _behind() -> Fault:
    return Fault(503, "The views are being brought up to date; nothing older is shown.", retry_after_s=2)


class Reading:
    """Whether reads are answered: the views are not far behind, nor do they stand still behind the head."""

    def __init__(
        self, head: Callable[[], int], source: ViewSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._head = head
        self._source = source
        self._clock = clock
        self._stood: tuple[int, float] | None = None  # where, behind the head, and since when
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look every second, so that who asks later is told since when they stand still."""
        self._thread = threading.Thread(target=self._watch, name="reading", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            with suppress(StoreUnavailable):
                self()

    def __call__(self) -> str | None:
        """What is wrong, if anything."""
        head = self._head()
        with self._guard:
            return self._compared(head)

    def _compared(self, head: int) -> str | None:
        position, now = self._source.position(), self._clock()
        if position < 0:
            return "there are none on this machine"
        behind = head - position
        if behind > FAR_BEHIND:
            return f"{behind} events behind"
        if behind <= 0:
            self._stood = None
        elif self._stood is None or self._stood[0] != position:
            self._stood = (position, now)
        elif now - self._stood[1] > CATCH_UP_S:
            return f"{behind} events behind, and they have stood still for {now - self._stood[1]:.0f} s"
        return None


class OwnHeads:
    """Where the store is a file of this process's: asked at once."""

    def __init__(self, the_log: Events) -> None:
        self._log = the_log

    async def head(self) -> int:
        return self._log.head()


class SharedHeads:
    """Where the store is a server: one question for all reads that arrived before it was sent."""

    def __init__(self, the_log: Events) -> None:
        self._log = the_log
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="head")
        self._asked: asyncio.Future[int] | None = None  # on its way
        self._next: asyncio.Future[int] | None = None  # what those wait for who came since

    async def head(self) -> int:
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
            self._next.add_done_callback(_retrieved)
        future = self._next
        if self._asked is None:
            self._ask(loop)
        return await asyncio.shield(future)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asked, self._next = self._next, None
        loop.run_in_executor(self._executor, self._log.head).add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[int]) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None
        error = answer.exception()
        if error is None:
            asked.set_result(answer.result())
            if self._next is not None:
                self._ask(answer.get_loop())
            return
        asked.set_exception(error)
        if self._next is not None:  # those who came meanwhile need not find out for themselves, as slowly
            self._next.set_exception(error)
            self._next = None


def _retrieved(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()  # its waiters may all have gone away


class OwnViews:
    """The views that this very process keeps."""

    def __init__(self, path: Path, views: Views, prepare: Prepare) -> None:
        self._views = views
        self._database = _reading(path)
        prepare(self._database)

    def reached(self, position: int) -> sqlite3.Connection | None:
        return self._database if self._views.position >= position else None

    def position(self) -> int:
        return self._views.position

    def on_progress(self, listener: Callable[[], None]) -> bool:
        self._views.on_progress(lambda position: listener())
        return True

    def close(self) -> None:
        self._database.close()


def position_of_views(database: sqlite3.Connection) -> int:
    """How far the views of a file have come."""
    return int(database.execute("SELECT COALESCE(MIN(position), -1) FROM view_generations").fetchone()[0])


@dataclass(frozen=True, slots=True)
class _Replica:
    database: sqlite3.Connection
    inode: int

    def position(self) -> int:
        return position_of_views(self.database)


class ViewReplicas:
    """The views that other processes of this machine keep, one file each: DIRECTORY/*/views.db."""

    def __init__(self, directory: Path, prepare: Prepare) -> None:
        self._directory = directory
        self._prepare = prepare
        self._replicas: dict[Path, _Replica] = {}
        self._search_at = 0.0

    def reached(self, position: int) -> sqlite3.Connection | None:
        self._search()
        for path, replica in list(self._replicas.items()):
            if self._position_of(path, replica) >= position:
                return replica.database
        return None

    def position(self) -> int:
        self._search()
        return max((self._position_of(path, replica) for path, replica in list(self._replicas.items())), default=-1)

    def on_progress(self, listener: Callable[[], None]) -> bool:
        return False

    def close(self) -> None:
        for replica in self._replicas.values():
            replica.database.close()
        self._replicas.clear()

    def _position_of(self, path: Path, replica: _Replica) -> int:
        try:
            return replica.position()
        except sqlite3.Error as error:  # being made, or made anew
            log.info("%s cannot be read: %s", path, error)
            self._drop(path)
            return -1

    def _search(self) -> None:
        """Look for new files, and for those put in the place of others, once in a while."""
        now = time.monotonic()
        if now < self._search_at:
            return
        self._search_at = now + SEARCH_EVERY_S
        found = {}
        for path in self._directory.glob("*/views.db"):
            try:
                found[path] = path.stat().st_ino
            except FileNotFoundError:
                continue
        for path, replica in list(self._replicas.items()):
            if found.get(path) != replica.inode:
                self._drop(path)
        for path, inode in found.items():
            if path not in self._replicas:
                try:
                    database = _reading(path)
                    self._prepare(database)
                    self._replicas[path] = _Replica(database, inode)
                except sqlite3.Error as error:
                    log.info("%s cannot be opened: %s", path, error)

    def _drop(self, path: Path) -> None:
        self._replicas.pop(path).database.close()


def _reading(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA query_only=ON")
    return database
