"""A bell that rings whenever a store is found to have moved on."""

from __future__ import annotations

import time

from commands.event_store import EventStore


class FakeBell:
    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._woken = False

    @property
    def head(self) -> int:
        return self._store.head()

    def wait(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._store.head() <= after:
            if self._woken or time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True

    def wake(self) -> None:
        self._woken = True
