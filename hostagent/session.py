"""A host's session with the ledger: opened once a start, told of until the ledger has heard, kept up with heartbeats.

What the host is, is told again from time to time, in the same words: a topic that was lost holds it again. While the log
does not answer nothing waits for it, and the session stays the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from commands.log.port import LogUnavailable
from commands.reports import HostReport
from hostagent.journal import Journal
from hostagent.reports import Reporter

BEAT_EVERY_S = 10  # Nova's [DEFAULT] report_interval
TELL_EVERY_S = 60
RETRY_AFTER_S = 5


class Session:
    def __init__(self, reporter: Reporter, journal: Journal, now: float) -> None:
        self._reporter = reporter
        self._journal = journal
        self._report: HostReport | None = None
        self.id = str(uuid4())
        self._next_beat = self._next_telling = now
        self.told = False  # whether the log took it once

    @property
    def epoch(self) -> int:
        """0 until it is open; orders of an older one are not for this start."""
        return 0 if self._report is None else self._report.epoch

    def open(self, report_of: Callable[[int], HostReport]) -> None:
        """Begin the next session; `report_of` says what this host is under an epoch."""
        epoch = int(self._journal.fact("epoch", "0")) + 1
        report = report_of(epoch)
        self._journal.set_fact("epoch", str(epoch))  # before anyone hears of it, so that it is never used again
        self._report = report

    def keep_up(self, now: float) -> None:
        """Say what is due: who this host is, and that it is alive. `now`: in seconds that have passed."""
        if self._report is None:
            return
        if now >= self._next_telling:
            taken = self._say(self._report)
            self.told = self.told or taken
            self._next_telling = now + (TELL_EVERY_S if taken else RETRY_AFTER_S)
        if self.told and now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY_S
            self._beat(self._report.epoch)

    def _say(self, report: HostReport) -> bool:
        try:
            self._reporter.session(report)
        except LogUnavailable:
            return False
        return True

    def _beat(self, epoch: int) -> None:
        with suppress(LogUnavailable):  # the next one says as much
            self._reporter.beat(epoch, self.id)
