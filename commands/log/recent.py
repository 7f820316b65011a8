"""The newest events, kept as objects without a gap, so that the readers of one process decode each of them at most once."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice

from domain.recorded import RecordedEvent

EVENTS_KEPT = 4096
RUNS_AHEAD = 256


class RecentEvents:
    """A run of events that ends at `head`: it holds every event after the position where it begins."""

    def __init__(self, head: int, *, fed: bool = True) -> None:
        """Not `fed`: nobody tells it of events, so that it never answers for any."""
        self._events: deque[RecordedEvent] = deque(maxlen=EVENTS_KEPT)
        self._head = head
        self._after = head if fed else sys.maxsize
        self._ahead: dict[int, Sequence[RecordedEvent]] = {}  # by the position before them, which has yet to come
        self._turn = threading.Condition()

    @property
    def head(self) -> int:
        return self._head

    def add(self, before: int, events: Sequence[RecordedEvent]) -> None:
        """Events in order; the first comes right after the position `before`. Those already held are left out."""
        with self._turn:
            if events and events[0].position <= self._head:
                events = [event for event in events if event.position > self._head]
                before = self._head
            if not events:
                return
            if before != self._head:  # some in between were not told
                self._events.clear()
                self._after = before
            self._extend(events)
            while (following := self._ahead.pop(self._head, None)) is not None:
                self._extend(following)
            for passed in [position for position in self._ahead if position < self._head]:
                del self._ahead[passed]
            self._turn.notify_all()

    def add_ahead(self, before: int, events: Sequence[RecordedEvent]) -> None:
        """As `add`; but where some in between are still to come, these wait for them."""
        with self._turn:
            if before > self._head and len(self._ahead) < RUNS_AHEAD:
                self._ahead[before] = events
                return
        self.add(before, events)

    def _extend(self, events: Sequence[RecordedEvent]) -> None:
        overflow = len(self._events) + len(events) - EVENTS_KEPT
        if overflow > len(self._events):
            self._after = events[overflow - len(self._events) - 1].position
        elif overflow > 0:
            self._after = self._events[overflow - 1].position
        self._events.extend(events)
        self._head = events[-1].position

    def read(self, after: int, limit: int) -> tuple[RecordedEvent, ...]:
        """The next events as far as they are held; none says nothing about what there is."""
        with self._turn:
            if after < self._after:
                return ()
            # The wanted ones are at the end: walk back from there.
            count = 0
            for record in reversed(self._events):
                if record.position <= after:
                    break
                count += 1
            start = len(self._events) - count
            return tuple(islice(self._events, start, min(start + limit, len(self._events))))

    def wait(self, after: int, timeout_s: float) -> bool:
        with self._turn:
            if self._head <= after:
                self._turn.wait(timeout_s)
            return self._head > after

    def wake(self) -> None:
        with self._turn:
            self._turn.notify_all()
