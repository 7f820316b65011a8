"""Many clients at once, what they were told, and whether everything agrees with it afterwards.

What is true is told from the events, the fake hypervisors' own histories and the API, without any of the ledger's code.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from hostagent.drivers.fake_controls import creates, history, ran_twice
from tests.support.http_client import SETTLED, User, server_body
from tests.support.hypervisors import eventually
from tests.support.ledger_process import LedgerProcess
from tests.support.region import RegionLedger

CLIENTS = 8
SETTLED_WITHIN_S = 180


@dataclass(frozen=True, slots=True)
class Cloud:
    ledger: LedgerProcess | RegionLedger
    hosts: int
    guests: Callable[[], Counter[str]]  # what the hypervisors hold: how often each server
    flavor: str
    image: str


def fake_directories(ledger: LedgerProcess | RegionLedger, hosts: int) -> list[Path]:
    return [ledger.host_directory(number + 1) / "fake" for number in range(hosts)]


def fake_guests(ledger: LedgerProcess | RegionLedger, hosts: int) -> Counter[str]:
    """Made and not destroyed since, on each host."""
    held: Counter[str] = Counter()
    for directory in fake_directories(ledger, hosts):
        for entry in history(directory):
            held[str(entry.instance_id)] += {"create": 1, "destroy": -1}.get(entry.did, 0)
    return +held


class Crowd:
    """Clients that create servers, or delete them, at the same time; what they were told is kept."""

    def __init__(self, *users: User) -> None:
        """They take turns; each may reach another gateway."""
        self._users = users
        self._turns = count()
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._working: list[Future[None]] = []
        self._lock = threading.Lock()
        self.accepted: list[str] = []  # ids of servers whose create was answered
        self.unanswered = 0
        self.asked_again = 0
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
        """The answer; None when the ledger was killed before it came. A 503 says that nothing happened: asked again."""
        while True:
            user = self._users[next(self._turns) % len(self._users)]
            try:
                answer = user(method, path, body)
            except httpx.TransportError:
                return None
            if answer.status_code != 503:
                return answer
            self.asked_again += 1


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
    if (fakes := fake_directories(cloud.ledger, cloud.hosts))[0].exists():
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
