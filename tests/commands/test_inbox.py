"""Reports are recorded once, however often they arrive; one that says nothing true is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from commands.event_store import StoreUnavailable
from commands.instance.outcome import RecordOutcome
from commands.log.port import REPORTS, Message
from domain.instance.state import VmState
from tests.support.enrolled import Counted
from tests.support.ledger import Crash, Ledger, require_nothing_leaked


def send(ledger: Ledger, *values: bytes) -> None:
    ledger.log.publish([Message(REPORTS, "alpha", value) for value in values])


def reports(ledger: Ledger) -> list[bytes]:
    return [record.value or b"" for record in ledger.messages(REPORTS)]


def test_a_report_that_arrives_again_changes_nothing(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()
    before = [r.type for r in ledger.history()]

    send(ledger, *reports(ledger) * 2)
    ledger.settle()

    assert [r.type for r in ledger.history()] == before


def test_all_reports_read_again_from_a_place_that_was_lost_change_nothing(ledger: Ledger) -> None:
    [kept, gone] = ledger.running(2)
    ledger.stop(kept)
    ledger.delete(gone)
    ledger.settle()
    before = [r.type for r in ledger.history()]
    with ledger.store.transaction() as transaction:
        transaction.move_position("inbox", ledger.store.position("inbox"), 0)

    ledger.restart("inbox")
    ledger.settle()

    assert [r.type for r in ledger.history()] == before


def test_what_is_no_report_is_passed_over(ledger: Ledger) -> None:
    [instance_id] = ledger.create()
    send(ledger, b"not json", b'{"type": "report.weather"}', b"[]", b'{"type":"report.outcome","report":{}}', b"null")

    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE


@pytest.mark.parametrize("call", ["transaction", "commit"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_inbox_that_dies_at_its_commit_is_taken_over(ledger: Ledger, call: str, when: str) -> None:
    [instance_id] = ledger.create()
    ledger.settle_without("inbox")
    ledger.faults.crash(call, when)
    try:
        ledger.step("inbox")
    except Crash:
        ledger.restart("inbox")

    ledger.settle()

    assert ledger.history_of(instance_id) == ["create_requested", "scheduled", "spawned"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_an_answer_loses_no_report(ledger: Ledger, when: str) -> None:
    [instance_id] = ledger.running()
    send(ledger, reports(ledger)[-1])  # one that is refused stands before the next
    ledger.stop(instance_id)
    ledger.settle_without("inbox")
    ledger.faults.crash("transaction", when, error=StoreUnavailable("the connection broke"))
    try:
        ledger.step("inbox")
    except StoreUnavailable:
        ledger.step("inbox")

    ledger.settle()

    assert ledger.history_of(instance_id)[-1] == "stopped"


def test_two_inboxes_active_at_once_record_each_report_once(two_hosts: Ledger) -> None:
    other = two_hosts.command_side().consumers["inbox"]()
    ids = two_hosts.create(4)
    for name in ("build", "orders", "alpha", "beta"):
        two_hosts.step(name)
    two_hosts.step("inbox")
    other.step()
    for i in ids:
        two_hosts.stop(i)
    two_hosts.settle_without("inbox")
    other.step()
    two_hosts.settle()

    assert all(
        two_hosts.history_of(i) == ["create_requested", "scheduled", "spawned", "stop_requested", "stopped"]
        for i in ids
    )
    require_nothing_leaked(two_hosts)


def test_reports_that_a_power_cut_took_do_not_hide_those_that_follow(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    with ledger.log._lock:  # the newest messages are gone, and the count with them; what was read of them is not
        ledger.log._db.execute("DELETE FROM messages WHERE topic = 'reports'")
        ledger.log._db.execute("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'messages'")
    ledger.log.close()
    ledger.log.__init__(ledger.store, ledger.vault, ledger.directory / "messages.db", ledger.faults)  # type: ignore[misc]
    ledger.restart()
    ledger.hosts["alpha"].restart()
    ledger.settle()
    ledger.stop(instance_id)
    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_report_that_cannot_be_decided_does_not_stop_those_that_come_with_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [instance_id, other] = ledger.create(2)
    ledger.settle_without("inbox")
    decide = ledger.appender._decisions[RecordOutcome]

    def broken_for_one(command: Any, states: Any) -> Any:
        if command.report.instance_id == other:
            raise ZeroDivisionError("a fault of ours")
        return decide(command, states)

    monkeypatch.setitem(ledger.appender._decisions, RecordOutcome, broken_for_one)  # type: ignore[arg-type]
    counted = Counted()
    ledger.settle()
    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE
    assert counted() == {"failed": 1}

    monkeypatch.undo()
    ledger.pass_time(70)
    assert ledger.instance(other).vm_state is VmState.ACTIVE, "its host says it again"
