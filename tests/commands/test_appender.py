"""The transaction: one command counts once, a refused one leaves no trace, and a failure leaves nothing in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from commands.command import Accepted, Move, Unit
from commands.event_store import Snapshot, StoreUnavailable
from commands.flavor import CreateFlavor, DescribeFlavor
from commands.instance.create import payload_ref
from commands.keypair import CreateKeypair, DeleteKeypair
from commands.quota import SetQuotaLimits
from commands.snapshots import EVENTS_BETWEEN
from commands.states import kind_of
from commands.vault import Payload
from domain.errors import FlavorIdExists, InstanceExists, QuotaExceeded
from domain.identifiers import FLAVOR_CATALOG, InstanceId, keypair_stream, quota_stream
from domain.marks import ERASED
from tests.support.ledger import PROJECT, SMALL, USER, Crash, Ledger, create_command

BAD = CreateFlavor(flavor=SMALL)  # its id is taken
ONE, TWO, THREE = (InstanceId(UUID(int=n)) for n in (1, 2, 3))


def describe(words: str) -> DescribeFlavor:
    return DescribeFlavor(flavor_id="1", description=words)


def create_key(name: str) -> CreateKeypair:
    return CreateKeypair(
        user_id=USER, project_id=PROJECT, name=name, type="ssh", public_key="ssh-ed25519 AAAA", fingerprint="f"
    )


# once


def test_a_command_sent_again_is_recognised_by_its_id(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    first = ledger.ask(describe("ours"), command_id)
    head = ledger.store.head()

    again = ledger.ask(describe("ours"), command_id)

    assert again == Accepted(position=first.position, repeated=True)
    assert ledger.store.head() == head


def test_a_command_sent_again_is_not_decided_again_whatever_happened_since(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    ledger.ask(create_command([ONE]), command_id)
    ledger.settle()
    ledger.delete(ONE)
    ledger.settle()

    assert ledger.ask(create_command([ONE]), command_id).repeated
    assert ledger.instance(ONE).deleted


def test_a_command_sent_twice_in_one_flush_counts_once(ledger: Ledger) -> None:
    ask = ledger.as_ask(create_command([ONE]))

    results = ledger.appender.flush([Unit(asks=(ask,)), Unit(asks=(ask,))])

    assert [r.outcomes[0].position for r in results if isinstance(r.outcomes[0], Accepted)] == [ledger.store.head()] * 2
    assert ledger.quota().used["instances"] == 1


def test_a_command_sent_again_to_another_process_is_recognised_there(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    ledger.ask(create_command([ONE]), command_id)

    assert ledger.ask(create_command([ONE]), command_id, appender=ledger.command_side().appender).repeated


def test_a_command_that_changed_nothing_is_done_too(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    accepted = ledger.ask(describe(SMALL.description or ""), command_id)
    nothing = ledger.ask(describe(SMALL.description or ""))

    assert ledger.ask(describe("other"), command_id).repeated
    assert nothing.events == ()
    assert nothing.position == accepted.position


# refused


def test_a_refused_command_leaves_no_trace(ledger: Ledger) -> None:
    head, command_id = ledger.store.head(), ledger.command_id()

    with pytest.raises(FlavorIdExists):
        ledger.ask(BAD, command_id)

    assert ledger.store.head() == head
    assert ledger.store.command_done(command_id) is None


def test_a_refused_command_may_be_sent_again_and_be_accepted(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 0}))
    with pytest.raises(QuotaExceeded):
        ledger.ask(create_command([ONE]), command_id)
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 1}))

    assert not ledger.ask(create_command([ONE]), command_id).repeated


def test_a_refused_command_does_not_harm_its_neighbours(ledger: Ledger) -> None:
    before, bad, after = (ledger.as_ask(c) for c in (create_command([ONE]), BAD, create_command([TWO])))

    [result] = ledger.appender.flush([Unit(asks=(before, bad, after))])

    assert isinstance(result.outcomes[0], Accepted)
    assert isinstance(result.outcomes[1], FlavorIdExists)
    assert isinstance(result.outcomes[2], Accepted)
    assert set(ledger.instances()) == {ONE, TWO}


def test_commands_of_one_flush_see_what_those_before_them_did(ledger: Ledger) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 2}))

    results = ledger.appender.flush([Unit(asks=(ledger.as_ask(create_command([i])),)) for i in (ONE, TWO, THREE)])

    assert [type(r.outcomes[0]) for r in results] == [Accepted, Accepted, QuotaExceeded]


def test_a_command_that_breaks_its_decision_takes_nothing_with_it(ledger: Ledger) -> None:
    broken = replace(create_command([ONE]), flavor_id=[])  # type: ignore[arg-type]
    head = ledger.store.head()
    ledger.appender.start()
    try:
        good = ledger.appender.submit(Unit(asks=(ledger.as_ask(create_command([TWO])),)))
        bad = ledger.appender.submit(Unit(asks=(ledger.as_ask(broken),)))
        other = ledger.appender.submit(Unit(asks=(ledger.as_ask(create_command([THREE])),)))

        assert isinstance(good.result(10).outcomes[0], Accepted)
        assert isinstance(other.result(10).outcomes[0], Accepted)
        with pytest.raises(TypeError):
            bad.result(10)
    finally:
        ledger.appender.stop()
    assert set(ledger.instances()) == {TWO, THREE}
    assert ledger.store.head() == head + 4


# moves


def test_a_move_is_made_with_the_commands_and_only_from_where_it_stood(ledger: Ledger) -> None:
    move = Move(consumer="a-reader", old=0, new=5)

    [first] = ledger.appender.flush([Unit(asks=(ledger.as_ask(create_command([ONE])),), move=move)])
    [second] = ledger.appender.flush([Unit(asks=(ledger.as_ask(create_command([TWO])),), move=move)])

    assert (first.moved, second.moved) == (True, False)
    assert ledger.store.position("a-reader") == 5
    assert set(ledger.instances()) == {ONE, TWO}, "the commands of a slow process count all the same"


def test_a_refusal_that_has_to_be_asked_again_holds_the_move_back(ledger: Ledger) -> None:
    asks = tuple(ledger.as_ask(c) for c in (create_command([ONE]), BAD))
    move = Move(consumer="a-reader", old=0, new=5)

    [held] = ledger.appender.flush([Unit(asks=asks, move=move, retry_on=(FlavorIdExists,))])
    [passed] = ledger.appender.flush([Unit(asks=asks, move=move, retry_on=(InstanceExists,))])

    assert (held.moved, passed.moved) == (False, True)
    first = passed.outcomes[0]
    assert isinstance(first, Accepted)
    assert first.repeated, "what was accepted stays accepted"


def test_a_move_that_is_refused_is_not_made_even_with_nothing_to_decide(ledger: Ledger) -> None:
    assert ledger.appender.execute(Unit(asks=(), move=Move(consumer="r", old=0, new=3))).moved
    assert not ledger.appender.execute(Unit(asks=(), move=Move(consumer="r", old=1, new=9))).moved
    assert ledger.store.position("r") == 3


# time


def test_time_never_runs_backwards(ledger: Ledger) -> None:
    ledger.ask(describe("a"))
    ledger.clock.advance(-3600)
    ledger.ask(describe("b"))
    ledger.restart()
    ledger.ask(describe("c"))
    ledger.clock.advance(7200)
    ledger.ask(describe("d"))

    times = [record.time for record in ledger.history()]

    assert times == sorted(times)
    assert times[-1] - times[-2] == timedelta(hours=1)


def test_all_of_one_flush_happened_at_one_time_and_in_order(ledger: Ledger) -> None:
    head = ledger.store.head()
    ledger.appender.flush([Unit(asks=(ledger.as_ask(create_command([i])),)) for i in (ONE, TWO)])

    new = ledger.history(head)

    assert len({record.time for record in new}) == 1
    assert [record.position for record in new] == [head + n for n in (1, 2, 3, 4)]


# failures


@pytest.mark.parametrize("call", ["transaction", "commit"])
def test_a_commit_that_failed_is_told_and_leaves_nothing(ledger: Ledger, call: str) -> None:
    head, command = ledger.store.head(), create_command([ONE])
    command_id = ledger.command_id()
    ledger.faults.crash(call, "before", error=StoreUnavailable("the disk is full"))

    with pytest.raises(StoreUnavailable):
        ledger.ask(command, command_id)

    assert ledger.store.head() == head
    assert not ledger.ask(command, command_id).repeated
    assert ledger.quota().used["instances"] == 1


def test_a_commit_whose_answer_was_lost_is_settled_by_asking(ledger: Ledger) -> None:
    command_id = ledger.command_id()
    ledger.faults.crash("transaction", "after", error=StoreUnavailable("the connection broke"))

    accepted = ledger.ask(create_command([ONE]), command_id)

    assert [event.position for event in accepted.events] == [accepted.position - 1, accepted.position]
    assert accepted.position == ledger.store.head() == ledger.store.command_done(command_id)


def test_a_move_whose_answer_was_lost_is_settled_by_asking(ledger: Ledger) -> None:
    ledger.faults.crash("transaction", "after", error=StoreUnavailable("the connection broke"))

    assert ledger.appender.execute(Unit(asks=(), move=Move(consumer="r", old=0, new=3))).moved


def test_a_refusal_whose_commits_answer_was_lost_is_a_refusal(ledger: Ledger) -> None:
    ledger.faults.crash("transaction", "after", error=StoreUnavailable("the connection broke"))

    with pytest.raises(FlavorIdExists):
        ledger.ask(BAD)


def test_a_refused_command_takes_nothing_from_its_neighbours_when_the_commits_answer_was_lost(ledger: Ledger) -> None:
    asks = [ledger.as_ask(command) for command in (create_command([ONE]), BAD, create_command([TWO]))]
    ledger.faults.crash("transaction", "after", error=StoreUnavailable("the connection broke"))

    results = ledger.appender.flush([Unit(asks=(ask,)) for ask in asks])

    outcomes = [result.outcomes[0] for result in results]
    assert [type(outcome) for outcome in outcomes] == [Accepted, FlavorIdExists, Accepted]


def test_readers_see_what_was_committed_without_an_answer(ledger: Ledger) -> None:
    before = ledger.store.head()
    ledger.faults.crash("transaction", "after", error=StoreUnavailable("the connection broke"))
    ledger.ask(create_command([ONE]))

    assert [record.position for record in ledger.log.events(before, 10)] == [before + 1, before + 2]
    ledger.settle()
    assert ledger.history_of(ONE) == ["create_requested", "scheduled", "spawned"]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), Crash("gone")])
def test_what_a_failed_flush_decided_is_forgotten(ledger: Ledger, error: BaseException) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 1}))
    ledger.faults.crash("commit", "before", error=error)
    with pytest.raises(type(error)):
        ledger.ask(create_command([ONE]))

    assert not ledger.ask(create_command([ONE])).repeated, "neither the instance nor its quota was taken"
    assert ledger.store.head() == ledger.history()[-1].position


def test_what_others_recorded_around_a_failed_flush_is_seen_after_it(ledger: Ledger) -> None:
    other = ledger.command_side().appender
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 1}))
    ledger.ask(create_command([ONE], project_id="elsewhere"))  # so that the quota is remembered, and not the newest
    ledger.ask(create_command([TWO]), appender=other)
    ledger.ask(describe("words"), appender=other)
    ledger.faults.crash("transaction", "before", error=StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        ledger.ask(describe("other words"))

    with pytest.raises(QuotaExceeded):
        ledger.ask(create_command([THREE]))


def test_a_key_made_in_a_failed_flush_is_not_used_again(ledger: Ledger) -> None:
    keys = [ledger.as_ask(create_key(name)) for name in ("one", "two")]  # the second finds the key of the first
    ledger.faults.crash("commit", "before", error=StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        ledger.appender.flush([Unit(asks=keys)])

    ledger.appender.flush([Unit(asks=keys)])
    ledger.vault.forget_keys()

    names = {k.name for k in ledger.folded(keypair_stream(USER)).state.by_id.values()}
    assert names == {"one", "two"}


def test_what_another_process_recorded_is_caught_up_with(ledger: Ledger) -> None:
    other = ledger.command_side().appender
    for number in range(1, 5):
        appender = ledger.appender if number % 2 else other
        ledger.ask(create_command([InstanceId(UUID(int=number))]), appender=appender)

    assert ledger.quota().used["instances"] == 4
    assert [r.version for r in ledger.history() if r.stream == quota_stream(PROJECT)] == [1, 2, 3, 4]


# secrets


def secret_payloads(*instance_ids: InstanceId) -> dict[Any, Payload]:
    return {
        payload_ref(i, "user_data"): Payload(b"#!/bin/sh secret", subject=USER, owner=f"instance:{i}")
        for i in instance_ids
    }


def test_a_payload_is_kept_sealed_with_its_command(ledger: Ledger) -> None:
    payloads = secret_payloads(ONE)
    ledger.ask(create_command([ONE], has_user_data=True), payloads=payloads)

    [ref] = payloads
    assert ledger.vault.payload(ref) == b"#!/bin/sh secret"
    assert "secret" not in repr(payloads)
    assert b"secret" not in everything_on_disk(ledger)


def test_payloads_of_instances_that_the_quota_did_not_allow_are_not_kept(ledger: Ledger) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 1}))
    payloads = secret_payloads(ONE, TWO)

    ledger.ask(create_command([ONE, TWO], has_user_data=True), payloads=payloads)

    assert [ledger.vault.payload(ref) is None for ref in payloads] == [False, True]


def test_a_payload_of_a_refused_command_is_not_kept(ledger: Ledger) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": 0}))
    payloads = secret_payloads(ONE)
    with pytest.raises(QuotaExceeded):
        ledger.ask(create_command([ONE], has_user_data=True), payloads=payloads)

    assert ledger.vault.payload(next(iter(payloads))) is None


def test_a_payload_goes_with_its_instance(ledger: Ledger) -> None:
    payloads = secret_payloads(ONE)
    ledger.ask(create_command([ONE], has_user_data=True), payloads=payloads)
    ledger.settle()
    ledger.delete(ONE)
    ledger.settle()

    assert ledger.vault.payload(next(iter(payloads))) is None


def test_no_personal_word_is_on_the_disk_in_plain(ledger: Ledger) -> None:
    ledger.ask(create_command([ONE], name="Agatha's laptop", metadata={"who": "Agatha"}))
    ledger.ask(create_key("Agatha's key"))

    assert b"Agatha" not in everything_on_disk(ledger)


def test_an_erased_user_stays_erased_when_more_is_recorded_of_them(ledger: Ledger) -> None:
    ledger.ask(create_command([ONE], name="Agatha's laptop"))
    assert ledger.vault.erase(USER)
    ledger.restart()

    ledger.ask(create_command([TWO], name="Agatha again"))
    ledger.settle()

    assert ledger.instance(ONE).request.name == ERASED
    assert ledger.instance(TWO).request.name == "Agatha again"
    assert ledger.history_of(ONE) == ["create_requested", "scheduled", "spawned"]


def test_an_erased_users_instances_go_on_and_can_be_deleted(ledger: Ledger) -> None:
    [instance_id] = ledger.running(1)
    ledger.vault.erase(USER)
    ledger.restart()

    ledger.stop(instance_id)
    ledger.settle()
    ledger.delete(instance_id)
    ledger.settle()

    assert ledger.instance(instance_id).deleted
    assert ledger.quota().used["instances"] == 0


def everything_on_disk(ledger: Ledger) -> bytes:
    with closing(sqlite3.connect(ledger.directory / "ledger.db")) as db:
        db.execute("PRAGMA wal_checkpoint(FULL)")
    return b"".join(path.read_bytes() for path in ledger.directory.glob("ledger.db*"))


# snapshots


def change_quota(ledger: Ledger, times: int) -> None:
    for number in range(times):
        ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"cores": 100 + number}))


def loaded(ledger: Ledger, stream: Any) -> int:
    """How many events it takes to load a stream."""
    before = ledger.store.read_of_streams
    ledger.folded(stream)
    return ledger.store.read_of_streams - before


def test_a_long_stream_costs_no_more_than_a_short_one(ledger: Ledger) -> None:
    costs = []
    for _ in range(3):
        change_quota(ledger, 2 * EVENTS_BETWEEN)
        costs.append(loaded(ledger, quota_stream(PROJECT)))

    assert all(cost < EVENTS_BETWEEN for cost in costs)
    assert ledger.quota().limits["cores"] == 100 + 2 * EVENTS_BETWEEN - 1


def test_a_stream_is_read_once_and_then_remembered(ledger: Ledger) -> None:
    change_quota(ledger, 5)
    before = ledger.store.read_of_streams

    change_quota(ledger, 5)

    assert ledger.store.read_of_streams == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: replace(good, shape="of another release"),
        lambda good: replace(good, state=b"not json"),
        lambda good: replace(good, state=b"{}"),
        lambda good: replace(good, state=b'"a-user"\0' + b"sealed by nobody" * 4),
    ],
    ids=["another shape", "garbage", "of missing fields", "sealed under no key"],
)
def test_a_snapshot_that_is_no_good_is_passed_over(ledger: Ledger, damage: Any) -> None:
    stream = quota_stream(PROJECT)
    change_quota(ledger, EVENTS_BETWEEN + 1)
    good = ledger.store.snapshot(stream)
    assert good is not None
    with ledger.store.transaction() as transaction:
        transaction.save_snapshot(stream, damage(good))
    ledger.restart()

    assert loaded(ledger, stream) == EVENTS_BETWEEN + 1
    change_quota(ledger, 1)
    assert ledger.quota().limits["cores"] == 100


def test_a_snapshot_of_personal_data_is_sealed_and_goes_with_its_key(ledger: Ledger) -> None:
    stream = keypair_stream(USER)
    for number in range(EVENTS_BETWEEN // 2 + 1):
        ledger.ask(create_key(f"key {number}"))
        ledger.ask(DeleteKeypair(user_id=USER, name=f"key {number}"))
    ledger.ask(create_key("Agatha's"))

    snapshot = ledger.store.snapshot(stream)
    assert snapshot is not None
    assert b"key" not in snapshot.state
    assert loaded(ledger, stream) < 10

    ledger.vault.erase(USER)
    assert ledger.store.snapshot(stream) is None
    assert [k.name for k in ledger.folded(stream).state.by_id.values()] == [ERASED]


def test_a_snapshot_says_which_code_made_it(ledger: Ledger) -> None:
    change_quota(ledger, EVENTS_BETWEEN)

    snapshot = ledger.store.snapshot(quota_stream(PROJECT))

    assert isinstance(snapshot, Snapshot)
    assert snapshot.shape == kind_of(quota_stream(PROJECT)).shape
    assert kind_of(FLAVOR_CATALOG).shape != snapshot.shape


# the thread


def test_commands_from_many_threads_are_answered_each_with_its_own(ledger: Ledger) -> None:
    ledger.ask(SetQuotaLimits(project_id=PROJECT, limits={"instances": -1, "cores": -1, "ram": -1}))
    ids = [InstanceId(uuid4()) for _ in range(50)]
    ledger.appender.start()
    try:
        futures = [ledger.appender.submit(Unit(asks=(ledger.as_ask(create_command([i])),))) for i in ids]
        results = [future.result(10) for future in futures]
    finally:
        ledger.appender.stop()

    for instance_id, result in zip(ids, results, strict=True):
        outcome = result.outcomes[0]
        assert isinstance(outcome, Accepted)
        assert {e.event.instance_id for e in outcome.events} == {instance_id}
