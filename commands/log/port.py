"""What every log promises, embedded or distributed.

Two things travel on it. *Events*: everything the ledger recorded, in position order, with no gap. *Messages* on topics:
`orders.<service>` (compacted by key), `reports`, `queries.<service>`, `answers`, `heartbeats`. Delivery is at least once
and in order within a topic; every reader keeps its own position.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.identifiers import ServiceId
from domain.recorded import RecordedEvent

REPORTS = "reports"
ANSWERS = "answers"
HEARTBEATS = "heartbeats"
LEDGER = "ledger"  # every event, in position order, in one partition
INSTANCES = "instances"  # those of instances, keyed by stream
ALLOCATIONS = "allocations"  # those of resource providers: inventories and claims, keyed by stream


def orders_topic(service_id: ServiceId) -> str:
    return f"orders.{service_id}"


def queries_topic(service_id: ServiceId) -> str:
    return f"queries.{service_id}"


class LogUnavailable(Exception):
    """The log does not answer; delivery waits, nothing is lost."""


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    key: str
    value: bytes | None  # none: the key is gone (a tombstone, where the topic is compacted)
    headers: tuple[
        tuple[str, bytes], ...
    ] = ()  # for readers outside the ledger; the embedded log has none and drops them
    partition: int = 0


@dataclass(frozen=True, slots=True)
class LogRecord:
    offset: int  # grows along a topic; may have holes
    key: str
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A publisher's step along the events, kept with what it published."""

    consumer: str
    old: int
    new: int


class Messages(Protocol):
    """Topics of messages: all that a host agent has of the log."""

    def publish(self, messages: Sequence[Message]) -> bool:
        """Put messages on their topics, in order; they survive the death of this process.

        Raises:
            LogUnavailable: some of them may not have arrived; they may be sent again.
        """

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        """The next messages that are at hand. Where it costs a wait, none: `wait` returns when there are some."""

    def end(self, topic: str) -> int:
        """The offset of the newest message.

        Raises:
            LogUnavailable
        """

    def incarnation(self, topic: str) -> str:
        """Names the topic as it is now. Another name: it was made anew, and its offsets begin again."""

    def wait(self, topic: str, after: int, timeout_s: float) -> bool: ...

    def wake(self) -> None:
        """Let every waiter look again at once: something it waits with is stopping."""

    def close(self) -> None: ...


class Events(Protocol):
    """What was recorded, for those who read."""

    def head(self) -> int:
        """The position of the newest event."""

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        """The next events, none left out.

        Raises:
            StoreUnavailable, RecordDamaged, UnknownEventType.
        """

    def wait_for_events(self, after: int, timeout_s: float) -> bool:
        """Whether the head has passed `after`, at the latest after the time-out."""


class Log(Messages, Events, Protocol):
    def committed(self, before: int, events: Sequence[RecordedEvent]) -> None:
        """The appender of this process recorded these, the first right after the head `before`."""

    def publish(self, messages: Sequence[Message], step: Step | None = None) -> bool:
        """As every log of messages does. With a step, False means that another process has taken it: nothing was published,
        or what was is to be taken for a repetition by its readers.

        Raises:
            LogUnavailable, StoreUnavailable.
        """

    def position(self, consumer: str) -> int:
        """Where a publisher's steps have come to."""

    def hosts(self, service_ids: Collection[ServiceId]) -> Collection[ServiceId]:
        """See to it that these hosts' topics exist; which of their order topics are new and want every order again."""

    def filled(self, service_id: ServiceId) -> None:
        """Every order of this host was published on its new topic."""
