"""A host is up for as long as it says so itself: nobody else can, and no beat says it twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commands.log.port import HEARTBEATS
from commands.log.reports import Beat, encode_beat
from commands.log.signed import HEARTBEAT, seal
from commands.process_managers.deadlines import DeadlinesManager
from domain.identifiers import ServiceId
from gateway import enrollment
from tests.support.enrolled import Counted, Enrolled, enroll
from tests.support.ledger import Ledger


@pytest.fixture
def enrolled(two_hosts: Ledger) -> Enrolled:
    return Enrolled(two_hosts)


def turns(ledger: Ledger, host: str = "alpha") -> list[str]:
    service_id = ledger.hosts[host].agent.service_id
    events = [r for r in ledger.history() if r.type in ("service.came_up", "service.went_down")]
    return [r.type.removeprefix("service.") for r in events if r.event.service_id == service_id]


def silent_while(enrolled: Enrolled, beat: Callable[[int], bytes]) -> dict[str, int]:
    """Alpha is dead, and somebody beats in its place for two minutes: why it is down all the same."""
    ledger, counted = enrolled.ledger, Counted()
    ledger.hosts["alpha"].paused = True
    before = turns(ledger)
    for number in range(12):
        enrolled.send_beat(beat(number), key=str(enrolled.credentials["alpha"].service_id))
        ledger.pass_time(10)
    assert turns(ledger)[len(before) :] == ["went_down"]
    return counted()


def test_a_host_with_a_key_stays_up(enrolled: Enrolled) -> None:
    before = turns(enrolled.ledger)
    enrolled.ledger.pass_time(600)

    assert turns(enrolled.ledger) == before


def test_an_old_beat_keeps_no_dead_host_up(enrolled: Enrolled) -> None:
    enrolled.ledger.pass_time(62)
    [newest] = [
        r.value for r in enrolled.ledger.messages(HEARTBEATS) if r.key == str(enrolled.credentials["alpha"].service_id)
    ]
    assert newest is not None

    assert silent_while(enrolled, lambda _: newest) == {"repeated": 12}


def test_beats_of_this_session_that_are_older_than_the_last_count_no_more(enrolled: Enrolled) -> None:
    epoch = enrolled.ledger.hosts["alpha"].agent._session.epoch
    enrolled.send_beat(enrolled.beat("alpha", epoch, 1000))
    enrolled.ledger.pass_time(1)

    assert silent_while(enrolled, lambda n: enrolled.beat("alpha", epoch, n + 1)) == {"repeated": 12}


def test_a_second_machine_with_the_same_credential_keeps_no_dead_host_up(enrolled: Enrolled) -> None:
    """Both opened the same epoch; the session that was recorded is the one that counts."""
    epoch = enrolled.ledger.hosts["alpha"].agent._session.epoch

    assert silent_while(enrolled, lambda n: enrolled.beat("alpha", epoch, 1000 + n, "the copy")) == {"superseded": 12}


def test_a_second_machine_with_the_same_credential_silences_no_host(enrolled: Enrolled) -> None:
    """Its beats may be far ahead of those of the one that counts."""
    ledger, before = enrolled.ledger, turns(enrolled.ledger)
    epoch = ledger.hosts["alpha"].agent._session.epoch
    for number in range(12):
        enrolled.send_beat(enrolled.beat("alpha", epoch, 1000 + number, "the copy"))
        ledger.pass_time(10)

    assert turns(ledger) == before


def test_a_session_that_is_not_recorded_keeps_no_dead_host_up(enrolled: Enrolled) -> None:
    """It may be one that is refused: its agent takes none of the orders that are given."""
    epoch = enrolled.ledger.hosts["alpha"].agent._session.epoch

    assert silent_while(enrolled, lambda n: enrolled.beat("alpha", epoch + 1, n + 1)) == {"superseded": 12}


def test_a_beat_of_a_session_to_come_silences_no_host(enrolled: Enrolled) -> None:
    """Nor after the key that it was signed with is another's."""
    ledger, host = enrolled.ledger, enrolled.ledger.hosts["alpha"]
    before = turns(ledger)
    enrolled.send_beat(enrolled.beat("alpha", 10**9, 10**9))
    ledger.pass_time(120)
    assert turns(ledger) == before
    host.signer = enrolled.credentials["alpha"] = enroll(ledger, "alpha")
    host.restart()
    ledger.pass_time(240)

    assert turns(ledger)[-1] == "came_up"


