"""What this host has begun and done: fsynced before and after each act, so that a killed agent knows where it stood.

It refuses orders of a lower generation or an older epoch than it has taken, and keeps the last outcome of each guest, to
be reported again until the ledger's next order shows that it is settled. Of a residency that has ended it keeps for a
week that it has, so that an order from before, published late, makes no guest again.
"""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from commands.orders import Act
from domain.identifiers import InstanceId

ENDED_KEPT = timedelta(days=7)

_TABLES = """
CREATE TABLE IF NOT EXISTS host (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS guests (
    instance_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, epoch INTEGER NOT NULL,
    begun TEXT, begun_revision INTEGER NOT NULL, settled_revision INTEGER NOT NULL, outcome BLOB, ended TEXT)
    WITHOUT ROWID;
"""
_COLUMNS = "instance_id, generation, epoch, begun, begun_revision, settled_revision, outcome, ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one guest's orders. Revisions are those of the requests that the acts were for."""

    generation: int = 0
    epoch: int = 0
    begun: Act | None = None  # the last act begun
    begun_revision: int = 0
    settled_revision: int = 0  # of the last act that has an outcome
    outcome: bytes | None = None  # its report, until it is known to be recorded
    ended: datetime | None = (
        None  # when the ledger wanted nothing of this guest any more; only a later order is another
    )

    @property
    def purged(self) -> bool:
        """Whether the last act begun was to remove the guest, and did."""
        return self.begun is Act.PURGE and self.settled_revision == self.begun_revision


NOTHING = Entry()


class JournalDamaged(Exception):
    """The file is not a journal; the message names it."""


class HostIdentityChanged(Exception):
    """This host's directory belongs to another host; a rename would split it in two."""


class Journal:
    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
            self._bring_up_to_date()
        except sqlite3.DatabaseError as error:
            raise JournalDamaged(f"{path}: {error}") from error
        self._entries = {
            InstanceId(UUID(row[0])): Entry(
                generation=row[1],
                epoch=row[2],
                begun=None if row[3] is None else Act(row[3]),
                begun_revision=row[4],
                settled_revision=row[5],
                outcome=row[6],
                ended=None if row[7] is None else datetime.fromisoformat(row[7]),
            )
            for row in self._db.execute(f"SELECT {_COLUMNS} FROM guests")
        }

    def _bring_up_to_date(self) -> None:
        """A journal from before ended residencies were kept has no column for them."""
        if "ended" not in {row[1] for row in self._db.execute("PRAGMA table_info(guests)")}:
            self._db.execute("ALTER TABLE guests ADD COLUMN ended TEXT")

    def fact(self, name: str, first: str) -> str:
        """A lasting fact about this host, `first` when it has none yet."""
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO host VALUES (?, ?)", (name, first))
            row = self._db.execute("SELECT value FROM host WHERE name = ?", (name,)).fetchone()
            return str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO host VALUES (?, ?)", (name, value))

    def entry(self, instance_id: InstanceId) -> Entry:
        return self._entries.get(instance_id, NOTHING)

    def entries(self) -> dict[InstanceId, Entry]:
        return dict(self._entries)

    def took(self, instance_id: InstanceId, generation: int, epoch: int) -> None:
        """An order was accepted. Not synced by itself: the act that follows is, and after a restart orders of the sessions
        before are refused anyway."""
        with self._lock:
            entry = self.entry(instance_id)
            if entry.ended is not None:
                entry = NOTHING  # another residency
            self._entries[instance_id] = replace(entry, generation=generation, epoch=epoch)

    def begin(self, instance_id: InstanceId, act: Act, revision: int) -> None:
        with self._lock:
            self._put(instance_id, replace(self.entry(instance_id), begun=act, begun_revision=revision))

    def settle(self, instance_id: InstanceId, revision: int, outcome: bytes) -> None:
        with self._lock:
            self._put(instance_id, replace(self.entry(instance_id), settled_revision=revision, outcome=outcome))

    def end(self, instance_id: InstanceId, now: datetime) -> None:
        """The ledger wants nothing of this guest any more. Of one that was never heard of there is nothing to keep."""
        with self._lock:
            entry = self.entry(instance_id)
            if entry.ended is None and entry != NOTHING:
                self._put(instance_id, Entry(generation=entry.generation, epoch=entry.epoch, ended=now))

    def forget_ended(self, now: datetime) -> None:
        """Let go of residencies that ended a week ago: no order from before them is still on its way."""
        with self._lock:
            old = [i for i, e in self._entries.items() if e.ended is not None and e.ended < now - ENDED_KEPT]
            self._db.executemany("DELETE FROM guests WHERE instance_id = ?", [(str(i),) for i in old])
            for instance_id in old:
                del self._entries[instance_id]

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _put(self, instance_id: InstanceId, entry: Entry) -> None:
        self._db.execute(
            f"INSERT OR REPLACE INTO guests ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                str(instance_id),
                entry.generation,
                entry.epoch,
                entry.begun,
                entry.begun_revision,
                entry.settled_revision,
                entry.outcome,
                None if entry.ended is None else entry.ended.isoformat(),
            ),
        )
        self._entries[instance_id] = entry
