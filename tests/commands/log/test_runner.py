"""The loops: each consumer is stepped on its own thread, tried again when it fails, and stopped with the rest."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from commands.event_store import StoreUnavailable
from commands.log import runner as module
from commands.log.port import LogUnavailable
from commands.log.runner import Runner, drain
from domain.serialization import UnknownEventType
from tests.support.hypervisors import eventually


class Scripted:
    """A consumer that does what it is told, and tells when it has done it all."""

    def __init__(self, name: str, *steps: Any) -> None:
        self.name = name
        self._steps = list(steps)
        self.done = threading.Event()
        self.taken = 0

    def step(self) -> bool:
        if not self._steps:
            self.done.set()
            return False
        step = self._steps.pop(0)
        self.taken += 1
        if isinstance(step, Exception):
            raise step
        return bool(step)

    def wait(self, timeout_s: float) -> None:
        self.done.wait(0.01)


class NoLog:
    def wake(self) -> None:
        """Nobody waits."""


def run(*consumers: Scripted) -> Runner:
    runner = Runner(NoLog(), consumers)  # type: ignore[arg-type]
    runner.start()
    return runner


def test_a_consumer_that_fails_is_tried_again_and_no_longer_failing_once_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.001)
    consumer = Scripted("a", True, OSError("disk"), OSError("disk"), True)
    runner = run(consumer)

    assert consumer.done.wait(20)
    runner.stop()

    assert consumer.taken == 4
    assert runner.failing == {}


def test_what_a_consumer_waits_for_is_said_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.001)
    caplog.set_level(logging.INFO, module.__name__)
    away, another = StoreUnavailable("it is away"), LogUnavailable("nobody answers")
    consumer = Scripted("a", away, away, another, another, away, True, True)
    runner = run(consumer)

    assert consumer.done.wait(20)
    runner.stop()

    assert [record.getMessage() for record in caplog.records] == [
        "a waits, and tries again: StoreUnavailable: it is away",
        "a waits, and tries again: LogUnavailable: nobody answers",
        "a goes on",
    ]


def test_one_that_only_waits_for_the_log_has_not_failed() -> None:
    broken, cut_off = (
        Scripted("broken", *[OSError("disk")] * 1000),
        Scripted("cut off", *[LogUnavailable("away")] * 1000),
    )
    runner = run(broken, cut_off)

    eventually(lambda: set(runner.failing) == {"broken", "cut off"}, "both have been stepped")
    runner.stop()

    assert runner.failed() == "broken: OSError: disk"
    assert runner.without_log() == "cut off: LogUnavailable: away"


def test_a_consumer_that_meets_a_newer_event_stops_and_the_others_go_on() -> None:
    old, other = Scripted("old", UnknownEventType("instance.teleported"), True), Scripted("other", True, True)
    runner = run(old, other)

    assert other.done.wait(20)
    runner.stop()

    assert old.taken == 1
    assert "instance.teleported" in runner.failing["old"]


def test_draining_steps_every_consumer_until_none_has_anything_left() -> None:
    one, other = Scripted("one", True, False, True), Scripted("other", False, True)

    drain([one, other])

    assert (one.taken, other.taken) == (3, 2)
