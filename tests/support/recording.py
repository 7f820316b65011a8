"""A store into which single events are recorded, of several streams and kinds; each call is one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from commands.appender import Appender
from commands.command import Ask, Unit
from commands.decisions import decisions
from commands.event_store import EventStore
from commands.flavor import CreateFlavor
from commands.sqlite_store import SQLiteEventStore
from commands.vault import Vault
from domain.flavor import FlavorSpec
from domain.identifiers import RequestId
from domain.recorded import Cause, RecordedEvent
from tests.support.ledger import Clock


class Recording:
    def __init__(self, directory: Path) -> None:
        self.store: EventStore = SQLiteEventStore(directory / "ledger.db")
        self.vault = Vault(self.store, b"k" * 32)
        self._number = 0
        self._appender = self.appender(lambda before, events: None)

    def appender(self, committed: Callable[[int, Sequence[RecordedEvent]], None]) -> Appender:
        return Appender(self.store, self.vault, decisions(), Clock(), committed)

    def record(self, through: Appender | None = None) -> int:
        """The position of one more event, recorded by this process's appender or by another."""
        self._number += 1
        name = str(self._number)
        flavor = FlavorSpec(flavor_id=name, name=f"f{name}", vcpus=1, memory_mib=1, root_gib=1)
        cause = Cause(command_id=UUID(int=self._number), request_id=RequestId("req-1"))
        unit = Unit(asks=(Ask(command=CreateFlavor(flavor=flavor), cause=cause),))
        [result] = (through or self._appender).flush([unit])
        return result.head
