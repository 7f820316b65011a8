"""Of a consumer that several processes run, one is active; what the others knew is forgotten."""

from __future__ import annotations

import pytest

from commands.log.consumer import Consumer
from commands.log.elected import Elected
from domain.serialization import UnknownEventType


class OneSeat:
    def __init__(self) -> None:
        self.held = False
        self.resigned = False

    def holds(self, name: str) -> bool:
        return self.held

    def resign(self, name: str) -> None:
        self.held, self.resigned = False, True

    def wait(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass


class Counting:
    name = "counting"

    def __init__(self, made: list[Counting]) -> None:
        self.steps = 0
        self.unknown = False
        made.append(self)

    def step(self) -> bool:
        if self.unknown:
            raise UnknownEventType("a.newer_thing")
        self.steps += 1
        return True

    def wait(self, timeout_s: float) -> None:
        pass


def elected(seat: OneSeat) -> tuple[Elected, list[Counting]]:
    made: list[Counting] = []

    def make() -> Consumer:
        return Counting(made)

    return Elected("counting", make, seat), made


def test_without_the_seat_nothing_is_made_and_nothing_done() -> None:
    consumer, made = elected(OneSeat())

    assert not consumer.step()
    assert made == []


def test_with_the_seat_one_consumer_is_stepped_on() -> None:
    seat = OneSeat()
    consumer, made = elected(seat)
    seat.held = True

    assert [consumer.step(), consumer.step()] == [True, True]
    assert [one.steps for one in made] == [2]


def test_a_seat_that_was_lost_and_won_again_starts_from_nothing() -> None:
    seat = OneSeat()
    consumer, made = elected(seat)
    seat.held = True
    consumer.step()
    seat.held = False
    assert not consumer.step()
    seat.held = True

    consumer.step()

    assert [one.steps for one in made] == [1, 1]


def test_a_consumer_too_old_for_an_event_leaves_its_seat_to_a_newer_process() -> None:
    seat = OneSeat()
    consumer, made = elected(seat)
    seat.held = True
    consumer.step()
    made[0].unknown = True

    with pytest.raises(UnknownEventType):
        consumer.step()

    assert seat.resigned
