"""An inbox that wants proof: what a host with one key can say, and what nobody can say for another."""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commands.log.port import REPORTS
from commands.log.reports import decode_report, encode_report
from commands.log.signed import read_envelope
from commands.orders import Act
from commands.reports import HostReport, ObservationReport, OutcomeReport, Report
from domain.identifiers import HostName, InstanceId, ServiceId
from domain.instance.state import PowerState, VmState
from gateway import enrollment
from tests.support.enrolled import Counted, Enrolled, enroll
from tests.support.ledger import Ledger, require_nothing_leaked


@pytest.fixture
def enrolled(two_hosts: Ledger) -> Enrolled:
    return Enrolled(two_hosts)


def sent(ledger: Ledger) -> list[tuple[bytes, Report]]:
    """Every report on the topic that is in an envelope, as it came and as it reads."""
    found = []
    for record in ledger.messages(REPORTS):
        signed = read_envelope(record.value or b"")
        if signed is not None:
            found.append((record.value or b"", decode_report(signed.body)))
    return found


def outcome_of(ledger: Ledger, host: str, instance_id: InstanceId, act: Act = Act.POWER_OFF) -> OutcomeReport:
    """As if the host had done what the guest's pending request asks."""
    return OutcomeReport(
        report_id="made up",
        service_id=ledger.hosts[host].agent.service_id,
        host=HostName(host),
        order_id="made up",
        instance_id=instance_id,
        task_revision=ledger.instance(instance_id).task_revision,
        act=act,
        succeeded=True,
        power_state=PowerState.SHUTDOWN,
    )


def being_stopped(enrolled: Enrolled) -> InstanceId:
    """A guest on alpha that waits to be stopped, and an alpha that does nothing about it."""
    [instance_id] = enrolled.ledger.running(requested_host="alpha")
    enrolled.ledger.hosts["alpha"].paused = True
    enrolled.ledger.stop(instance_id)
    enrolled.ledger.settle()
    return instance_id


def refused(enrolled: Enrolled, *values: bytes) -> dict[str, int]:
    """Why these are not taken; and nothing is recorded."""
    counted, before = Counted(), enrolled.ledger.store.head()
    enrolled.send(*values)
    enrolled.ledger.settle()
    assert enrolled.ledger.store.head() == before
    return counted()


def test_hosts_with_keys_do_their_work(enrolled: Enrolled) -> None:
    ledger, counted = enrolled.ledger, Counted()
    ids = ledger.running(4)
    ledger.stop(ids[0])
    ledger.delete(ids[1])
    ledger.settle()

    assert ledger.instance(ids[0]).vm_state is VmState.STOPPED
    assert ledger.instance(ids[1]).deleted
    assert counted() == {}
    require_nothing_leaked(ledger)


def test_a_report_that_nobody_signed_is_refused(enrolled: Enrolled) -> None:
    instance_id = being_stopped(enrolled)

    assert refused(enrolled, encode_report(outcome_of(enrolled.ledger, "alpha", instance_id))) == {"unsigned": 1}


def test_a_report_of_a_host_nobody_enrolled_is_refused(enrolled: Enrolled) -> None:
    instance_id = being_stopped(enrolled)
    stranger = replace(
        enrolled.credentials["alpha"], service_id=ServiceId(UUID(int=7)), key=Ed25519PrivateKey.generate()
    )
    report = outcome_of(enrolled.ledger, "alpha", instance_id)

    assert refused(enrolled, enrolled.report(report, stranger)) == {"unknown_host": 1}


def test_a_report_signed_with_a_revoked_key_is_refused_until_there_is_another(enrolled: Enrolled) -> None:
    ledger = enrolled.ledger
    instance_id = being_stopped(enrolled)
    enrollment.revoke(ledger.storage, "alpha")
    ledger.clock.advance(1)
    report = outcome_of(ledger, "alpha", instance_id)
    assert refused(enrolled, enrolled.report(report, "alpha")) == {"revoked": 1}

    again = enroll(ledger, "alpha")
    ledger.clock.advance(1)
    enrolled.send(enrolled.report(report, again))
    ledger.settle()
    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_report_signed_with_a_key_that_was_replaced_is_refused(enrolled: Enrolled) -> None:
    instance_id = being_stopped(enrolled)
    enroll(enrolled.ledger, "alpha")
    enrolled.ledger.clock.advance(1)
    report = outcome_of(enrolled.ledger, "alpha", instance_id)

    assert refused(enrolled, enrolled.report(report, "alpha")) == {"bad_signature": 1}


def test_another_hosts_key_proves_nothing(enrolled: Enrolled) -> None:
    instance_id = being_stopped(enrolled)
    alpha, beta = enrolled.credentials["alpha"], enrolled.credentials["beta"]
    report = outcome_of(enrolled.ledger, "alpha", instance_id)

    assert refused(enrolled, enrolled.report(report, replace(alpha, key=beta.key))) == {"bad_signature": 1}


