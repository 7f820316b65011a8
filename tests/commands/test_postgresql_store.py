"""What only several processes on one server can meet: positions in the order of commits, one winner for each version, and
a database that goes away and comes back. What every store promises is in `tests/contracts/test_event_store.py`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
import pytest
from eventsourcing.persistence import StoredEvent

from commands.command import Accepted, Ask, Unit
from commands.event_store import EventStore, Snapshot, StoreUnavailable
from commands.flavor import CreateFlavor
from commands.postgresql_sessions import ANSWER_LIMIT_S, POLL_S, connect
from commands.postgresql_store import _STREAMS, LOCK, CommitBell, PostgreSQLEventStore
from commands.quota import SetQuotaLimits
from deploy.private_postgresql import PrivatePostgreSQL
from domain.flavor import FlavorSpec
from domain.identifiers import FLAVOR_CATALOG, ProjectId, RequestId, StreamId, UserId, quota_stream
from domain.recorded import Cause
from tests.support.certificates import certificate_of
from tests.support.hypervisors import eventually
from tests.support.postgresql import (
    PROCESSES,
    Wire,
    administer,
    appender_on,
    database,
    end_sessions,
    new_server,
    postgresql,
    processes,
    stopped,
)

__all__ = ["database", "postgresql"]

A, B = StreamId("instance:a"), StreamId("instance:b")
PROJECT = ProjectId("a-project")
NAME = "the ledger under test"


@pytest.fixture
def store(database: str) -> Iterator[PostgreSQLEventStore]:
    with closing(PostgreSQLEventStore(database, application_name=NAME)) as made:
        yield made


def event(stream: StreamId, version: int, state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator_id=stream, originator_version=version, topic="a.thing_happened", state=state)


def insert(store: EventStore, *events: StoredEvent) -> list[int]:
    with store.transaction() as transaction:
        return list(transaction.insert(events))


def as_ask(command: Any, command_id: UUID | None = None) -> Ask:
    command_id = command_id or uuid4()
    request_id = RequestId(f"req-{command_id}")
    cause = Cause(command_id=command_id, request_id=request_id, user_id=UserId("a-user"), project_id=PROJECT)
    return Ask(command=command, cause=cause)


def as_unit(command: Any, command_id: UUID | None = None) -> Unit:
    return Unit(asks=(as_ask(command, command_id),))


def limit_of(cores: int) -> SetQuotaLimits:
    return SetQuotaLimits(project_id=PROJECT, limits={"cores": cores})


# positions


def test_a_reader_misses_nothing_while_a_writer_is_held_up_before_its_commit(database: str) -> None:
    with closing(PostgreSQLEventStore(database)) as slow, closing(PostgreSQLEventStore(database)) as quick:
        seen, last = [], 0
        with slow.transaction() as transaction:
            [first] = transaction.insert([event(A, 1)])
            other = threading.Thread(target=insert, args=(quick, event(B, 1)))
            other.start()
            eventually(lambda: waiting_for_the_lock(database), "the other writer waits")
            for record in quick.read(last, 10):  # what a reader does that goes on from the last it saw
                seen.append(record.position)
                last = record.position
        other.join()
        seen += [record.position for record in quick.read(last, 10)]

    assert len(seen) == 2
    assert seen[0] == first


def waiting_for_the_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
        return row == (1,)


def test_a_reader_that_goes_on_from_the_last_it_saw_has_seen_everything_in_the_end(database: str) -> None:
    writers = [PostgreSQLEventStore(database) for _ in range(4)]

    def write(number: int) -> None:
        stream, chance = StreamId(f"instance:{number}"), random.Random(number)
        for version in range(1, 31):
            with suppress(ZeroDivisionError), writers[number].transaction() as transaction:  # some leave a hole
                transaction.insert([event(StreamId("instance:given-up"), version * 10 + number)])
                1 / chance.choice((0, 0, 0, 1))
            insert(writers[number], event(stream, version))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    with closing(PostgreSQLEventStore(database)) as reader:
        while any(thread.is_alive() for thread in threads) or reader.head() > (seen or [0])[-1]:
            seen += [record.position for record in reader.read((seen or [0])[-1], 5)]
        assert seen == [record.position for record in reader.read(0, 10_000)]
        assert sum(record.stream != "instance:given-up" for record in reader.read(0, 10_000)) == 120
    for writer in writers:
        writer.close()


def test_writing_goes_on_while_the_database_is_looked_after(store: PostgreSQLEventStore, database: str) -> None:
    with psycopg.connect(database) as upkeep:
        # as VACUUM, ANALYZE and CREATE INDEX CONCURRENTLY do
        upkeep.execute("LOCK TABLE stored_events IN SHARE UPDATE EXCLUSIVE MODE")

        assert insert(store, event(A, 1))


def test_positions_that_were_given_back_stay_holes_and_harm_nobody(store: PostgreSQLEventStore) -> None:
    appender = appender_on(store)
    appender.flush([as_unit(limit_of(1))])
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        transaction.insert([event(A, version) for version in range(1, 4)])
        1 / 0  # noqa: B018

    [result] = appender.flush([as_unit(limit_of(2))])
    [again] = appender_on(store).flush([as_unit(limit_of(3))])

    positions = [record.position for record in store.read(0, 10)]
    assert positions == [1, 5, 6]
    assert (result.head, again.head) == (5, 6)
    assert [record.position for record in store.read(1, 10)] == [5, 6]
    assert [record.version for record in store.read_stream(quota_stream(PROJECT))] == [1, 2, 3]


def test_positions_are_in_the_order_in_which_events_were_given(store: PostgreSQLEventStore) -> None:
    versions = random.Random(0).sample(range(1, 501), 500)

    positions = insert(store, *(event(A, version) for version in versions))

    assert positions == list(range(1, 501))
    assert [record.version for record in store.read(0, 500)] == versions


def test_the_librarys_functions_that_take_no_lock_are_never_enabled(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_ENABLE_DB_FUNCTIONS", "y")
    with closing(PostgreSQLEventStore(database)) as store, psycopg.connect(database) as connection:
        with store.transaction() as transaction:
            transaction.insert([event(A, 1)])
            locks = connection.execute("SELECT mode FROM pg_locks WHERE locktype = 'advisory'").fetchall()
        functions = connection.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")

        assert ("ExclusiveLock",) in locks
        assert functions.fetchall() == []


# one winner


def test_a_version_that_is_taken_is_refused_and_nothing_of_its_transaction_stays(store: PostgreSQLEventStore) -> None:
    insert(store, event(A, 1))
    command_id = uuid4()

    def take_it_again() -> None:
        with store.transaction() as transaction:
            transaction.record_commands([(command_id, 1)])
            transaction.insert([event(B, 1), event(A, 1)])

    with pytest.raises(StoreUnavailable, match="duplicate key"):
        take_it_again()

    assert store.command_done(command_id) is None
    assert store.streams("instance") == [A]
    assert insert(store, event(A, 2))


ROUNDS, RACERS = 8, 4


def race(url: str, number: int, barrier: Any, outcomes: Any) -> None:
    """One of those processes: every round they all ask for the same flavor, at once or a little apart."""
    appender = appender_on(PostgreSQLEventStore(url))
    for turn in range(ROUNDS):
        command = CreateFlavor(
            flavor=FlavorSpec(flavor_id=str(turn), name=f"{turn}", vcpus=1, memory_mib=number + 1, root_gib=1)
        )
        barrier.wait(60)
        time.sleep(turn % 2 * number * 0.002)
        outcome = appender.execute(as_unit(command)).outcomes[0]
        outcomes.put((turn, number, isinstance(outcome, Accepted)))


def test_of_processes_that_decide_at_once_exactly_one_wins(store: PostgreSQLEventStore, database: str) -> None:
    barrier, outcomes = PROCESSES.Barrier(RACERS), PROCESSES.Queue()

    with processes(race, *((database, number, barrier, outcomes) for number in range(RACERS))):
        told = [outcomes.get(timeout=60) for _ in range(ROUNDS * RACERS)]

    assert sorted(turn for turn, _, won in told if won) == list(range(ROUNDS))
    assert [record.version for record in store.read_stream(FLAVOR_CATALOG)] == list(range(1, ROUNDS + 1))


def test_of_two_who_move_a_position_from_one_place_one_does(database: str) -> None:
    stores = [PostgreSQLEventStore(database) for _ in range(4)]
    barrier, moved = threading.Barrier(4), []

    def move(store: PostgreSQLEventStore) -> None:
        for old in range(25):
            barrier.wait(60)
            moved.append(store.move_position("a-reader", old, old + 1))

    threads = [threading.Thread(target=move, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (moved.count(True), stores[0].position("a-reader")) == (25, 25)
    for store in stores:
        store.close()


def test_processes_that_start_at_once_share_one_ledger(database: str) -> None:
    barrier, made = threading.Barrier(4), []

    def begin() -> None:
        barrier.wait(60)
        made.append(PostgreSQLEventStore(database))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 4
    assert len({store.incarnation for store in made}) == 1
    for store in made:
        store.close()


def test_a_process_starts_while_another_writes(store: PostgreSQLEventStore, database: str) -> None:
    with store.transaction() as transaction, closing(PostgreSQLEventStore(database)) as second:
        transaction.insert([event(A, 1)])
        assert second.incarnation == store.incarnation


# a commit whose answer is lost


@pytest.fixture
def wire(postgresql: PrivatePostgreSQL) -> Iterator[Wire]:
    with closing(Wire(postgresql)) as made:
        yield made


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_is_answered_and_what_is_recorded_agree_when_the_connection_breaks_at_a_commit(
    wire: Wire, database: str, store: PostgreSQLEventStore, cut: Literal["before", "after"]
) -> None:
    with closing(PostgreSQLEventStore(wire.url_of(database))) as cut_off:
        appender, command_id = appender_on(cut_off), uuid4()
        wire.cut = cut
        if cut == "after":
            [outcome] = appender.execute(as_unit(limit_of(1), command_id)).outcomes
            assert isinstance(outcome, Accepted)
            assert (outcome.position, len(outcome.events)) == (1, 1)
        else:
            with pytest.raises(StoreUnavailable):
                appender.execute(as_unit(limit_of(1), command_id))
        assert wire.cut is None
        assert store.command_done(command_id) == (1 if cut == "after" else None)

        [outcome] = appender.execute(as_unit(limit_of(1), command_id)).outcomes

    assert isinstance(outcome, Accepted)
    assert [record.version for record in store.read_stream(quota_stream(PROJECT))] == [1]


class Overtaken:
    """A store whose next commit fails; before it is asked what became of it, something else happens."""

    def __init__(self, store: PostgreSQLEventStore, meanwhile: Callable[[], object]) -> None:
        self._store = store
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        if self._meanwhile is None:
            with self._store.transaction() as transaction:
                yield transaction
            return
        meanwhile, self._meanwhile = self._meanwhile, None
        with suppress(ZeroDivisionError), self._store.transaction() as transaction:
            yield transaction
            1 / 0  # noqa: B018
        meanwhile()
        raise StoreUnavailable("the connection broke")


def test_what_another_process_recorded_is_not_taken_for_ones_own(store: PostgreSQLEventStore) -> None:
    unit, beside = as_unit(limit_of(1)), as_unit(limit_of(2))
    appender = appender_on(Overtaken(store, lambda: appender_on(store).flush([unit])))  # type: ignore[arg-type]

    with pytest.raises(StoreUnavailable):
        appender.flush([beside, unit])

    assert store.command_done(beside.asks[0].cause.command_id) is None
    [again] = appender.flush([unit])
    assert again.outcomes == (Accepted(position=store.head(), repeated=True),)


def test_a_command_is_recorded_once_however_often_its_sessions_are_ended(
    postgresql: PrivatePostgreSQL, database: str, store: PostgreSQLEventStore
) -> None:
    done = threading.Event()

    def end_them_all() -> None:
        chance = random.Random(1)
        while not done.wait(chance.random() * 0.02):
            end_sessions(postgresql, "a victim")

    unknown = 0
    victim = PostgreSQLEventStore(database, application_name="a victim")
    appender = appender_on(victim)
    killer = threading.Thread(target=end_them_all)
    killer.start()
    try:
        for number in range(150):
            unit = as_unit(limit_of(number))
            while True:
                try:
                    [outcome] = appender.execute(unit).outcomes
                    break
                except StoreUnavailable:
                    unknown += 1
            assert isinstance(outcome, Accepted)
    finally:
        done.set()
        killer.join()

    assert unknown > 0, "some were ended in the middle"
    assert [record.version for record in store.read_stream(quota_stream(PROJECT))] == list(range(1, 151))
    victim.close()


# a database that is away

CALLS: dict[str, Callable[[EventStore], object]] = {
    "transaction": lambda store: insert(store, event(A, 1)),
    "head": lambda store: store.head(),
    "read": lambda store: store.read(0, 10),
    "read_stream": lambda store: store.read_stream(A),
    "streams": lambda store: store.streams("instance"),
    "snapshot": lambda store: store.snapshot(A),
    "position": lambda store: store.position("a-reader"),
    "move_position": lambda store: store.move_position("a-reader", 0, 1),
    "command_done": lambda store: store.command_done(uuid4()),
    "key": lambda store: store.key("a-user"),
    "payload": lambda store: store.payload("a-ref"),
    "drop_payloads": lambda store: store.drop_payloads(A),
    "destroy_key": lambda store: store.destroy_key("a-user"),
}


def require_unavailable(call: Callable[[EventStore], object], store: EventStore, within_s: float) -> None:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        call(store)
    assert time.monotonic() - begun < within_s


def test_every_call_has_its_case() -> None:
    named = {name for name in vars(EventStore) if not name.startswith("_")}
    assert named - {"close", "incarnation"} == set(CALLS)


def test_a_dead_database_is_unavailable_at_once_and_there_again_when_it_is_back(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore
) -> None:
    with store.transaction():
        assert store.head() == 0, "two sessions are open"
    with stopped(postgresql):
        for call in CALLS.values():
            require_unavailable(call, store, 2)

    for call in CALLS.values():
        call(store)
    assert store.head() == 1


def test_a_database_that_was_restarted_between_two_calls_is_not_missed(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore
) -> None:
    for call in CALLS.values():
        postgresql.restart()
        call(store)


def test_a_database_that_was_killed_keeps_what_was_committed(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore
) -> None:
    [before] = insert(store, event(A, 1))
    postgresql.kill()
    postgresql.start()

    [after] = insert(store, event(A, 2))

    assert [record.position for record in store.read(0, 10)] == [before, after]
    assert before < after


@pytest.mark.parametrize("call", ["transaction", "read"])
def test_a_frozen_database_is_unavailable_after_a_moment(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore, call: str
) -> None:
    store.head()
    with postgresql.paused():
        require_unavailable(CALLS[call], store, ANSWER_LIMIT_S + 1)  # in a session that is open
        require_unavailable(CALLS[call], store, ANSWER_LIMIT_S + 1)  # in a new one

    eventually(lambda: CALLS[call](store) is not None, "it is back", within_s=10)


def test_a_store_cannot_be_opened_on_a_database_that_is_away(postgresql: PrivatePostgreSQL, database: str) -> None:
    with stopped(postgresql), pytest.raises(StoreUnavailable):
        PostgreSQLEventStore(database)


def test_a_frozen_writer_gives_up_its_lock(store: PostgreSQLEventStore, database: str) -> None:
    with connect(database, "a frozen writer") as frozen:
        frozen.execute("BEGIN")
        frozen.execute(LOCK)
        begun = time.monotonic()

        def writes() -> bool:
            with suppress(StoreUnavailable):
                return bool(insert(store, event(A, 1)))
            return False

        eventually(writes, "another writes", within_s=10)

        assert 1 < time.monotonic() - begun < 8
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.execute("COMMIT")


def test_a_writer_whose_transaction_was_ended_records_nothing(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore
) -> None:
    def be_ended_in_the_middle() -> None:
        with store.transaction() as transaction:
            transaction.insert([event(A, 1)])
            assert end_sessions(postgresql, NAME)

    with pytest.raises(StoreUnavailable):
        be_ended_in_the_middle()

    assert store.head() == 0
    assert insert(store, event(A, 1))


def test_sessions_are_used_again_and_closed_with_the_store(postgresql: PrivatePostgreSQL, database: str) -> None:
    def sessions() -> int:
        [row] = administer(postgresql, "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", "counted")
        return int(row[0])

    store = PostgreSQLEventStore(database, application_name="counted")
    for version in range(1, 20):
        insert(store, event(A, version))
        store.head()
    assert sessions() == 1

    store.close()

    eventually(lambda: sessions() == 0, "all are closed")


# streams


def test_streams_are_in_the_order_of_their_bytes_whatever_the_databases_language(store: PostgreSQLEventStore) -> None:
    names = ["a", "aa", "a:b", "a b", "a-b", "B", "Z", "~", "é", "ß", "İ", "日本", "\U0001f600", "\x01", "%_\\'\"", ""]
    streams = [StreamId(f"flavor:{name}") for name in names]
    insert(store, *(event(stream, 1) for stream in (*streams, "flavors:a", "flavor", "Flavor:a", "flavor;a")))  # type: ignore[arg-type]

    found = store.streams("flavor")

    assert found == sorted(set(streams) - {"flavor:"}, key=lambda stream: stream.encode())


def test_finding_streams_costs_by_streams_and_not_by_events(store: PostgreSQLEventStore, database: str) -> None:
    insert(store, *(event(StreamId(f"instance:{n % 5}"), n) for n in range(20_000)))

    with psycopg.connect(database) as connection:
        connection.execute("ANALYZE stored_events")
        cursor = connection.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + _STREAMS, {"first": "instance:", "end": "instance;"}
        )
        [(plan,)] = cursor.fetchall()

    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 60


# the bell


@pytest.fixture
def bell(database: str) -> Iterator[CommitBell]:
    with closing(CommitBell(database)) as made:
        yield made


def test_the_bell_rings_when_another_has_committed(store: PostgreSQLEventStore, bell: CommitBell) -> None:
    assert not bell.wait(0, 0.2)
    waited: list[bool] = []
    waiter = threading.Thread(target=lambda: waited.append(bell.wait(0, 60)))
    waiter.start()

    [position] = insert(store, event(A, 1))
    waiter.join(60)

    assert waited == [True]
    assert bell.head == position


def test_the_bell_knows_what_was_committed_before_it_was_hung(store: PostgreSQLEventStore, bell: CommitBell) -> None:
    [position] = insert(store, event(A, 1))

    assert bell.wait(0, 60)
    assert bell.head == position
    assert not bell.wait(position, 0.05)


def test_nothing_rings_for_what_is_no_event_or_was_given_up(store: PostgreSQLEventStore, database: str) -> None:
    with connect(database, "a listener") as listener:
        listener.execute("LISTEN ledger_head")
        with store.transaction() as transaction:
            transaction.save_snapshot(A, Snapshot(version=1, shape="s", state=b"x"))
        with suppress(ZeroDivisionError), store.transaction() as transaction:
            transaction.insert([event(A, 1)])
            1 / 0  # noqa: B018
        [position] = insert(store, event(A, 1))

        assert [notice.payload for notice in listener.notifies(timeout=60, stop_after=1)] == [str(position)]


def test_whoever_waits_for_the_bell_can_be_woken(bell: CommitBell) -> None:
    waited: list[bool] = []
    waiter = threading.Thread(target=lambda: waited.append(bell.wait(0, 60)))
    waiter.start()

    def woken() -> bool:
        bell.wake()
        return not waiter.is_alive()

    eventually(woken, "it goes on")

    assert waited == [False]


def test_a_ring_that_was_lost_is_made_good_by_asking(
    store: PostgreSQLEventStore, database: str, bell: CommitBell
) -> None:
    assert not bell.wait(0, 0.2)
    with psycopg.connect(database) as silent:
        silent.execute("INSERT INTO stored_events VALUES ('instance:a', 1, 'a.thing_happened', '{}')")

    assert bell.wait(0, POLL_S + 10)


def test_the_bell_outlives_a_restart_of_the_server(
    postgresql: PrivatePostgreSQL, store: PostgreSQLEventStore, bell: CommitBell
) -> None:
    [first] = insert(store, event(A, 1))
    assert bell.wait(0, 60)

    with stopped(postgresql):
        assert not bell.wait(first, 0.5), "it only waits"
    [second] = insert(store, event(A, 2))

    assert bell.wait(first, 60)
    assert bell.head == second


# how it is reached


@pytest.mark.usefixtures("postgresql")
def test_a_server_is_reached_over_tls_and_an_impostor_is_refused(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path, "server")
    another, _ = certificate_of(tmp_path, "another")
    with new_server(certificate=certificate, key=key) as server:
        url = server.url_of("postgres", sslmode="verify-full", sslrootcert=str(certificate))
        with closing(PostgreSQLEventStore(url, application_name="over tls")) as store:
            assert insert(store, event(A, 1)) == [1]
            statement = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = %s"
            assert administer(server, statement, "over tls") == [(True,)]
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            PostgreSQLEventStore(server.url_of("postgres", sslmode="verify-full", sslrootcert=str(another)))


def test_a_server_is_reached_over_its_socket(postgresql: PrivatePostgreSQL, database: str) -> None:
    name = database.rpartition("/")[2]
    url = postgresql.url_of(name, host=str(postgresql.log_file.parent))

    with closing(PostgreSQLEventStore(url)) as store:
        assert insert(store, event(A, 1)) == [1]


def test_a_wrong_password_is_said_and_not_shown(database: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        PostgreSQLEventStore(database.replace("@", "nonsense@"))

    assert "password authentication failed" in str(refused.value)
    assert "nonsense" not in str(refused.value)
