"""Events straight from the store, for those who look at a ledger and take no part in it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from commands.event_store import EventStore
from commands.records import Records
from domain.recorded import RecordedEvent

POLL_S = 0.2


class StoredEvents:
    def __init__(self, store: EventStore, records: Records) -> None:
        self._store = store
        self._records = records

    def head(self) -> int:
        return self._store.head()

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        return [self._records.decode(stored) for stored in self._store.read(after, limit)]

    def wait_for_events(self, after: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while (head := self._store.head()) <= after and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
        return head > after
