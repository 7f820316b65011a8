"""A read is never older than what was recorded before it began, whichever process's views it is answered from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from commands.event_store import StoreUnavailable
from gateway.faults import Fault
from gateway.server_filters import install
from gateway.view_reader import FAR_BEHIND, SharedHeads, ViewReader, ViewReplicas
from projections.catalogue import projections
from projections.views import Views
from tests.support.ledger import Ledger

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, hosts=("alpha",), views=False).with_flavors()
    yield made
    made.close()


class Replica:
    """The views of one projections process."""

    def __init__(self, ledger: Ledger, directory: Path, name: str) -> None:
        self.path = directory / name / "views.db"
        self.path.parent.mkdir(parents=True)
        self.views = Views(self.path, ledger.log, projections())

    def catch_up(self) -> None:
        while self.views.step():
            pass


def servers(reader: ViewReader) -> int:
    [[count]] = run(reader.rows("SELECT COUNT(*) FROM servers"))
    return int(count)


def reader_of(ledger: Ledger, directory: Path) -> ViewReader:
    return ViewReader(SharedHeads(ledger.log), ViewReplicas(directory, install))


def test_a_read_is_answered_from_the_views_that_are_far_enough(ledger: Ledger, tmp_path: Path) -> None:
    old, new = (Replica(ledger, tmp_path / "views", name) for name in "ab")
    old.catch_up()
    ledger.create()
    new.catch_up()

    assert servers(reader_of(ledger, tmp_path / "views")) == 1


def test_a_read_waits_for_the_first_views_that_come_so_far(ledger: Ledger, tmp_path: Path) -> None:
    _, slow = (Replica(ledger, tmp_path / "views", name) for name in "ab")
    ledger.create()
    reader = reader_of(ledger, tmp_path / "views")

    async def read_while_views_catch_up() -> int:
        reading = asyncio.create_task(reader.rows("SELECT COUNT(*) FROM servers"))
        while reader._polling is None:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(slow.catch_up)
        [[count]] = await reading
        return int(count)

    assert run(read_while_views_catch_up()) == 1


def test_views_that_come_later_or_are_made_anew_are_found(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.view_reader.SEARCH_EVERY_S", 0)
    reader = reader_of(ledger, tmp_path / "views")
    replica = Replica(ledger, tmp_path / "views", "a")
    replica.catch_up()
    assert servers(reader) == 0
    ledger.create()

    replica.views.close()
    for file in replica.path.parent.glob("views.db*"):
        file.unlink()
    replica.views = Views(replica.path, ledger.log, projections())
    replica.catch_up()

    assert servers(reader) == 1


def test_a_file_that_is_no_database_is_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "views" / "0").mkdir(parents=True)
    (tmp_path / "views" / "0" / "views.db").write_bytes(b"no database" * 1000)
    Replica(ledger, tmp_path / "views", "a").catch_up()

    assert servers(reader_of(ledger, tmp_path / "views")) == 0


def test_without_any_views_a_read_is_told_to_come_again(ledger: Ledger, tmp_path: Path) -> None:
    class FarAway(SharedHeads):
        async def head(self) -> int:
            return FAR_BEHIND + 1

    reader = ViewReader(FarAway(ledger.log), ViewReplicas(tmp_path / "views", install))

    with pytest.raises(Fault) as refused:
        run(reader.rows("SELECT 1"))

    assert refused.value.status == 503


def test_views_that_nobody_keeps_are_read_until_something_new_is_recorded(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.view_reader.CATCH_UP_S", 0.01)
    Replica(ledger, tmp_path / "views", "a").catch_up()
    reader = reader_of(ledger, tmp_path / "views")
    assert servers(reader) == 0
    ledger.create()

    with pytest.raises(Fault) as refused:
        servers(reader)

    assert refused.value.status == 503


class SlowHead:
    """A store that answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: int | Exception = 0
        self.may_answer = threading.Event()

    def head(self) -> int:
        self.asked += 1
        assert self.may_answer.wait(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def events(self, after: int, limit: int) -> list[Any]:
        return []

    def wait_for_events(self, after: int, timeout_s: float) -> bool:
        return False


def test_one_question_serves_all_reads_that_arrived_before_it_was_sent() -> None:
    store = SlowHead()

    async def ask_often() -> list[int]:
        heads = SharedHeads(store)
        first = asyncio.create_task(heads.head())
        while store.asked == 0:
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(heads.head()) for _ in range(20)]  # these must not be told the first one's answer
        await asyncio.sleep(0)
        store.answer = 5
        store.may_answer.set()
        return [await first, *[await one for one in later]]

    assert run(ask_often()) == [5] * 21
    assert store.asked == 2


def test_a_store_that_is_away_is_said_to_all_who_asked() -> None:
    store = SlowHead()

    async def ask_often() -> list[BaseException | int]:
        heads = SharedHeads(store)
        first = asyncio.create_task(heads.head())
        while store.asked == 0:
            await asyncio.sleep(0.001)
        later = [asyncio.create_task(heads.head()) for _ in range(3)]
        await asyncio.sleep(0)
        store.answer = StoreUnavailable("it is away")
        store.may_answer.set()
        failed = await asyncio.gather(first, *later, return_exceptions=True)
        store.answer = 7
        return [*failed, await heads.head()]

    *failed, after = run(ask_often())
    assert [type(error) for error in failed] == [StoreUnavailable] * 4
    assert after == 7
