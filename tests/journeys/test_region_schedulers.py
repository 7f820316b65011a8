"""Two schedulers that are active at once, by mistake or on purpose: room is given away once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.crowd import SETTLED_WITHIN_S, settled
from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.region import RegionLedger, running_region

HOSTS = 3
SERVERS = 50
SETTINGS = """\
[DEFAULT]
cpu_allocation_ratio = 1.0
reserved_host_memory_mb = 0

[fake]
vcpus = 1
memory_mib = 4096

[roles]
stand_by = false

[quota]
instances = -1
cores = -1
ram = -1
"""


@pytest.fixture(scope="module")
def full() -> Iterator[RegionLedger]:
    """Three hosts with one free slot each."""
    with running_region(hosts=HOSTS, settings=SETTINGS) as ledger:
        yield ledger


def test_three_slots_fifty_creates_two_schedulers(full: RegionLedger) -> None:
    both = [full.part(f"managers-{copy}") for copy in "ab"]
    eventually(lambda: all("build is active" in part.logged() for part in both), "both schedule", within_s=60)
    at = [User(full, url=gateway.url) for gateway in full.gateways]
    with User(full, "admin") as admin:
        flavor = admin.create_flavor("one-slot", vcpus=1, ram=512)
    image = at[0].upload_image()

    with ThreadPoolExecutor(SERVERS) as clients:
        made = list(clients.map(lambda n: at[n % 2].create_server(image, flavor, f"server-{n}"), range(SERVERS)))

    servers = settled(at[1])  # and every POST was a 202
    assert servers.keys() == set(made)
    assert Counter(servers.values()) == {"ACTIVE": HOSTS, "ERROR": SERVERS - HOSTS}
    for server in at[0].servers(status="ERROR"):
        assert "No valid host was found." in server["fault"]["message"]
    assert over_full(full.events()) == []
    slots = [server["OS-EXT-SRV-ATTR:host"] for server in admin_servers(full) if server["status"] == "ACTIVE"]
    assert sorted(slots) == [f"host-{number}" for number in range(1, HOSTS + 1)]


def test_room_that_comes_free_is_given_away_once_more(full: RegionLedger) -> None:
    with User(full) as user:
        server = next(s for s in user.servers() if s["status"] == "ACTIVE")
        user.delete_server(server["id"])
        user.wait_until_gone(server["id"])
        image = server["image"]["id"]
        again = [user.create_server(image, "one-slot") for _ in range(3)]
        found = Counter(user.wait_for(one, "ACTIVE", "ERROR", within_s=SETTLED_WITHIN_S)["status"] for one in again)
    assert found == {"ACTIVE": 1, "ERROR": 2}
    assert over_full(full.events()) == []


def admin_servers(ledger: RegionLedger) -> list[dict[str, Any]]:
    with User(ledger, "admin") as admin:
        return admin.servers(all_tenants="1")


def over_full(events: list[dict[str, Any]]) -> list[int]:
    """Positions of claims that raised use above what there is, told from the events alone."""
    capacity: dict[tuple[str, str], float] = {}
    used: dict[tuple[str, str], int] = defaultdict(int)
    claims: dict[str, Any] = {}
    found = []
    for recorded in events:
        event = recorded["event"]
        match recorded["type"]:
            case "provider.inventory_set":
                for name, inventory in event["inventories"].items():
                    free = inventory["total"] - inventory["reserved"]
                    capacity[event["provider_id"], name] = free * inventory["allocation_ratio"]
            case "provider.claimed":
                claims[event["consumer_id"]] = event["amounts"]
                for provider, amounts in event["amounts"].items():
                    for name, amount in amounts.items():
                        used[provider, name] += amount
                        if used[provider, name] > capacity[provider, name]:
                            found.append(recorded["position"])
            case "provider.released":
                for provider, amounts in claims.pop(event["consumer_id"]).items():
                    for name, amount in amounts.items():
                        used[provider, name] -= amount
    return found
