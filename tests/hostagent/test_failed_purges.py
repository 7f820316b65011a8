"""Purges that fail, and one that succeeds after all: a guest is there, or gone for the ledger too and its room is free."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.instance.outcome import RecordOutcome
from commands.log.port import LogUnavailable
from commands.orders import Act
from domain.errors import DomainError, ReportSuperseded
from domain.identifiers import InstanceId
from domain.instance.state import VmState
from hostagent.drivers.protocol import DriverError
from hostagent.reports import outcome
from tests.hostagent.test_outages import log_away, newest_order
from tests.support.ledger import Ledger, require_nothing_leaked


def failing_once(ledger: Ledger) -> InstanceId:
    """A guest whose first purge fails at its host, and is reported; the ledger has yet to read that."""
    [instance_id] = ledger.running()
    ledger.hosts["alpha"].faults.crash("destroy", error=DriverError("busy"))
    ledger.delete(instance_id)
    ledger.settle_without("inbox")
    return instance_id


def it_is_gone(ledger: Ledger, instance_id: InstanceId) -> None:
    instance = ledger.instance(instance_id)
    assert (instance.vm_state, instance.task_state, instance.purge_pending) == (VmState.DELETED, None, False)
    assert ledger.hosts["alpha"].guests() == {}
    assert ledger.provider("alpha").claims == {}
    assert ledger.quota().used["instances"] == 0
    require_nothing_leaked(ledger)


def test_a_purge_that_succeeds_before_its_failure_is_recorded_deletes_the_server(ledger: Ledger) -> None:
    instance_id = failing_once(ledger)
    ledger.clock.advance(6)
    ledger.step("alpha")
    assert ledger.hosts["alpha"].guests() == {}

    ledger.settle()

    assert ledger.history_of(instance_id)[-2:] == ["delete_failed", "deleted"]
    it_is_gone(ledger, instance_id)


@pytest.mark.parametrize("meanwhile", ["nothing", "a reboot", "a stop", "a delete", "another agent"])
def test_it_is_said_until_it_is_recorded(ledger: Ledger, meanwhile: str) -> None:
    """The report of the success is lost, and the ledger has moved on."""
    instance_id, host = failing_once(ledger), ledger.hosts["alpha"]
    ledger.clock.advance(6)
    ledger.faults.crash("publish", error=LogUnavailable("nobody answers"))
    ledger.step("alpha")
    assert host.guests() == {}
    ledger.step("inbox")
    assert ledger.instance(instance_id).vm_state is VmState.ERROR
    match meanwhile:
        case "a reboot":
            ledger.reboot(instance_id, hard=True)
        case "a stop":
            ledger.stop(instance_id)
        case "a delete":
            ledger.delete(instance_id)
        case "another agent":
            host.restart()

    ledger.pass_time(70)

    it_is_gone(ledger, instance_id)


def test_without_a_delete_no_host_says_that_a_server_is_gone(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    order = newest_order(ledger, instance_id)
    report = outcome(order, ledger.hosts["alpha"].agent.service_id, Act.PURGE, succeeded=True, power_state=0)

    with pytest.raises(ReportSuperseded):
        ledger.ask(RecordOutcome(report=report))


HAPPENINGS = ("fail", "time", "deliver", "lose a report", "delete", "reboot", "agent restarts", "orders", "inbox")


def happen(ledger: Ledger, instance_id: InstanceId, what: str) -> None:
    host = ledger.hosts["alpha"]
    match what:
        case "fail":
            host.faults.crash("destroy", error=DriverError("busy"))
        case "time":
            ledger.clock.advance(6)
            ledger.step("alpha")
        case "deliver":
            ledger.settle()
        case "lose a report":
            with log_away(ledger):
                ledger.clock.advance(6)
                ledger.step("alpha")
        case "delete" | "reboot":
            with suppress(DomainError):
                ledger.delete(instance_id) if what == "delete" else ledger.reboot(instance_id, hard=True)
        case "agent restarts":
            host.restart()
            ledger.step("alpha")
        case part:
            ledger.step(part)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(HAPPENINGS), max_size=14))
def test_whatever_fails_a_guest_that_is_gone_is_gone_for_the_ledger_too(happenings: Sequence[str]) -> None:
    with TemporaryDirectory(prefix="ledger-") as directory:
        ledger = Ledger(Path(directory)).with_flavors()
        try:
            ledger.settle()
            instance_id = failing_once(ledger)
            for what in happenings:
                happen(ledger, instance_id, what)
            ledger.hosts["alpha"].faults.heal()
            ledger.pass_time(150, step_s=10)

            if instance_id in ledger.hosts["alpha"].guests():
                assert not ledger.instance(instance_id).deleted
                require_nothing_leaked(ledger)
            else:
                it_is_gone(ledger, instance_id)
        finally:
            ledger.close()
