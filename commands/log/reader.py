"""One reader of one topic: where it stands, and what it does when the topic is made anew under it."""

from __future__ import annotations

from collections.abc import Sequence

from commands.log.port import LogRecord, Messages


class TopicReader:
    """`read` shows the next messages, `took` says that they are dealt with. A topic made anew is read from its beginning."""

    def __init__(self, the_log: Messages, topic: str, after: int = 0) -> None:
        self._log = the_log
        self._topic = topic
        self._incarnation: str | None = None
        self.offset = after

    def read(self, limit: int) -> Sequence[LogRecord]:
        incarnation = self._log.incarnation(self._topic)
        if incarnation != self._incarnation:
            if self._incarnation is not None:
                self.offset = 0
            self._incarnation = incarnation
        return self._log.read(self._topic, self.offset, limit)

    def took(self, records: Sequence[LogRecord]) -> None:
        if records:
            self.offset = records[-1].offset

    def wait(self, timeout_s: float) -> None:
        self._log.wait(self._topic, self.offset, timeout_s)
