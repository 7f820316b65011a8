"""Killed at any point and started again: what was accepted is finished, nothing is lost, leaked or made twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import libvirt
import pytest

from tests.support.crowd import SETTLED_WITHIN_S, Cloud, Crowd, everything_agrees, fake_guests, settled
from tests.support.http_client import User
from tests.support.hypervisors import eventually, private_libvirtd, why_no_libvirtd
from tests.support.ledger_process import LedgerProcess

SERVERS = 50
HOSTS = 2
SETTINGS = """\
[quota]
instances = 1000
cores = 1000
ram = 1000000
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the story: so many events of a type have been recorded."""

    wire_name: str
    events: int

    def __str__(self) -> str:
        return f"{self.events}-{self.wire_name}"

    def reached(self, ledger: LedgerProcess) -> bool:
        return ledger.recorded(self.wire_name) >= self.events


DURING_ACCEPTS = (Moment("instance.create_requested", 1), Moment("instance.create_requested", 25))
DURING_SCHEDULING = (Moment("instance.scheduled", 5), Moment("instance.scheduled", 30))
DURING_SPAWNS = (Moment("instance.spawned", 1), Moment("instance.spawned", 35))
DURING_DELETES = (Moment("instance.delete_requested", 10), Moment("instance.deleted", 20))


@pytest.fixture(params=["fake", "test"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    """A ledger over two fake hosts, or over libvirt's test driver in a daemon that outlives the ledger."""
    if request.param == "fake":
        yield from _cloud(LedgerProcess(tmp_path, hosts=HOSTS, settings=SETTINGS), None)
        return
    if (reason := why_no_libvirtd()) is not None:
        pytest.skip(reason)
    with private_libvirtd() as daemon, closing(libvirt.open(daemon.test_uri)):  # its guests end with its last client
        uri = daemon.test_uri
        yield from _cloud(LedgerProcess(tmp_path, driver="test", libvirt_uri=uri, settings=SETTINGS), uri)


def _cloud(ledger: LedgerProcess, uri: str | None) -> Iterator[Cloud]:
    try:
        ledger.start()
        with User(ledger, "admin") as admin:
            flavor = admin.create_flavor("tiny")
        with User(ledger) as user:
            image = user.upload_image()
        guests = (lambda: fake_guests(ledger, HOSTS)) if uri is None else (lambda: libvirt_guests(uri))
        yield Cloud(ledger, HOSTS, guests, flavor, image)
    finally:
        ledger.close()


def libvirt_guests(uri: str) -> Counter[str]:
    with closing(libvirt.open(uri)) as connection:
        names = [domain.name() for domain in connection.listAllDomains()]
    return Counter(name.removeprefix("instance-") for name in names if name.startswith("instance-"))


@pytest.mark.parametrize("moment", [*DURING_ACCEPTS, *DURING_SCHEDULING, *DURING_SPAWNS], ids=str)
def test_killed_while_servers_are_made(cloud: Cloud, moment: Moment) -> None:
    user = User(cloud.ledger)
    crowd = Crowd(user)
    crowd.create(cloud, SERVERS)
    killed_at(cloud.ledger, moment)
    crowd.wait()
    again = started_again(cloud.ledger, user)
    servers = settled(again)
    assert set(crowd.accepted) <= set(servers)
    assert len(servers) <= len(crowd.accepted) + crowd.unanswered
    assert Counter(servers.values()).keys() <= {"ACTIVE"}  # there is room for all of them
    everything_agrees(cloud, again, servers)


@pytest.mark.parametrize("moment", DURING_DELETES, ids=str)
def test_killed_while_servers_are_deleted(cloud: Cloud, moment: Moment) -> None:
    user = User(cloud.ledger)
    crowd = Crowd(user)
    crowd.create(cloud, SERVERS)
    made = cloud.ledger
    eventually(lambda: made.recorded("instance.spawned") == SERVERS, "all servers are up", within_s=SETTLED_WITHIN_S)
    crowd.delete(list(crowd.accepted))
    killed_at(cloud.ledger, moment)
    crowd.wait()
    again = started_again(cloud.ledger, user)
    eventually(
        lambda: not set(crowd.deleted) & {server["id"] for server in again.servers()},
        "every accepted delete is done",
        within_s=SETTLED_WITHIN_S,
    )
    servers = settled(again)
    assert len(servers) <= SERVERS - len(crowd.deleted)
    everything_agrees(cloud, again, servers)


def killed_at(ledger: LedgerProcess, moment: Moment) -> None:
    eventually(lambda: moment.reached(ledger), f"{moment}", within_s=SETTLED_WITHIN_S)
    ledger.kill()


def started_again(ledger: LedgerProcess, before: User) -> User:
    """The same user, whose token and password are those of the killed process."""
    ledger.start()
    again = User(ledger)
    assert (again.user_id, again.project_id) == (before.user_id, before.project_id)
    again.token = before.token
    return again
