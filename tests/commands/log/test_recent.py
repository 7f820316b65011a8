"""The newest events of a process: a run without a gap, whoever told of them and in whatever order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.log import recent
from commands.log.recent import RecentEvents
from commands.records import Records
from domain.recorded import RecordedEvent
from tests.support.recording import Recording


@pytest.fixture
def events(tmp_path: Path) -> Iterator[list[RecordedEvent]]:
    """Ten events, at positions 1 to 10."""
    recording = Recording(tmp_path)
    for _ in range(10):
        recording.record()
    records = Records(recording.vault, recording.store.incarnation)
    yield [records.decode(stored) for stored in recording.store.read(0, 100)]
    recording.store.close()


def positions(found: tuple[RecordedEvent, ...]) -> list[int]:
    return [event.position for event in found]


def test_a_run_told_of_twice_is_held_once(events: list[RecordedEvent]) -> None:
    held = RecentEvents(0)

    held.add(0, events[:3])
    held.add(1, events[1:5])

    assert positions(held.read(0, 100)) == [1, 2, 3, 4, 5]


def test_after_a_gap_nothing_before_it_is_answered_for(events: list[RecordedEvent]) -> None:
    held = RecentEvents(0)
    held.add(0, events[:2])

    held.add(4, events[4:6])

    assert positions(held.read(1, 100)) == []
    assert positions(held.read(4, 100)) == [5, 6]


def test_a_run_from_ahead_is_shown_once_those_before_it_have_come(events: list[RecordedEvent]) -> None:
    held = RecentEvents(0)
    held.add_ahead(2, events[2:4])
    held.add_ahead(5, events[5:7])
    assert held.head == 0

    held.add(0, events[:2])
    assert positions(held.read(0, 100)) == [1, 2, 3, 4]

    held.add(4, events[4:5])
    assert positions(held.read(0, 100)) == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_from_ahead_that_was_passed_is_let_go(events: list[RecordedEvent]) -> None:
    held = RecentEvents(0)
    held.add_ahead(2, events[2:4])

    held.add(0, events[:6])
    held.add(6, events[6:])

    assert positions(held.read(0, 100)) == list(range(1, 11))


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_however_few_are_kept_none_in_between_is_left_out(
    events: list[RecordedEvent], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "EVENTS_KEPT", kept)
    held = RecentEvents(0)
    held.add_ahead(4, events[4:9])
    for number in range(4):
        held.add(number, events[number : number + 1])

    for after in range(10):
        assert positions(held.read(after, 100)) in ([], list(range(after + 1, 10)))
    assert positions(held.read(9 - kept, 100)) == list(range(10 - kept, 10))


def test_one_that_is_told_nothing_answers_for_nothing(events: list[RecordedEvent]) -> None:
    assert RecentEvents(0, fed=False).read(0, 100) == ()
