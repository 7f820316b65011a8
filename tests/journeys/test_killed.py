"""Killed at any point and started again: what was accepted is finished, nothing is lost, leaked or made twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import libvirt
import pytest

from hostagent.drivers.fake_controls import creates, history, ran_twice
from tests.support.http_client import SETTLED, User, server_body
from tests.support.hypervisors import eventually, private_libvirtd, why_no_libvirtd
from tests.support.ledger_process import LedgerProcess

SERVERS = 50
CLIENTS = 8
HOSTS = 2
SETTLED_WITHIN_S = 120
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


@dataclass(frozen=True, slots=True)
class Cloud:
    ledger: LedgerProcess
    guests: Callable[[], Counter[str]]  # what the hypervisors hold: how often each server
    flavor: str
    image: str


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
        yield Cloud(ledger, lambda: fake_guests(ledger) if uri is None else libvirt_guests(uri), flavor, image)
    finally:
        ledger.close()


def fake_directories(ledger: LedgerProcess) -> list[Path]:
    return [ledger.host_directory(number + 1) / "fake" for number in range(HOSTS)]


def fake_guests(ledger: LedgerProcess) -> Counter[str]:
    """Made and not destroyed since, on each host."""
    held: Counter[str] = Counter()
    for directory in fake_directories(ledger):
        for entry in history(directory):
            held[str(entry.instance_id)] += {"create": 1, "destroy": -1}.get(entry.did, 0)
    return +held


def libvirt_guests(uri: str) -> Counter[str]:
    with closing(libvirt.open(uri)) as connection:
        names = [domain.name() for domain in connection.listAllDomains()]
    return Counter(name.removeprefix("instance-") for name in names if name.startswith("instance-"))


class Crowd:
    """Clients that create servers, or delete them, at the same time; what they were told is kept."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._working: list[Future[None]] = []
        self._lock = threading.Lock()
        self.accepted: list[str] = []  # ids of servers whose create was answered
        self.unanswered = 0
        self.deleted: list[str] = []  # ids of servers whose delete was answered

    def create(self, cloud: Cloud, servers: int) -> None:
        numbers = count()
        self._start(lambda: self._create_one(cloud, next(numbers)), servers)

    def delete(self, servers: list[str]) -> None:
        waiting = iter(servers)
        self._start(lambda: self._delete_one(next(waiting)), len(servers))

    def wait(self) -> None:
        for future in self._working:
            future.result()
        self._pool.shutdown()

    def _start(self, work: Callable[[], None], times: int) -> None:
        self._working += [self._pool.submit(work) for _ in range(times)]

    def _create_one(self, cloud: Cloud, number: int) -> None:
        body = server_body(cloud.image, cloud.flavor, f"server-{number}")
        answer = self._answer("POST", "/servers", body)
        with self._lock:
            if answer is None:
                self.unanswered += 1
            else:
                assert answer.status_code == 202, answer.text
                self.accepted.append(answer.json()["server"]["id"])

    def _delete_one(self, server: str) -> None:
        answer = self._answer("DELETE", f"/servers/{server}")
        with self._lock:
            if answer is None:
                self.unanswered += 1
            else:
                assert answer.status_code == 204, answer.text
                self.deleted.append(server)

    def _answer(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        try:
            return self._user(method, path, body)
        except httpx.TransportError:
            return None  # the ledger was killed meanwhile


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


def settled(user: User) -> dict[str, str]:
    """Every server's status, once nothing is being done to any of them."""
    seen: list[dict[str, Any]] = []

    def all_settled() -> bool:
        seen[:] = user.servers()
        return all(s["status"] in SETTLED and s["OS-EXT-STS:task_state"] is None for s in seen)

    eventually(all_settled, "every server is ACTIVE or ERROR", within_s=SETTLED_WITHIN_S)
    for server in seen:
        assert server["status"] == "ACTIVE" or server["fault"]["message"]
    return {server["id"]: server["status"] for server in seen}


def everything_agrees(cloud: Cloud, user: User, servers: dict[str, str]) -> None:
    """The API, the log, the claims, the quota and the hypervisors tell the same, and nothing was made twice."""
    on_hosts = {server for server, status in servers.items() if status == "ACTIVE"}
    eventually(lambda: cloud.guests() == Counter(on_hosts), "the hypervisors hold the servers, once each")
    told = Told(cloud.ledger.events())
    assert told.servers == set(servers)
    assert told.claims == on_hosts
    assert told.quota == len(servers)
    assert user.quota_use() == {"instances": len(servers), "cores": len(servers), "ram": 64 * len(servers)}
    with User(cloud.ledger, "admin", version="2.87") as admin:
        hypervisors = admin.get("/os-hypervisors/detail")["hypervisors"]
    assert sum(hypervisor["running_vms"] for hypervisor in hypervisors) == len(on_hosts)
    assert sum(hypervisor["vcpus_used"] for hypervisor in hypervisors) == len(on_hosts)
    if (fakes := fake_directories(cloud.ledger))[0].exists():
        assert {times for directory in fakes for times in creates(directory).values()} <= {1}
        assert ran_twice(fakes) == set()
    assert cloud.ledger.command("verify").stdout.endswith(", 0 wrong\n")


class Told:
    """What the events say, counted without any of the ledger's own code."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.servers: set[str] = set()
        self.claims: set[str] = set()
        self.quota = 0
        for recorded in events:
            event = recorded["event"]
            match recorded["type"]:
                case "instance.create_requested":
                    assert event["instance_id"] not in self.servers
                    self.servers.add(event["instance_id"])
                case "instance.deleted":
                    self.servers.remove(event["instance_id"])
                case "provider.claimed":
                    assert event["consumer_id"] not in self.claims
                    self.claims.add(event["consumer_id"])
                case "provider.released":
                    self.claims.remove(event["consumer_id"])
                case "quota.consumed":
                    self.quota += event["amounts"]["instances"]
                case "quota.released":
                    self.quota -= event["amounts"]["instances"]
