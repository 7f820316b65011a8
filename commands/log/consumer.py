"""Who reads the log: a consumer handles one batch at a time, given its position, clock and ports.

It has no loop and no thread: `runner.py` drives it in production, and anything that owns time may drive it elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable


class Consumer(Protocol):
    name: str

    def step(self) -> bool:
        """Handle one batch, and move the position together with its effect; False when there was nothing to do."""

    def wait(self, timeout_s: float) -> None:
        """Return when there may be something to do, at the latest after the time-out."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A batch that a consumer is done with."""

    count: int
    recorded: datetime | None = None  # when the last of its events was; none: it is not told


@runtime_checkable
class Follows(Protocol):
    """A consumer of which can be told, on any thread, how far it has come along the ledger or a topic."""

    @property
    def position(self) -> int:
        """Of the last it has handled; negative: it has yet to begin."""

    @property
    def handled(self) -> Handled | None:
        """Its last batch."""
