"""Says why Kafka does not answer a process that starts: some roles would not notice it for a long time.

What is published or read later says for itself what fails.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic

from commands.log.kafka_clients import why
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import LogUnavailable

log = logging.getLogger(__name__)

PAUSE_S = 1.0
AGAIN_S = 60.0  # a reason that was not met for so long is said again
MOST_SAID = 10  # reasons, some of which differ each time


class KafkaWatch:
    """Asks until it is answered for the first time."""

    def __init__(self, options: KafkaOptions) -> None:
        self._bootstrap = options.bootstrap
        self._topics = Topics(options)
        self._met: dict[str, float] = {}  # reasons, and when last
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._topics.close()  # which ends its waiting

    def _run(self) -> None:
        while not self._closing.is_set():
            asked = monotonic()
            try:
                self._topics.names()
            except LogUnavailable as error:
                if not self._closing.is_set():
                    self._say(why(asked) or [str(error)])
                self._closing.wait(PAUSE_S)
            else:
                if self._met:
                    log.info("Kafka answers")
                self._topics.close()
                return

    def _say(self, reasons: list[str]) -> None:
        now = monotonic()
        new = [reason for reason in reasons if now - self._met.get(reason, -AGAIN_S) >= AGAIN_S]
        if new and len(self._met) < MOST_SAID:
            log.warning("Kafka does not answer at %s, and is asked again: %s", self._bootstrap, "; ".join(new))
        self._met.update(dict.fromkeys(reasons, now))
