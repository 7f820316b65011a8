"""What /metrics shows of a process: which consumers are active, how far they are behind, what waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands.log.consumer import Consumer, Handled
from commands.log.elected import Elected
from commands.log.port import LEDGER, REPORTS
from commands.log.runner import Runner
from gateway.embedded import Embedded
from gateway.health import Health
from gateway.hosts import name_of_host
from gateway.metrics import ProcessMetrics
from gateway.options import Options
from hostagent.drivers.fake import FakeDriver
from hostagent.drivers.protocol import HypervisorUnreachable
from tests.support.hypervisors import eventually
from tests.support.ledger import Ledger


class Reader:
    """A consumer of events that stands where it is told."""

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name
        self.position = position
        self.handled: Handled | None = None

    def step(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> None:
        pass


class Answerer:
    """A consumer of which no position is told."""

    name = "queries"

    def step(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> None:
        pass


class NoLog:
    def wake(self) -> None:
        """Nobody waits."""


class Seat:
    held = False

    def holds(self, name: str) -> bool:
        return self.held

    def resign(self, name: str) -> None:
        pass

    def wait(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class World:
    head: int | None = 0  # none: the store does not answer
    reports: int = 0
    now: float = 100.0

    def end(self) -> int:
        if self.head is None:
            raise ConnectionRefusedError
        return self.head

    def metrics_of(self, *consumers: Consumer, agents: Any = ()) -> tuple[Runner, Callable[[], dict[str, float]]]:
        runner = Runner(NoLog(), consumers)  # type: ignore[arg-type]
        ends = {LEDGER: self.end, REPORTS: lambda: self.reports}
        made = ProcessMetrics(runner, ends, agents, lambda: self.now)
        return runner, lambda: samples(made)


def samples(metrics: ProcessMetrics) -> dict[str, float]:
    """By name, without what all have in common, and the value of the label, if there is one."""
    found = {}
    for family in text_string_to_metric_families(metrics().decode()):
        for sample in family.samples:
            labels = "".join(f" {value}" for value in sample.labels.values())
            found[sample.name.removeprefix("compute_ledger_") + labels] = sample.value
    return found


@pytest.fixture
def world() -> World:
    return World()


def test_how_many_positions_a_consumer_is_behind(world: World) -> None:
    _, metrics = world.metrics_of(Reader("build", 7), Reader("views", 10), Reader("orders", -1))
    world.head = 10

    shown = metrics()

    assert shown["head_position"] == 10
    assert shown["consumer_lag_positions build"] == 3
    assert shown["consumer_lag_positions views"] == 0
    assert "consumer_lag_positions orders" not in shown, "it has yet to begin"


def test_how_long_a_consumer_is_behind_is_told_from_when_more_was_seen_first(world: World) -> None:
    build = Reader("build")
    _, metrics = world.metrics_of(build)

    def seconds_at(now: float, head: int, position: int) -> float:
        world.now, world.head, build.position = now, head, position
        return metrics()["consumer_lag_seconds build"]

    assert seconds_at(100, 5, 5) == 0
    assert seconds_at(110, 8, 5) == 0, "it may have been recorded just now"
    assert seconds_at(125, 8, 5) == 15
    assert seconds_at(130, 20, 7) == 20, "8 was there at 110"
    assert seconds_at(140, 30, 8) == 10, "of what it lacks, the first was seen at 130"
    assert seconds_at(150, 40, 40) == 0


def test_one_that_keeps_up_is_not_behind_though_there_is_always_more(world: World) -> None:
    build = Reader("build")
    _, metrics = world.metrics_of(build)
    for turn in range(100):
        world.now, world.head, build.position = 100.0 + turn * 15, 1000 * (turn + 1), 1000 * turn + 900
        assert metrics()["consumer_lag_seconds build"] == 0


def test_a_ledger_put_back_from_an_older_copy_is_followed_anew(world: World) -> None:
    build = Reader("build", 100)
    _, metrics = world.metrics_of(build)
    world.head = 100
    metrics()
    world.head, build.position = 50, 40
    metrics()
    world.now += 5
    assert metrics()["consumer_lag_positions build"] == 10
    assert metrics()["consumer_lag_seconds build"] == 5


def test_the_inbox_is_behind_the_topic_of_reports(world: World) -> None:
    _, metrics = world.metrics_of(Reader("inbox", 30))
    world.head, world.reports = 1000, 42

    assert metrics()["consumer_lag_positions inbox"] == 12


def test_while_the_store_does_not_answer_lags_grow_and_no_head_is_shown(world: World) -> None:
    _, metrics = world.metrics_of(Reader("build", 1))
    world.head = 3
    metrics()
    world.head = None
    world.now += 60

    shown = metrics()

    assert "head_position" not in shown
    assert shown["consumer_lag_positions build"] == 2
    assert shown["consumer_lag_seconds build"] == 60


def test_which_consumers_are_active_and_which_fail(world: World) -> None:
    seat = Seat()
    elected = Elected("build", lambda: Reader("build", 4), seat)
    runner, metrics = world.metrics_of(elected, Reader("views"), Answerer())
    elected.step()

    shown = metrics()
    assert shown["consumer_active build"] == 0
    assert "consumer_lag_positions build" not in shown, "who stands by is not behind"
    assert shown["consumer_active views"] == shown["consumer_active queries"] == 1
    assert shown["consumer_failing views"] == 0

    seat.held = True
    elected.step()
    runner.failing["views"] = runner.ended["views"] = "instance.teleported"
    world.head = 9
    shown = metrics()
    assert shown["consumer_active build"] == 1
    assert shown["consumer_lag_positions build"] == 5
    assert shown["consumer_active views"] == 0
    assert shown["consumer_failing views"] == 1


def test_requests_and_orders_wait_until_they_have_an_outcome(world: World, ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    _, metrics = world.metrics_of(ledger.parts["deadlines"], agents=[host.agent])

    def waiting() -> tuple[float, float]:
        shown = metrics()
        return shown["requests_waiting"], shown["agent_orders_waiting alpha"]

    ledger.running()
    assert waiting() == (0, 0)
    with unreachable(host.driver):
        ledger.running(3)
        assert waiting() == (3, 3)
    ledger.pass_time(6)
    assert waiting() == (0, 0)


@contextmanager
def unreachable(driver: FakeDriver) -> Iterator[None]:
    """Nothing can be made there."""

    def away(*args: Any) -> None:
        raise HypervisorUnreachable("nobody answers")

    driver.create = away  # type: ignore[method-assign]
    try:
        yield
    finally:
        del driver.create  # type: ignore[method-assign]


def test_an_embedded_ledger_shows_all_of_its_consumers_and_hosts(tmp_path: Path) -> None:
    embedded = Embedded(Options(directory=tmp_path, url="http://127.0.0.1:8774", hosts=2))
    health = Health(embedded.alive(), embedded.readiness())
    metrics = embedded.metrics()
    embedded.start()
    try:
        eventually(embedded.hosts_up, "the hosts are up", within_s=60)
        eventually(lambda: health.readyz()[0] == 200, "it is ready", within_s=60)
        eventually(lambda: samples(metrics)["consumer_lag_positions deadlines"] == 0, "all is handled", within_s=60)
        shown, checks = samples(metrics), orjson.loads(health.readyz()[2])["checks"]
    finally:
        embedded.stop()

    hosts = [name_of_host(number, 2) for number in (1, 2)]
    assert set(checks) == {"consumers", "steps", "store", "views", *(f"host {host}" for host in hosts)}
    for consumer in ("build", "orders", "inbox", "deadlines", "views", *(f"agent-{host}" for host in hosts)):
        assert (shown[f"consumer_active {consumer}"], shown[f"consumer_failing {consumer}"]) == (1, 0)
    for consumer in ("build", "orders", "deadlines", "views"):
        assert shown[f"consumer_lag_seconds {consumer}"] == 0
    for host in hosts:
        assert shown[f"agent_orders_waiting {host}"] == 0


def test_each_name_is_described_once_and_nothing_is_shown_that_nobody_asked_for(world: World) -> None:
    runner = Runner(NoLog(), [Reader("build")])  # type: ignore[arg-type]
    text = ProcessMetrics(runner, {LEDGER: world.end})().decode()

    described = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")]
    assert len(described) == len(set(described))
    assert "_created" not in text
