"""Who reads the log: a consumer handles one batch at a time, given its position, clock and ports.

It has no loop and no thread: `runner.py` drives it in production, and anything that owns time may drive it elsewhere.
"""

from __future__ import annotations

from typing import Protocol


class Consumer(Protocol):
    name: str

    def step(self) -> bool:
        """Handle one batch, and move the position together with its effect; False when there was nothing to do."""

    def wait(self, timeout_s: float) -> None:
        """Return when there may be something to do, at the latest after the time-out."""
