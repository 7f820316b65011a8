"""What a process holds of a topic: whoever reads from it, wherever, gets all that was fetched beyond that place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.log import kafka_tail
from commands.log.kafka_tail import Tail
from commands.log.port import LogRecord


def records(*offsets: int) -> list[LogRecord]:
    return [LogRecord(offset, "k", b"x" * 100) for offset in offsets]


def offsets(found: Any) -> list[int]:
    return [record.offset for record in found]


def test_a_reader_gets_what_was_fetched_beyond_its_place_and_may_read_it_again() -> None:
    tail = Tail("reports", 4)
    tail.add(records(5, 7, 8))

    assert offsets(tail.read(4, 10)) == [5, 7, 8]
    assert offsets(tail.read(5, 1)) == [7]
    assert offsets(tail.read(6, 10)) == [7, 8]
    assert offsets(tail.read(4, 10)) == [5, 7, 8]
    assert tail.has(7)
    assert not tail.has(8)


def test_a_place_before_the_beginning_or_beyond_the_end_is_not_served() -> None:
    tail = Tail("reports", 4)
    tail.add(records(5, 6))

    assert [after for after in range(10) if tail.serves(after)] == [4, 5, 6]


def test_a_reader_at_the_end_of_the_topic_waits_for_a_tail_that_is_behind() -> None:
    tail = Tail("reports", 4)
    tail.end = 9
    assert tail.serves(9)
    assert not tail.has(9)

    tail.add(records(*range(5, 11)))

    assert offsets(tail.read(9, 10)) == [10]


def test_where_offsets_begin_again_a_reader_goes_on_with_what_comes_first() -> None:
    tail = Tail("reports", 0, follows=500)
    assert tail.serves(500)
    tail.add(records(1, 2))

    assert offsets(tail.read(500, 10)) == [1, 2]
    assert offsets(tail.read(1, 10)) == [2]
    assert not tail.serves(500)  # by now that is a place of the new topic


def test_a_tail_that_nobody_reads_runs_out_of_room_and_has_it_again_when_half_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tail, "KEPT_RECORDS", 10)
    tail = Tail("reports", 0)
    tail.add(records(*range(1, 10)))
    assert tail.has_room()
    tail.add(records(10, 11))
    assert not tail.has_room()

    tail.read(5, 1)
    assert not tail.has_room()
    tail.read(7, 1)

    assert tail.has_room()
    assert tail.serves(3)  # what was read is kept while there is room
    tail.add(records(*range(12, 16)))
    assert tail.has_room()
    assert not tail.serves(3)


def test_large_messages_run_out_of_room_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_tail, "KEPT_BYTES", 1000)
    tail = Tail("reports", 0)
    tail.add(records(1, 2, 3, 4))
    assert not tail.has_room()

    tail.read(4, 1)

    assert tail.has_room()


@given(data=st.data(), kept=st.integers(1, 6), start=st.integers(0, 3))
def test_whatever_is_read_nothing_is_left_out(data: st.DataObject, kept: int, start: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_tail, "KEPT_RECORDS", kept)
        tail, fetched = Tail("reports", start), [start]
        for _ in range(data.draw(st.integers(1, 30))):
            if data.draw(st.booleans()) and tail.has_room():
                come = data.draw(st.lists(st.integers(1, 3), max_size=4))
                for step in come:
                    fetched.append(fetched[-1] + step)
                tail.add(records(*fetched[len(fetched) - len(come) :]))
            after = data.draw(st.sampled_from(fetched))
            if tail.serves(after):
                limit = data.draw(st.integers(1, 5))
                assert offsets(tail.read(after, limit)) == [offset for offset in fetched if offset > after][:limit]
            else:
                assert after < tail.start
            assert len(tail.read(tail.start, 1000)) <= 2 * kept + 4