def test_what_another_said_of_a_session_before_it_was_recorded_silences_no_host(enrolled: Enrolled) -> None:
    ledger, host = enrolled.ledger, enrolled.ledger.hosts["alpha"]
    enrolled.send_beat(enrolled.beat("alpha", host.agent._session.epoch + 1, 1000, "the copy"))
    ledger.pass_time(5)
    host.restart()
    ledger.pass_time(10)
    before = turns(ledger)
    ledger.pass_time(120)

    assert turns(ledger) == before


@pytest.mark.parametrize("known", ["only to the ledger", "only to the agent"])
def test_a_session_that_has_no_id_yet_counts_by_its_epoch(enrolled: Enrolled, known: str) -> None:
    """An agent, or a record, from before sessions had ids."""
    ledger = enrolled.ledger
    agent = ledger.hosts["alpha"].agent
    epoch, session = agent._session.epoch, agent._session.id
    if known == "only to the agent":
        deadlines = ledger.parts["deadlines"]
        assert isinstance(deadlines, DeadlinesManager)
        deadlines._sessions[agent.service_id] = replace(deadlines._sessions[agent.service_id], id="")
    ledger.hosts["alpha"].paused = True
    before = turns(ledger)
    for number in range(12):
        beats_as = session if known == "only to the agent" else ""
        enrolled.send_beat(enrolled.beat("alpha", epoch, 1000 + number, beats_as))
        ledger.pass_time(10)

    assert turns(ledger) == before


def test_nobody_beats_for_another(enrolled: Enrolled) -> None:
    alpha, beta = enrolled.credentials["alpha"], enrolled.credentials["beta"]

    def of_beta(number: int) -> bytes:
        beat = Beat(service_id=alpha.service_id, epoch=2, sequence=1000 + number)
        return seal(HEARTBEAT, beta, encode_beat(beat))

    assert silent_while(enrolled, of_beta) == {"not_yours": 12}


def test_another_hosts_key_keeps_nobody_up(enrolled: Enrolled) -> None:
    alpha, beta = enrolled.credentials["alpha"], enrolled.credentials["beta"]
    forged = replace(alpha, key=beta.key)

    assert silent_while(enrolled, lambda n: enrolled.beat(forged, 2, 1000 + n)) == {"bad_signature": 12}


def test_a_beat_that_nobody_signed_keeps_nobody_up(enrolled: Enrolled) -> None:
    alpha = enrolled.credentials["alpha"].service_id

    assert silent_while(enrolled, lambda n: encode_beat(Beat(service_id=alpha, epoch=2, sequence=1000 + n))) == {
        "unsigned": 12
    }


def test_a_host_whose_key_was_revoked_is_soon_down(enrolled: Enrolled) -> None:
    ledger, counted = enrolled.ledger, Counted()
    before = turns(ledger)
    enrollment.revoke(ledger.storage, "alpha")

    ledger.pass_time(120)

    assert turns(ledger)[len(before) :] == ["went_down"]
    assert set(counted()) == {"revoked"} or set(counted()) == {"revoked", "repeated"}


@pytest.mark.parametrize("value", [b"", b"17", b"[]", b"\xff", b'{"service_id": 1, "epoch": 1, "sequence": 1}'])
def test_what_is_no_beat_stops_no_other(enrolled: Enrolled, value: bytes) -> None:
    before = turns(enrolled.ledger)
    for _ in range(12):
        enrolled.send_beat(value, key="not a uuid")
        enrolled.ledger.pass_time(10)

    assert turns(enrolled.ledger) == before
    assert turns(enrolled.ledger, "beta").count("went_down") == 0


def test_a_stranger_with_a_key_of_its_own_is_nobody(enrolled: Enrolled) -> None:
    stranger = replace(
        enrolled.credentials["alpha"], service_id=ServiceId(UUID(int=7)), key=Ed25519PrivateKey.generate()
    )
    counted = Counted()
    enrolled.send_beat(enrolled.beat(stranger, 1, 1))
    enrolled.ledger.pass_time(2)

    assert counted()["unknown_host"] == 1


def test_without_keys_beats_are_plain(ledger: Ledger) -> None:
    [beat] = ledger.messages(HEARTBEATS)

    assert orjson.loads(beat.value or b"").keys() == {"service_id", "epoch", "sequence", "session"}
