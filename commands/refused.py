"""What is refused of what hosts send: counted each time, and said in one line for each reason and host in ten seconds.

So a host that repeats itself thousands of times a second fills no disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Counter

log = logging.getLogger(__name__)

SAY_EVERY_S = 10.0
LONGEST_MESSAGE = 500
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Said:
    at: float
    since: int = 0  # how many were not said


class Refused:
    def __init__(self, what: str, counter: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._counter = counter
        self._clock = clock
        self._said: dict[tuple[str, str], _Said] = {}
        self._guard = threading.Lock()

    def note(self, reason: str, host: str, message: str, level: int = logging.WARNING) -> None:
        """`host` is one whose word this is, or empty where that is not known: else a liar could make up ever new ones."""
        self._counter.labels(reason).inc()
        unsaid = self._unsaid(reason, host)
        if unsaid is not None:
            more = f" (and {unsaid} more since)" if unsaid else ""
            of = f" of host {host}" if host else ""
            log.log(level, "%s%s refused, %s: %s%s", self._what, of, reason, message[:LONGEST_MESSAGE], more)

    def _unsaid(self, reason: str, host: str) -> int | None:
        """How many were passed over since this was last said, if it is to be said again."""
        now = self._clock()
        with self._guard:
            said = self._said.get((reason, host))
            if said is not None and now - said.at < SAY_EVERY_S:
                said.since += 1
                return None
            if len(self._said) >= MOST_REMEMBERED:
                self._said.clear()
            self._said[reason, host] = _Said(now)
            return 0 if said is None else said.since
