"""The one place with loops: each consumer on a thread of its own, stepped until told to stop.

A consumer that fails is tried again with growing pauses; its position stands meanwhile, and `failing` shows it. While it
waits for the store or the log each reason is said once. A reader that meets an event type newer than itself stops there for
good. What was handled is counted here, between two steps, by a clock that the consumers do without.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from commands.event_store import StoreUnavailable
from commands.log.consumer import Consumer, Handled
from commands.log.elected import at_work
from commands.log.port import LogUnavailable, Messages
from commands.metrics import EVENT_AGE, EVENTS_HANDLED
from domain.serialization import UnknownEventType

log = logging.getLogger(__name__)

POLL_S = 1.0  # a wake-up may be lost; nothing waits longer than this
LONGEST_PAUSE_S = 5.0
MOST_SAID = 10  # reasons for one wait


class Runner:
    def __init__(self, the_log: Messages, consumers: Sequence[Consumer]) -> None:
        self._log = the_log
        self.consumers = consumers
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failing: dict[str, str] = {}  # consumer → why its last step failed
        self.cut_off: dict[str, str] = {}  # those of them that only want the log to answer
        self.ended: dict[str, str] = {}  # consumer → why it will not be stepped again

    def start(self) -> None:
        for consumer in self.consumers:
            thread = threading.Thread(target=self._run, args=(consumer,), name=consumer.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._log.wake()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def failed(self) -> str | None:
        """Which consumers' last step failed, and why; but for those that wait for the log."""
        return _listed({name: why for name, why in list(self.failing.items()) if name not in self.cut_off})

    def without_log(self) -> str | None:
        """Which consumers wait for the log to answer, and what it said."""
        return _listed(self.cut_off)

    def stopped(self) -> str | None:
        """Which consumers have stopped for good, and why."""
        return _listed(self.ended)

    def _run(self, consumer: Consumer) -> None:
        pause_s = 0.05
        said: set[str] = set()  # of what it waits for
        counting = _Counting(consumer)
        while not self._stopping.is_set():
            try:
                moved = consumer.step()
                counting.look()
                if not moved and not self._stopping.is_set():
                    consumer.wait(POLL_S)
            except UnknownEventType as unknown:
                self.failing[consumer.name] = self.ended[consumer.name] = str(unknown)
                log.error("%s stops: %s; upgrade this process", consumer.name, unknown)
                return
            except Exception as error:
                self.failing[consumer.name] = why = f"{type(error).__name__}: {error}"
                if isinstance(error, LogUnavailable):
                    self.cut_off[consumer.name] = why
                else:
                    self.cut_off.pop(consumer.name, None)
                if isinstance(error, StoreUnavailable | LogUnavailable):
                    if why not in said and len(said) < MOST_SAID:
                        log.warning("%s waits, and tries again: %s", consumer.name, why)
                        said.add(why)
                else:
                    log.exception("%s failed; it tries again in %.2f s", consumer.name, pause_s)
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            if said:
                log.info("%s goes on", consumer.name)
            pause_s = 0.05
            said.clear()
            self.cut_off.pop(consumer.name, None)
            self.failing.pop(consumer.name, None)


class _Counting:
    """Counts each batch that a consumer of events is done with."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._last: Handled | None = None

    def look(self) -> None:
        handled: Handled | None = getattr(at_work(self._consumer), "handled", None)
        if handled is None or handled is self._last:
            return
        self._last = handled
        EVENTS_HANDLED.labels(self._consumer.name).inc(handled.count)
        if handled.recorded is not None:  # by a clock that may be a little ahead of this one
            age = (datetime.now(UTC) - handled.recorded).total_seconds()
            EVENT_AGE.labels(self._consumer.name).observe(max(0.0, age))


def _listed(reasons: Mapping[str, str]) -> str | None:
    return "; ".join(f"{name}: {why}" for name, why in sorted(reasons.items())) or None


def drain(consumers: Sequence[Consumer], done: Callable[[], bool] = lambda: False) -> None:
    """Step all consumers in turn until none has anything left: the same objects without threads."""
    while not done() and any([consumer.step() for consumer in consumers]):  # noqa: C419 (all of them)
        pass
