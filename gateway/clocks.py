"""Whether this process's clock and the store's agree.

What is recorded has the time of the process that records it, and no event is older than the one before: one clock that is
ahead puts the times of all that follows ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from commands.event_store import StoreUnavailable

log = logging.getLogger(__name__)

FAR_APART_S = 5.0
FRESH_S = 60.0  # clocks drift slowly


def apart(ahead_s: float) -> str | None:
    """What is wrong with a clock that is so far before the store's, if anything."""
    if abs(ahead_s) <= FAR_APART_S:
        return None
    where = "ahead of" if ahead_s > 0 else "behind"
    return f"this machine's clock is {abs(ahead_s):.0f} s {where} the store's; events are recorded with a wrong time"


class StoreClock:
    """A check of /readyz, that asks the store now and then."""

    def __init__(self, ahead_s: Callable[[], float], clock: Callable[[], float] = monotonic) -> None:
        self._ahead_s = ahead_s
        self._clock = clock
        self._asked = float("-inf")
        self._said: str | None = None

    def __call__(self) -> str | None:
        """Raises:
        StoreUnavailable
        """
        now = self._clock()
        if now - self._asked >= FRESH_S:
            self._said = apart(self._ahead_s())
            self._asked = now
        return self._said

    def warn(self) -> None:
        """Say it in the log, if it can be known now."""
        try:
            said = self()
        except StoreUnavailable:
            return
        if said is not None:
            log.warning("%s", said)
