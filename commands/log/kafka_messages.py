"""Messages over Kafka: published by one idempotent producer of the process, read from its tails (`kafka_tails.py`).

A message is published when all replicas that Kafka counts on have it. An offset is Kafka's plus one, so that 0 comes before
every message; of a topic with several partitions only the first is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from commands.log.kafka_clients import Shared, connect, unavailable
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_tails import Tails
from commands.log.kafka_topics import Topics
from commands.log.port import LogRecord, Message

SENT_LIMIT_S = 10.0  # more than the producer allows itself


class KafkaMessages:
    def __init__(self, options: KafkaOptions, *, clock: Callable[[], float] = monotonic, stall_s: float = 30.0) -> None:
        self._options = options
        self._topics = Topics(options)
        self._tails = Tails(options, self._topics, clock=clock, stall_s=stall_s)
        self._producer: Shared[Any] = Shared(lambda: connect(KafkaProducer, options.producer()), _end)

    def publish(self, messages: Sequence[Message]) -> bool:
        if not messages:
            return True
        try:
            with self._producer.use() as held:
                sent = [
                    held.client.send(
                        message.topic, message.value, message.key.encode(), list(message.headers), message.partition
                    )
                    for message in messages
                ]
                for future in sent:
                    future.get(SENT_LIMIT_S)
        except (KafkaError, ValueError) as error:  # ValueError: the topic has no such partition
            raise unavailable(error) from error
        return True

    def read(self, topic: str, after: int, limit: int) -> Sequence[LogRecord]:
        return self._tails.read(topic, after, limit)

    def wait(self, topic: str, after: int, timeout_s: float) -> bool:
        return self._tails.wait(topic, after, timeout_s)

    def wake(self) -> None:
        self._tails.wake()

    def end(self, topic: str) -> int:
        end = self._topics.ends([topic]).get(TopicPartition(topic, 0), 0)
        self._tails.tell_end(topic, end)
        return end

    def incarnation(self, topic: str) -> str:
        return self._tails.incarnation(topic)

    def close(self) -> None:
        self._tails.close()
        self._producer.close()
        self._topics.close()


def _end(producer: Any) -> None:
    """At once: nobody counts any more on what it has not sent, and a part of that must not arrive without the rest."""
    producer._sender.force_close()
    with suppress(KafkaTimeoutError):
        producer.close(timeout=1)
