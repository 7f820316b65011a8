"""Enrolling a host: a key made once, for the machine it is for, and for the host that it is."""

from __future__ import annotations

from datetime import datetime

import orjson
import pytest

from commands.known_hosts import find_host
from commands.snapshots import Snapshots
from domain.errors import HostNameInvalid, HostNotEnrolled
from domain.identifiers import HostName
from gateway import enrollment
from gateway.faults import status_of
from hostagent.journal import Journal
from tests.support.enrolled import Enrolled, enroll
from tests.support.ledger import Ledger


def listed(ledger: Ledger) -> list[tuple[str, str, str]]:
    lines = [orjson.loads(line) for line in enrollment.listing(ledger.storage)]
    return [(line["host"], line["key"], line["state"]) for line in lines]


def test_a_host_that_runs_is_given_a_key_as_the_host_that_it_is(ledger: Ledger) -> None:
    host = ledger.hosts["alpha"]
    credential = enroll(ledger, "alpha")

    assert (credential.service_id, credential.node_id) == (host.agent.service_id, host.agent.node_id)
    assert (credential.epoch, credential.incarnation) == (1, ledger.store.incarnation)


def test_a_new_host_is_the_same_one_however_often_it_is_enrolled(ledger: Ledger) -> None:
    first, second = enroll(ledger, "gamma"), enroll(ledger, "gamma")

    assert (first.service_id, first.node_id, first.epoch) == (second.service_id, second.node_id, 0)
    assert first.public_key != second.public_key


def test_a_machine_that_lost_its_disk_is_its_host_again(two_hosts: Ledger) -> None:
    enrolled = Enrolled(two_hosts)
    host = two_hosts.hosts["alpha"]
    host.kill()
    for left in host.directory.glob("journal.db*"):
        left.unlink()
    host.signer = credential = enroll(two_hosts, "alpha")
    two_hosts.clock.advance(1)
    journal = Journal(host.directory / "journal.db")
    credential.take_up(journal)
    journal.close()
    host.agent = host._start()
    two_hosts.settle()
    two_hosts.pass_time(20)

    known = find_host(two_hosts.store, Snapshots(two_hosts.vault), two_hosts.records, HostName("alpha"))
    assert known is not None
    assert known.service is not None
    assert (known.service_id, known.service.up, known.epoch) == (enrolled.credentials["alpha"].service_id, True, 3)
    assert two_hosts.running(requested_host="alpha")


def test_hosts_with_keys_are_listed(two_hosts: Ledger) -> None:
    assert listed(two_hosts) == []
    enroll(two_hosts, "beta")
    enroll(two_hosts, "gamma")
    enroll(two_hosts, "delta")
    enrollment.revoke(two_hosts.storage, "delta")

    assert listed(two_hosts) == [
        ("beta", "enrolled", "up"),
        ("delta", "revoked", "never seen"),
        ("gamma", "enrolled", "never seen"),
    ]


def test_of_a_host_it_is_told_since_when_it_is_up_or_down(ledger: Ledger) -> None:
    enroll(ledger, "alpha")

    def told() -> tuple[str, datetime, int]:
        (line,) = (orjson.loads(line) for line in enrollment.listing(ledger.storage))
        return line["state"], datetime.fromisoformat(line["since"]), line["epoch"]

    def recorded(wire_name: str) -> datetime:
        return [event.time for event in ledger.log.events(0, 10_000) if event.type == wire_name][-1]

    assert told() == ("up", recorded("service.came_up"), 1)
    ledger.hosts["alpha"].paused = True
    ledger.pass_time(120)
    assert told() == ("down", recorded("service.went_down"), 1)
    assert recorded("service.went_down") > recorded("service.came_up")


@pytest.mark.parametrize("name", ["alpha", "nobody"])
def test_a_host_without_a_key_cannot_be_revoked(ledger: Ledger, name: str) -> None:
    with pytest.raises(HostNotEnrolled) as refused:
        enrollment.revoke(ledger.storage, name)
    assert status_of(refused.value) == 404


def test_a_name_that_is_none_is_refused(ledger: Ledger) -> None:
    with pytest.raises(HostNameInvalid):
        enrollment.enroll(ledger.storage, "not a name")


def test_the_private_key_is_nowhere_in_the_ledger(ledger: Ledger) -> None:
    secret = orjson.loads(enrollment.enroll(ledger.storage, "alpha"))["private_key"]

    content = b"".join(path.read_bytes() for path in ledger.directory.glob("*.db*"))
    assert b"host_key.enrolled" in content
    assert secret.encode() not in content


def test_a_host_with_a_key_does_all_its_work_with_it(two_hosts: Ledger) -> None:
    Enrolled(two_hosts)
    ids = two_hosts.running(4)
    for instance_id in ids:
        two_hosts.delete(instance_id)
    two_hosts.settle()

    assert all(two_hosts.instance(i).deleted for i in ids)
