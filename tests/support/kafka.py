"""Kafka for tests: one private node for the session, with topics made anew for who asks; and nodes of one's own to break.

Nothing outlives the session: a node ends with the process that started it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic

import pytest

from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import LogRecord, LogUnavailable, Message, Messages
from deploy.private_kafka import PrivateKafka, Security, start, why_no_kafka

LIMIT_S = 60


def shared_kafka() -> PrivateKafka:
    """One for the session. Tests that break a node start their own with `private_kafka`."""
    if (reason := why_no_kafka()) is not None:
        pytest.skip(reason)
    return _shared()


@cache
def _shared() -> PrivateKafka:
    directory = Path(tempfile.mkdtemp(prefix="kafka-"))
    node = start(directory)

    def end() -> None:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    return node


@contextmanager
def private_kafka(directory: Path, security: Security | None = None) -> Iterator[PrivateKafka]:
    if (reason := why_no_kafka()) is not None:
        pytest.skip(reason)
    node = start(directory, security)
    try:
        yield node
    finally:
        node.kill()


def topics_made_anew(options: KafkaOptions, names: Collection[str]) -> None:
    """Exactly these exist afterwards, with nothing in them."""
    topics = Topics(options)
    try:
        topics.delete([name for name in topics.names() if not name.startswith("__")])
        topics.ensure(names)
    finally:
        topics.close()


def arrived(
    messages: Messages, topic: str, count: int, after: int = 0, *, within_s: float = LIMIT_S
) -> Sequence[LogRecord]:
    """What is at hand beyond `after`, as soon as it is that much."""
    deadline = monotonic() + within_s
    while len(records := messages.read(topic, after, 100_000)) < count:
        assert monotonic() < deadline, f"{len(records)} of {count} records of {topic} came within {within_s} s"
        messages.wait(topic, records[-1].offset if records else after, 0.5)
    return records


def published(messages: Messages, topic: str, *values: str, within_s: float = LIMIT_S) -> None:
    """Each under the key before its `=`; tried again while Kafka is away."""
    deadline = monotonic() + within_s
    while True:
        try:
            messages.publish([Message(topic, value.partition("=")[0], value.encode()) for value in values])
            return
        except LogUnavailable:
            if monotonic() > deadline:
                raise
