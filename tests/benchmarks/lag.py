"""Measures how far consumers of a distributed ledger are behind while servers are made at a steady rate. Asserts nothing.

    python -m tests.benchmarks.lag [--seconds 20] [--rate 100]

The load is open: a create is due every so often, whatever the answers to those before it take. How old the last event of
each batch is when a consumer is done with it, each process counts itself; what is shown are the differences between its
counts after and before.
"""

from __future__ import annotations

import argparse
import re
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from time import perf_counter, sleep

from deploy.region import Part
from tests.benchmarks.clients import SERVERS, Client, Cloud
from tests.benchmarks.deployments import distributed
from tests.benchmarks.table import Table, load, machine, percentiles, positive
from tests.support.region import RegionLedger

CLIENTS = 64  # as many creates may be waiting for their answers; more are sent late
SAMPLED_EVERY_S = 1.0
FAR = float("inf")
AGES = re.compile(r'^compute_ledger_event_age_seconds_bucket\{consumer="(.+?)",le="(.+?)"\} (\S+)$', re.MULTILINE)
LAGS = re.compile(r'^compute_ledger_consumer_lag_positions\{consumer="(.+?)"\} (\S+)$', re.MULTILINE)
HANDLED = re.compile(r'^compute_ledger_events_handled_total\{consumer="(.+?)"\} (\S+)$', re.MULTILINE)
HOW = (
    "{rate} creates/s for {seconds} s over the gateways in turn, whatever the answers take; ages are of the last event of "
    "each batch, from the processes' histograms; lags are looked at once a second; every role twice, 2 hosts, driver fake"
)

Buckets = Mapping[float, float]  # by upper bound in seconds, how many were not older


@dataclass
class Counts:
    """Of all processes together, by consumer."""

    ages: dict[str, dict[float, float]] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)  # the largest
    handled: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """What a process shows at /metrics."""
        for consumer, bound, number in AGES.findall(text):
            ages = self.ages.setdefault(consumer, {})
            ages[float(bound)] = ages.get(float(bound), 0.0) + float(number)
        for consumer, number in LAGS.findall(text):
            self.lags[consumer] = max(self.lags.get(consumer, 0), int(float(number)))
        for consumer, number in HANDLED.findall(text):
            self.handled[consumer] = self.handled.get(consumer, 0) + int(float(number))

    def ages_since(self, before: Counts, consumer: str) -> Buckets:
        had = before.ages.get(consumer, {})
        return {bound: number - had.get(bound, 0.0) for bound, number in self.ages.get(consumer, {}).items()}


def look(parts: Iterable[Part]) -> Counts:
    counts = Counts()
    for part in parts:
        with urllib.request.urlopen(f"{part.metrics_url}/metrics", timeout=10) as answer:
            counts.add(answer.read().decode())
    return counts


def quantile(buckets: Buckets, share: float) -> str:
    """As Prometheus's histogram_quantile, between two bounds; where there is only one, that."""
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]]:
        return "–"
    wanted = buckets[bounds[-1]] * share
    if buckets[bounds[0]] >= wanted:
        return f"under {bounds[0] * 1000:g} ms"
    for low, high in pairwise(bounds):
        if buckets[high] >= wanted:
            if high == FAR:
                return f"over {low:g} s"
            part = (wanted - buckets[low]) / (buckets[high] - buckets[low])
            return f"{(low + (high - low) * part) * 1000:.0f} ms"
    raise AssertionError("the last bound is beyond all")


@dataclass(frozen=True, slots=True)
class Sent:
    answered: Sequence[float]  # seconds since each was due
    refused: int
    latest_s: float  # that one was sent after it was due
    took_s: float


def steadily(cloud: Cloud, rate: int, seconds: int) -> Sent:
    local, numbers = threading.local(), count()
    answered: list[float] = []
    late: list[float] = []
    refused: list[int] = []

    def one(number: int, due: float) -> None:
        if not hasattr(local, "client"):
            local.client = cloud.client(next(numbers))
        client: Client = local.client
        late.append(perf_counter() - due)
        status, _, _ = client.call("POST", SERVERS, cloud.body(f"steady-{number}"))
        if status == 202:
            answered.append(perf_counter() - due)
        else:
            refused.append(status)

    began = perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = []
        for number in range(rate * seconds):
            due = began + number / rate
            sleep(max(0.0, due - perf_counter()))
            sent.append(pool.submit(one, number, due))
        for future in sent:
            future.result()
    return Sent(answered, len(refused), max(late), perf_counter() - began)


@contextmanager
def sampling(parts: Sequence[Part]) -> Iterator[Counts]:
    """The largest lags that were seen meanwhile."""
    seen, over = Counts(), threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLED_EVERY_S):
            for consumer, lag in look(parts).lags.items():
                seen.lags[consumer] = max(seen.lags.get(consumer, 0), lag)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tests.benchmarks.lag", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--seconds", type=positive, default=20)
    made.add_argument("--rate", type=positive, default=100, help="creates a second")
    return made


def main() -> None:
    chosen = parser().parse_args()
    load_before = load()
    with distributed() as running:
        ledger = running.ledger
        assert isinstance(ledger, RegionLedger)
        parts = list(ledger.region.parts.values())
        running.cloud.side_by_side(4, running.cloud.create, [f"first-{number}" for number in range(20)])
        running.cloud.settle()
        before = look(parts)
        with sampling(parts) as seen:
            sent = steadily(running.cloud, chosen.rate, chosen.seconds)
            over = perf_counter()
            running.cloud.settle()
            settled_s = perf_counter() - over
        after = look(parts)

    creates = Table("creates", ["value"])
    creates.add(
        "value", "answered", f"{len(sent.answered) / sent.took_s:.1f}/s of {chosen.rate}, {sent.refused} refused"
    )
    creates.add("value", "POST answered since it was due, p50 / p99", percentiles(sent.answered))
    creates.add("value", "sent after it was due, at most", f"{sent.latest_s * 1000:.0f} ms")
    creates.add("value", "all ACTIVE after the last answer", f"{settled_s:.1f} s")
    columns = ["age p50", "age p99", "largest lag, positions", "handled"]
    consumers = Table("consumers", columns)
    for name in sorted(after.handled):
        ages = after.ages_since(before, name)
        handled = after.handled[name] - before.handled.get(name, 0)
        cells = (quantile(ages, 0.5), quantile(ages, 0.99), f"{seen.lags.get(name, 0):,}", f"{handled:,}")
        for column, cell in zip(columns, cells, strict=True):
            consumers.add(column, name, cell)
    how = HOW.format(rate=chosen.rate, seconds=chosen.seconds)
    print(f"\n{creates}\n\n{consumers}\n\n{machine()}, load {load_before} before; {how}")


if __name__ == "__main__":
    main()
