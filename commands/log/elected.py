"""A consumer of which one is active among all processes that run it; the others stand by.

Being two by accident is still right: what a consumer does moves its position only from where it stood.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from commands.log.consumer import Consumer
from domain.serialization import UnknownEventType

log = logging.getLogger(__name__)


class Seats(Protocol):
    """Who is active, by the name of a consumer (`commands/election.py`)."""

    def holds(self, name: str) -> bool: ...

    def resign(self, name: str) -> None:
        """Leave this seat to others for good."""

    def wait(self, timeout_s: float) -> None:
        """Return when a seat was won or lost, at the latest after the time-out."""

    def close(self) -> None: ...


def at_work(consumer: Consumer) -> Consumer | None:
    """The consumer itself; of an elected one, what it has made, while it is the active one."""
    return consumer.active if isinstance(consumer, Elected) else consumer


class Elected:
    """Makes its consumer anew each time it becomes active: what it remembered may have been overtaken."""

    def __init__(self, name: str, make: Callable[[], Consumer], seats: Seats) -> None:
        self.name = name
        self._make = make
        self._seats = seats
        self.active: Consumer | None = None

    def wait(self, timeout_s: float) -> None:
        if self.active is None:
            self._seats.wait(timeout_s)
        else:
            self.active.wait(timeout_s)

    def step(self) -> bool:
        if not self._seats.holds(self.name):
            if self.active is not None:
                log.warning("%s stands by: another process may be the active one", self.name)
                self.active = None
            return False
        if self.active is None:
            log.info("%s is active", self.name)
            self.active = self._make()
        try:
            return self.active.step()
        except UnknownEventType:
            self._seats.resign(self.name)  # to a process that is newer than this one
            raise
