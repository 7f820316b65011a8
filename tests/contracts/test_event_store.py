"""What every event store promises (`commands/event_store.py`), held against each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import StoredEvent

from commands.event_store import EventStore, Snapshot, StoreUnavailable
from commands.postgresql_store import PostgreSQLEventStore
from commands.sqlite_store import SQLiteEventStore
from domain.identifiers import StreamId
from tests.support.postgresql import database, postgresql

__all__ = ["database", "postgresql"]

A, B = StreamId("instance:a"), StreamId("instance:b")


@dataclass
class Stores:
    """How to open a store again and again: each time as another process would."""

    make: Callable[[], EventStore]
    opened: list[EventStore] = field(default_factory=list)

    def open(self) -> EventStore:
        self.opened.append(store := self.make())
        return store


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    match request.param:
        case "sqlite":
            found = Stores(lambda: SQLiteEventStore(tmp_path / "ledger.db"))
        case "postgresql":
            url = request.getfixturevalue("database")
            found = Stores(lambda: PostgreSQLEventStore(url))
    yield found
    for store in found.opened:
        store.close()


@pytest.fixture
def store(stores: Stores) -> EventStore:
    return stores.open()


def event(stream: StreamId, version: int, state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator_id=stream, originator_version=version, topic="a.thing_happened", state=state)


def insert(store: EventStore, *events: StoredEvent) -> list[int]:
    with store.transaction() as transaction:
        return list(transaction.insert(events))


def test_an_empty_store_has_nothing(store: EventStore) -> None:
    assert store.head() == 0
    assert store.read(0, 10) == []
    assert store.read_stream(A) == []
    assert store.streams("instance") == []
    assert store.snapshot(A) is None
    assert store.position("a-reader") == 0
    assert store.command_done(uuid4()) is None
    assert store.key("a-user") is None
    assert store.payload("a-ref") is None


def test_positions_grow_in_the_order_of_commits(store: EventStore) -> None:
    positions = insert(store, event(A, 1), event(B, 1)) + insert(store, event(A, 2))

    assert positions == sorted(set(positions))
    assert store.head() == positions[-1]
    assert [record.position for record in store.read(0, 10)] == positions


def test_a_record_reads_as_it_was_inserted(store: EventStore) -> None:
    [position] = insert(store, event(A, 1, b'{"a": "\xc3\xa9"}'))

    [record] = store.read(0, 10)

    assert (record.position, record.stream, record.version) == (position, A, 1)
    assert (record.wire_name, record.state) == ("a.thing_happened", b'{"a": "\xc3\xa9"}')


def test_a_reader_goes_on_from_where_it_was_by_as_much_as_it_wants(store: EventStore) -> None:
    positions = insert(store, *(event(A, n) for n in range(1, 6)))

    assert [r.position for r in store.read(positions[1], 2)] == positions[2:4]
    assert store.read(positions[-1], 10) == []


def test_a_stream_is_read_in_its_own_order(store: EventStore) -> None:
    insert(store, event(A, 1), event(B, 1), event(A, 2), event(A, 3))

    assert [r.version for r in store.read_stream(A)] == [1, 2, 3]
    assert [r.version for r in store.read_stream(A, 2)] == [3]
    assert [r.version for r in store.read_stream(B)] == [1]


def test_streams_are_found_by_category(store: EventStore) -> None:
    names = [
        StreamId(name) for name in ("instance:b", "instance:a", "instances:c", "provider:a", "instance:a:1", "i:z")
    ]
    insert(store, *(event(name, 1) for name in names), event(A, 2))

    assert store.streams("instance") == ["instance:a", "instance:a:1", "instance:b"]
    assert store.streams("provider") == ["provider:a"]
    assert store.streams("service") == []


def test_a_transaction_sees_what_it_did_and_nobody_else_does_before_it_ends(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    with store.transaction() as transaction:
        assert transaction.head() == 0
        transaction.insert([event(A, 1)])
        assert transaction.head() == 1
        assert [r.version for r in transaction.read(0)] == [1]
        assert [r.version for r in transaction.read_stream(A, 0)] == [1]
        assert other.head() == 0

    assert other.head() == 1


def test_a_transaction_that_fails_leaves_nothing(store: EventStore) -> None:
    command_id = uuid4()

    class Oops(Exception):
        pass

    def all_of_it() -> None:
        with store.transaction() as transaction:
            transaction.insert([event(A, 1)])
            transaction.record_commands([(command_id, 1)])
            transaction.save_snapshot(A, Snapshot(version=1, shape="s", state=b"x"))
            transaction.move_position("a-reader", 0, 7)
            transaction.add_key("a-user", b"key")
            transaction.add_payload("a-ref", "a-user", A, b"sealed")
            raise Oops

    with pytest.raises(Oops):
        all_of_it()

    assert store.head() == 0
    assert store.command_done(command_id) is None
    assert store.snapshot(A) is None
    assert store.position("a-reader") == 0
    assert store.key("a-user") is None
    assert store.payload("a-ref") is None
    assert insert(store, event(A, 1)), "and the store goes on"


def test_a_version_is_given_once(store: EventStore) -> None:
    insert(store, event(A, 1))

    with pytest.raises(StoreUnavailable):
        insert(store, event(B, 1), event(A, 1))

    assert store.read_stream(B) == []


def test_a_command_is_done_once(store: EventStore) -> None:
    one, other = uuid4(), UUID(int=2**127)
    with store.transaction() as transaction:
        transaction.record_commands([(one, 5), (other, 6)])
        assert transaction.commands_done([one, other, uuid4()]) == {one: 5, other: 6}

    assert (store.command_done(one), store.command_done(other)) == (5, 6)
    with pytest.raises(StoreUnavailable), store.transaction() as transaction:
        transaction.record_commands([(one, 9)])


def test_a_position_moves_only_from_where_it_is(store: EventStore) -> None:
    with store.transaction() as transaction:
        assert not transaction.move_position("a-reader", 3, 4)
        assert transaction.move_position("a-reader", 0, 5)
        assert not transaction.move_position("a-reader", 0, 6)
        assert transaction.move_position("a-reader", 5, 2)
        assert transaction.move_position("another", 0, 1)

    assert (store.position("a-reader"), store.position("another")) == (2, 1)


def test_the_newest_snapshot_of_a_stream_is_the_one(store: EventStore) -> None:
    for version in (1, 2):
        with store.transaction() as transaction:
            transaction.save_snapshot(A, Snapshot(version=version, shape="s", state=b"%d" % version))
            assert transaction.snapshot(A) == store_snapshot(version)

    assert store.snapshot(A) == store_snapshot(2)
    assert store.snapshot(B) is None


def store_snapshot(version: int) -> Snapshot:
    return Snapshot(version=version, shape="s", state=b"%d" % version)


def test_a_key_that_is_destroyed_takes_payloads_and_snapshots_with_it(store: EventStore) -> None:
    with store.transaction() as transaction:
        transaction.add_key("a-user", b"wrapped")
        transaction.add_key("another", b"wrapped too")
        transaction.add_payload("hers", "a-user", A, b"sealed")
        transaction.add_payload("his", "another", A, b"sealed")
        transaction.save_snapshot(A, store_snapshot(1))
        assert transaction.key("a-user") == b"wrapped"

    assert store.destroy_key("a-user")
    assert not store.destroy_key("a-user")

    assert (store.key("a-user"), store.key("another")) == (None, b"wrapped too")
    assert (store.payload("hers"), store.payload("his")) == (None, ("another", b"sealed"))
    assert store.snapshot(A) is None


def test_payloads_are_dropped_by_their_owner(store: EventStore) -> None:
    with store.transaction() as transaction:
        for number, owner in enumerate((A, A, B)):
            transaction.add_payload(f"ref-{number}", "a-user", owner, b"sealed")

    store.drop_payloads(A)

    assert [store.payload(f"ref-{n}") is not None for n in range(3)] == [False, False, True]


def test_what_was_committed_is_there_when_the_store_is_opened_again(stores: Stores) -> None:
    first = stores.open()
    insert(first, event(A, 1))
    first.close()

    again = stores.open()

    assert again.head() == 1
    assert again.incarnation == first.incarnation


def test_writers_wait_for_each_other_and_none_is_lost(stores: Stores) -> None:
    mine = [stores.open() for _ in range(4)]

    def write(store: EventStore) -> None:
        for _ in range(25):
            with store.transaction() as transaction:
                stored = transaction.read_stream(A, 0)
                transaction.insert([event(A, len(stored) + 1)])

    threads = [threading.Thread(target=write, args=(store,)) for store in mine]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [r.version for r in mine[0].read_stream(A)] == list(range(1, 101))


def test_readers_are_not_held_up_by_a_writer(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    insert(store, event(A, 1))

    with store.transaction() as transaction:
        transaction.insert([event(A, 2)])
        assert [r.version for r in other.read(0, 10)] == [1]
        assert other.position("a-reader") == 0


def test_a_store_that_cannot_be_written_says_so_within_its_time(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    refused: list[StoreUnavailable] = []

    def write() -> None:
        try:
            with other.transaction():
                pass
        except StoreUnavailable as unavailable:
            refused.append(unavailable)

    with store.transaction() as transaction:
        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            transaction.commands_done([uuid4()])  # it works on; one that does not would lose its lock
            writer.join(0.05)

    assert refused


def test_streams_that_are_expected_read_as_they_would_anyway(store: EventStore) -> None:
    c, d = StreamId("instance:c"), StreamId("instance:d")
    insert(store, event(A, 1), event(B, 1), event(A, 2), event(B, 2), event(c, 1))
    kept = Snapshot(version=1, shape="a-shape", state=b"{}")
    with store.transaction() as transaction:
        transaction.save_snapshot(B, kept)

    def seen(expected: list[StreamId]) -> list[object]:
        with store.transaction() as transaction:
            transaction.expect(expected)
            return [
                (transaction.snapshot(stream), transaction.read_stream(stream, after))
                for stream in (A, B, c, d)
                for after in (0, 1)
            ]

    assert seen([A, B, d]) == seen([])
    assert seen([A, B, c, d]) == seen([])
    assert [record.version for record in store.read_stream(A)] == [1, 2]
