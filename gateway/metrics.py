"""What /metrics shows: what was counted (`commands/metrics.py`), and what is looked at when it is asked for.

How far a consumer is behind, in seconds, is told without reading an event: since the first look at which there was more than
it has handled by now. So it is never too much, and too little by at most the time between two looks.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from commands.inbox import Inbox
from commands.log.consumer import Consumer, Follows
from commands.log.elected import at_work
from commands.log.port import LEDGER, REPORTS
from commands.log.runner import Runner
from commands.process_managers.deadlines import DeadlinesManager
from gateway.bounded import Bounded
from hostagent.agent import Agent

CONTENT_TYPE = CONTENT_TYPE_LATEST
END_LIMIT_S = 2.0
MOST_LOOKS = 1000


class ProcessMetrics(Collector):
    """Of the consumers and hosts of this process."""

    def __init__(
        self,
        runner: Runner,
        ends: Mapping[str, Callable[[], int]],
        agents: Sequence[Agent] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ends` tell how far the ledger (`LEDGER`), and perhaps a topic, has come."""
        self._runner = runner
        self._ends = {name: Bounded(end) for name, end in ends.items()}
        self._looks = {name: Looks() for name in ends}
        self._agents = agents
        self._clock = clock
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._guard = threading.Lock()
        disable_created_metrics()  # type: ignore[no-untyped-call]

    def __call__(self) -> bytes:
        with self._guard:
            return generate_latest(REGISTRY) + generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is depends on which consumers are active."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        consumers = [(consumer.name, at_work(consumer)) for consumer in self._runner.consumers]
        followed = {_topic(name) for name, consumer in consumers if consumer is not None}
        head = self._look({LEDGER, *followed} & self._ends.keys())
        active = gauge("consumer_active", "Whether a consumer is the active one of its kind.", "consumer")
        failing = gauge("consumer_failing", "Whether the last step of a consumer failed.", "consumer")
        for name, consumer in consumers:
            active.add_metric([name], consumer is not None and name not in self._runner.ended)
            failing.add_metric([name], name in self._runner.failing)
        yield active
        yield failing
        if head is not None:
            yield gauge("head_position", "The position of the newest event.", value=head)
        yield from self._lag(consumers)
        for _, consumer in consumers:
            if isinstance(consumer, DeadlinesManager):
                yield gauge("requests_waiting", "Requests that have no outcome yet.", value=consumer.waiting)
        if self._agents:
            orders = gauge("agent_orders_waiting", "Orders whose act has no outcome yet.", "host")
            for agent in self._agents:
                orders.add_metric([agent.host], agent.waiting)
            yield orders

    def _look(self, topics: set[str]) -> int | None:
        """See how far these have come; returns the ledger's head, if the store answers."""
        asked = {topic: self._ends[topic].ask() for topic in topics}
        until = time.monotonic() + END_LIMIT_S
        found = {topic: _result(answer, until) for topic, answer in asked.items()}
        for topic, end in found.items():
            if end is not None:
                self._looks[topic].add(self._clock(), end)
        return found.get(LEDGER)

    def _lag(self, consumers: Sequence[tuple[str, Consumer | None]]) -> Iterator[Metric]:
        positions = gauge("consumer_lag_positions", "How many positions a consumer is behind.", "consumer")
        seconds = gauge("consumer_lag_seconds", "How long there has been more than it has handled.", "consumer")
        for name, consumer in consumers:
            looks = self._looks.get(_topic(name))
            if looks is None or looks.end is None or not isinstance(consumer, Follows):
                continue
            position = consumer.position
            if position >= 0:
                since = looks.beyond(position)
                positions.add_metric([name], max(0, looks.end - position))
                seconds.add_metric([name], 0.0 if since is None else self._clock() - since)
        yield positions
        yield seconds


class Looks:
    """When something was first seen to have come how far."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[float] = []

    @property
    def end(self) -> int | None:
        return self._ends[-1] if self._ends else None

    def add(self, at: float, end: int) -> None:
        if self._ends and end < self._ends[-1]:  # it was made anew
            self._ends.clear()
            self._times.clear()
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._times.append(at)
            del self._ends[:-MOST_LOOKS], self._times[:-MOST_LOOKS]

    def beyond(self, position: int) -> float | None:
        """When more than this was seen first; none: it was not."""
        index = bisect_right(self._ends, position)
        return self._times[index] if index < len(self._times) else None


def _topic(consumer: str) -> str:
    return REPORTS if consumer == Inbox.name else LEDGER


def _result(answer: Future[int], until: float) -> int | None:
    try:
        return answer.result(max(0.0, until - time.monotonic()))
    except Exception:  # readiness tells
        return None


def gauge(name: str, words: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"compute_ledger_{name}", words, value, labels or None)
