"""Which of several processes is the active one, by name: who holds that name's advisory lock in PostgreSQL.

Two may believe it for a moment, when the database has ended a session and its process has not heard of it yet: that
only costs work, since what an active one does moves a position from where it stood. A process that was frozen knows when
it wakes that it may have been replaced; how long it slept, its clock tells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commands.postgresql_sessions import Session

log = logging.getLogger(__name__)

PING_S = 1.0
SILENT_S = 3.0  # since the last ping that was answered was sent; from then on nothing counts as held
SESSION_LIMIT = "5s"  # PostgreSQL ends a session that is silent for as long, and others are elected; more than SILENT_S
PAUSE_S = 0.5

_TAKE = """
SELECT name FROM unnest(%s::text[], %s::bigint[]) AS seat (name, key) WHERE pg_try_advisory_lock(key)
"""


class Election:
    """Stands for all these names from the start, if there are any. `process` is how PostgreSQL shows the session."""

    def __init__(self, url: str, names: Sequence[str], *, process: str) -> None:
        self._url = url
        self._process = process
        self._wanted = set(names)
        self._held: frozenset[str] = frozenset()
        self._confirmed = -SILENT_S
        self._failing = False
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if names:
            from commands.postgresql_sessions import Hearing

            self._hearing = Hearing()
            self._thread = threading.Thread(target=self._run, name="election", daemon=True)
            self._thread.start()

    def holds(self, name: str) -> bool:
        """Whether this process is the active one; asks nobody."""
        return name in self._held and name in self._wanted and monotonic() - self._confirmed < SILENT_S

    def resign(self, name: str) -> None:
        """Leave this name to others for good."""
        self._wanted.discard(name)

    def wait(self, timeout_s: float) -> None:
        """Return when a name was won or lost, at the latest after the time-out."""
        with self._changed:
            self._changed.wait(timeout_s)

    def close(self) -> None:
        if self._thread is None or self._closing.is_set():
            return
        self._closing.set()
        self._hearing.stop()
        self._thread.join()
        self._hearing.close()

    def _run(self) -> None:
        import psycopg  # here, since a ledger of one process does without PostgreSQL

        from commands.postgresql_sessions import connect

        while not self._closing.is_set():
            try:
                with connect(self._url, self._process, idle_session_timeout=SESSION_LIMIT) as session:
                    self._stand(session)
            except psycopg.Error as error:
                if not self._failing:
                    log.warning("%s stands for nothing until the database is back: %s", self._process, error)
                self._failing = True
                self._settle(frozenset(), self._confirmed)
                self._closing.wait(PAUSE_S)
        self._settle(frozenset(), self._confirmed)

    def _stand(self, session: Session) -> None:
        asked = -PING_S
        while not self._closing.is_set():
            if monotonic() - asked >= PING_S:
                asked = monotonic()
                self._settle(self._ask(session), asked)
                self._failing = False
            self._hearing.wait(session, asked + PING_S - monotonic())  # which fails as soon as the session is ended

    def _ask(self, session: Session) -> frozenset[str]:
        """Give back what is not wanted any more, take what is free; which names are held then."""
        from commands.postgresql_sessions import advisory_key

        wanted = frozenset(self._wanted)
        for name in self._held - wanted:
            session.execute("SELECT pg_advisory_unlock(%s)", (advisory_key(f"election/{name}"),))
        kept = self._held & wanted
        missing = sorted(wanted - kept)
        taken = session.execute(_TAKE, (missing, [advisory_key(f"election/{name}") for name in missing])).fetchall()
        return kept | {name for (name,) in taken}

    def _settle(self, held: frozenset[str], confirmed: float) -> None:
        with self._changed:
            for word, names in (("won", held - self._held), ("lost", self._held - held)):
                if names:
                    log.info("%s %s: %s", self._process, word, ", ".join(sorted(names)))
                    self._changed.notify_all()
            self._held, self._confirmed = held, confirmed


class Always:
    """The one process of an embedded ledger, or of one without stand-by: it is the active one."""

    def __init__(self) -> None:
        self._resigned: set[str] = set()
        self._closing = threading.Event()

    def holds(self, name: str) -> bool:
        return name not in self._resigned

    def resign(self, name: str) -> None:
        self._resigned.add(name)

    def wait(self, timeout_s: float) -> None:
        self._closing.wait(timeout_s)

    def close(self) -> None:
        self._closing.set()
