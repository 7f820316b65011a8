"""Following topics: one consumer on one thread for a whole process, and what it brought, kept until it is read.

Each topic that is asked for has a tail (`kafka_tail.py`) that the consumer fills; a reader who comes with a place outside of
it makes it begin anew there. With Kafka away tails bring nothing, and go on by themselves when it answers again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from commands.log.kafka_clients import connect, unavailable
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_tail import Tail, to_log_record
from commands.log.kafka_topics import Topics
from commands.log.port import LogRecord, LogUnavailable

log = logging.getLogger(__name__)

POLL_MS = 500  # how soon a new tail is looked after, at the latest
CROWDED_POLL_MS = 50
SILENT_S = 6.0  # metadata is asked for every two seconds
LOST_S = 30.0  # silent for so long, its brokers may have moved
PAUSE_S = 1.0
CLOSE_LIMIT_S = 10.0


class Tails:
    def __init__(
        self, options: KafkaOptions, topics: Topics, *, clock: Callable[[], float] = monotonic, stall_s: float = 30.0
    ) -> None:
        """`stall_s`: a consumer that stands still for so long, with more to read, is replaced."""
        self._options = options
        self._topics = topics
        self._clock = clock
        self._stall_s = stall_s
        self._turn = threading.Condition()
        self._tails: dict[str, Tail] = {}
        self._ids: dict[str, str] = {}  # of topics; empty: it did not exist
        self._wakes = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._complained = 0.0  # when last; 0: all is well
        self._cluster: ClusterMetadata | None = None
        self._heard = clock()

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        with self._turn:
            return self._tail(topic, after).read(after, limit)

    def wait(self, topic: str, after: int, timeout_s: float) -> bool:
        until = monotonic() + timeout_s
        with self._turn:
            wakes = self._wakes
            while not self._tail(topic, after).has(after):
                left = until - monotonic()
                if left <= 0 or wakes != self._wakes or self._closing.is_set():
                    return False
                self._turn.wait(left)
            return True

    def tell_end(self, topic: str, end: int) -> None:
        """Readers may begin there, however far behind the tail still is."""
        with self._turn:
            if (tail := self._tails.get(topic)) is not None:
                tail.end = max(tail.end, end)

    def wake(self) -> None:
        with self._turn:
            self._wakes += 1
            self._turn.notify_all()

    def incarnation(self, topic: str) -> str:
        """Raises:
        LogUnavailable: it was never heard of, and cannot be asked for now.
        """
        with self._turn:
            known = self._ids.get(topic)
            if known is not None and topic in self._tails:
                return known
        try:
            found = self._topics.incarnations([topic]).get(topic, known or "")
        except LogUnavailable:
            if known is None:
                raise
            return known
        with self._turn:
            if topic not in self._tails:
                self._ids[topic] = found
            return self._ids.setdefault(topic, found)

    def close(self) -> None:
        self._closing.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(CLOSE_LIMIT_S)

    def _tail(self, topic: str, after: int) -> Tail:
        tail = self._tails.get(topic)
        if tail is None or not tail.serves(after):
            tail = self._tails[topic] = Tail(topic, after)
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="kafka-tails", daemon=True)
            self._thread.start()
        return tail

    # on its thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except (LogUnavailable, Stalled) as error:
                self._complain(str(error))
            except Exception as error:  # not all that kafka-python raises is its own
                self._complain(f"{type(error).__name__}: {error}")
            self._closing.wait(PAUSE_S)

    def _follow(self) -> None:
        """With one consumer, until it has to be replaced."""
        consumer = connect(KafkaConsumer, self._options.consumer(), self._listen)
        watchdog = _Watchdog(consumer, self._topics, self._clock, self._stall_s)
        placed: dict[TopicPartition, Tail] = {}
        try:
            while not self._closing.is_set() and not self._lost():
                crowded = self._place(consumer, placed)
                try:
                    polled = consumer.poll(CROWDED_POLL_MS if crowded else POLL_MS)
                except OffsetOutOfRangeError as error:
                    for partition in error.args[0]:
                        self._begin_again(placed[partition], earliest=True)
                except LogTruncationError as error:
                    for partition, at in error.divergent_offsets.items():
                        self._begin_again(placed[partition], 0 if at is None else at.offset)
                else:
                    self._take(polled, placed)
                if not self._complained:
                    watchdog.look(placed)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)

    def _listen(self, cluster: ClusterMetadata) -> None:
        def heard(_: ClusterMetadata) -> None:
            self._heard = self._clock()

        self._cluster = cluster
        cluster.add_listener(heard)

    def _place(self, consumer: Any, placed: dict[TopicPartition, Tail]) -> bool:
        """Have the consumer stand where the tails end that have room for more; whether some have none.

        Those are taken from it, not paused: with others to fetch, kafka-python may never go on with what was paused.
        """
        with self._turn:
            tails = [tail for tail in self._tails.values() if tail.has_room()]
            crowded = len(tails) < len(self._tails)
        wanted = {tail.partition: tail for tail in tails}
        if wanted.keys() != placed.keys():
            consumer.assign(list(wanted))
            for partition in placed.keys() - wanted.keys():
                del placed[partition]
        for partition, tail in wanted.items():
            if placed.get(partition) is not tail:
                placed[partition] = tail
                if tail.earliest and tail.reached == tail.start:
                    consumer.seek_to_beginning(partition)
                else:
                    consumer.seek(partition, tail.reached)  # the port counts from 1
        return crowded

    def _take(self, polled: Mapping[TopicPartition, Sequence[Any]], placed: Mapping[TopicPartition, Tail]) -> None:
        self._recognise()
        if not polled:
            return
        with self._turn:
            for partition, records in polled.items():
                placed[partition].add(to_log_record(record) for record in records)
            self._turn.notify_all()

    def _recognise(self) -> None:
        """See which topics are other ones under the same name. Kafka says so before it shows what is in them."""
        assert self._cluster is not None
        with self._turn:
            tails = dict(self._tails)
        for topic, tail in tails.items():
            found = self._cluster.topic_id(topic)
            if found is None:  # not heard of yet, or gone
                continue
            with self._turn:
                before = self._ids.setdefault(topic, str(found))
                self._ids[topic] = str(found)
            if before != str(found):
                self._begin_again(tail)

    def _begin_again(self, tail: Tail, start: int = 0, *, earliest: bool = False) -> None:
        topic = tail.partition.topic
        with self._turn:
            if self._tails[topic] is tail:  # else a reader wants another place by now
                self._tails[topic] = Tail(topic, start, follows=tail.asked, earliest=earliest)
                self._turn.notify_all()

    def _lost(self) -> bool:
        now = self._clock()
        if now - self._heard > SILENT_S:
            self._complain(str(unavailable("no broker answers")))
        elif self._complained and now - self._complained > SILENT_S:
            log.info("Kafka is read again")
            self._complained = 0.0
        return now - self._heard > LOST_S

    def _complain(self, what: str) -> None:
        """Once until it is over."""
        if not self._complained:
            log.warning("nothing is read: %s", what)
        self._complained = self._clock()


class Stalled(Exception):
    """There is more to read, and the consumer does not."""


class _Watchdog:
    """Notices a consumer that stands still though there is more to read."""

    def __init__(self, consumer: Any, topics: Topics, clock: Callable[[], float], stall_s: float) -> None:
        self._consumer = consumer
        self._topics = topics
        self._clock = clock
        self._stall_s = stall_s
        self._due = clock() + stall_s / 3
        self._stood: dict[TopicPartition, tuple[int | None, float]] = {}  # where, since when with more to read

    def look(self, partitions: Collection[TopicPartition]) -> None:
        """Raises:
        Stalled
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._stall_s / 3
        try:
            ends = self._topics.ends([partition.topic for partition in partitions])
        except LogUnavailable:
            return
        stood, self._stood = self._stood, {}
        for partition in partitions:
            position, end = self._consumer.position(partition, timeout_ms=0), ends.get(partition)
            if end is None or (position is not None and position >= end):
                continue
            before, since = stood.get(partition, (None, now))
            if before == position and now - since >= self._stall_s:
                raise Stalled(f"Kafka: {partition.topic} stands still at {position} of {end}")
            self._stood[partition] = (position, since if before == position else now)