def test_a_host_speaks_for_itself_only(enrolled: Enrolled) -> None:
    """Signed by beta, in beta's name, but about what alpha did."""
    ledger, beta = enrolled.ledger, enrolled.credentials["beta"]
    instance_id = being_stopped(enrolled)
    report = outcome_of(ledger, "alpha", instance_id)
    session = next(r for _, r in sent(ledger) if isinstance(r, HostReport) and r.host == "alpha")

    assert refused(
        enrolled,
        enrolled.report(report, beta),
        enrolled.report(replace(report, service_id=beta.service_id), beta),
        enrolled.report(replace(report, host=HostName("beta")), beta),
        enrolled.report(session, beta),
        enrolled.report(replace(session, epoch=99, service_id=beta.service_id), beta),
        enrolled.report(replace(session, epoch=99, service_id=beta.service_id, host=HostName("beta")), beta),
    ) == {"not_yours": 6}


def test_a_host_does_not_report_on_guests_that_were_never_its_own(enrolled: Enrolled) -> None:
    ledger, beta = enrolled.ledger, enrolled.credentials["beta"]
    instance_id = being_stopped(enrolled)
    report = replace(outcome_of(ledger, "beta", instance_id), service_id=beta.service_id)
    seen = ObservationReport(
        report_id="made up",
        service_id=beta.service_id,
        host=HostName("beta"),
        sequence=1,
        instance_id=instance_id,
        generation=100,
        power_state=PowerState.CRASHED,
    )
    nobodys = replace(report, report_id="another", instance_id=InstanceId(UUID(int=5)))

    values = [enrolled.report(one, beta) for one in (report, seen, nobodys)]
    assert refused(enrolled, *values) == {"not_yours": 3}


def test_a_report_id_that_another_host_uses_takes_nothing_from_it(enrolled: Enrolled) -> None:
    """Reports are recognised by host and id: a host that guesses another's ids keeps none of its reports out."""
    ledger = enrolled.ledger
    [of_alpha] = ledger.running(requested_host="alpha")
    [of_beta] = ledger.running(requested_host="beta")
    for one in (of_alpha, of_beta):
        ledger.stop(one)
    ledger.hosts["alpha"].paused = ledger.hosts["beta"].paused = True
    theirs = outcome_of(ledger, "alpha", of_alpha)
    enrolled.send(enrolled.report(replace(outcome_of(ledger, "beta", of_beta), report_id=theirs.report_id), "beta"))
    ledger.settle()

    enrolled.send(enrolled.report(theirs, "alpha"))
    ledger.settle()

    assert ledger.instance(of_alpha).vm_state is ledger.instance(of_beta).vm_state is VmState.STOPPED


def test_a_report_that_is_sent_again_says_nothing_more(enrolled: Enrolled) -> None:
    ledger = enrolled.ledger
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()
    old = sent(ledger)
    ledger.start(instance_id)
    ledger.settle()

    outcomes = sum(isinstance(report, OutcomeReport) for _, report in old)
    assert refused(enrolled, *(value for value, _ in old)) == {"repeated": outcomes}
    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE


def test_a_report_about_what_is_settled_is_superseded(enrolled: Enrolled) -> None:
    ledger = enrolled.ledger
    [instance_id] = ledger.running(requested_host="alpha")

    report = replace(outcome_of(ledger, "alpha", instance_id), task_revision=1)
    assert refused(enrolled, enrolled.report(report, "alpha")) == {"superseded": 1}


def test_what_is_no_report_at_all_stops_nobody(enrolled: Enrolled) -> None:
    good = enrolled.report(outcome_of(enrolled.ledger, "alpha", being_stopped(enrolled)), "alpha")
    values = [b"", b"\xff", b"[]", b'{"signature": 7}', good[:-5], good.replace(b'"service":"', b'"service":"x')]

    assert refused(enrolled, *values) == {"unsigned": 1, "undecodable": 5}

    enrolled.send(good)
    counted = Counted()
    enrolled.ledger.settle()
    assert counted() == {}


def test_a_host_that_signs_nonsense_stops_nobody(enrolled: Enrolled) -> None:
    from commands.log.signed import REPORT, seal

    values = [seal(REPORT, enrolled.credentials["beta"], body) for body in (b"nonsense", b"{}", b'{"type":[]}')]

    assert refused(enrolled, *values) == {"undecodable": 3}
    assert enrolled.ledger.running()


def test_a_flood_of_refused_reports_is_one_line(enrolled: Enrolled, caplog: pytest.LogCaptureFixture) -> None:
    report = encode_report(outcome_of(enrolled.ledger, "alpha", being_stopped(enrolled)))
    caplog.set_level(logging.INFO)
    caplog.clear()

    assert refused(enrolled, *[report] * 500) == {"unsigned": 500}

    assert len([r for r in caplog.records if "unsigned" in r.getMessage()]) == 1
