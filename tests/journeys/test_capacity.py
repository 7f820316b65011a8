"""More servers than there is room for, asked for at once: as many as fit are made, and no host is ever over-full."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.http_client import SETTLED, User
from tests.support.hypervisors import eventually
from tests.support.ledger_process import LedgerProcess, running_ledger

HOSTS, SLOTS = 2, 40
SERVERS, CLIENTS = 100, 16
SETTINGS = f"""\
[DEFAULT]
cpu_allocation_ratio = 2.0
ram_allocation_ratio = 1.0
reserved_host_cpus = 2
reserved_host_memory_mb = 1024

[fake]
vcpus = {SLOTS // 2 + 2}
memory_mib = 65536
disk_gib = 1000
"""

Event = dict[str, Any]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    with running_ledger(tmp_path_factory.mktemp("capacity"), hosts=HOSTS, settings=SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def servers(ledger: LedgerProcess) -> list[dict[str, Any]]:
    """All of them, each asked for by one of many clients at once, and each settled."""
    with User(ledger, "admin") as admin, User(ledger) as user:
        flavor = admin.create_flavor("one-slot", vcpus=1, ram=512, disk=1)
        admin.set_quota(user.project_id, instances=-1, cores=-1, ram=-1)
        image = user.upload_image()
        with ThreadPoolExecutor(CLIENTS) as clients:
            made = list(clients.map(lambda n: user.create_server(image, flavor, f"server-{n}"), range(SERVERS)))
        assert len(set(made)) == SERVERS
        found: list[dict[str, Any]] = []

        def settled() -> bool:
            found[:] = user.servers()
            return all(server["status"] in SETTLED for server in found)

        eventually(settled, "every server is ACTIVE or ERROR", within_s=120)
        assert {server["id"] for server in found} == set(made)
        return found


def test_as_many_servers_run_as_there_are_slots(servers: list[dict[str, Any]]) -> None:
    assert Counter(server["status"] for server in servers) == {
        "ACTIVE": HOSTS * SLOTS,
        "ERROR": SERVERS - HOSTS * SLOTS,
    }


def test_both_hosts_are_full_and_neither_has_more(ledger: LedgerProcess, servers: list[dict[str, Any]]) -> None:
    with User(ledger, "admin", version="2.87") as admin:
        hypervisors = admin.get("/os-hypervisors/detail")["hypervisors"]
    assert [(h["running_vms"], h["vcpus_used"]) for h in hypervisors] == [(SLOTS, SLOTS)] * HOSTS


def test_the_others_say_which_filter_left_no_host(servers: list[dict[str, Any]]) -> None:
    for server in servers:
        if server["status"] == "ERROR":
            assert server["fault"]["code"] == 500
            assert "No valid host was found." in server["fault"]["message"]
            assert "CapacityFilter" in server["fault"]["message"]


def test_no_host_was_over_full_at_any_position(ledger: LedgerProcess, servers: list[dict[str, Any]]) -> None:
    capacity: dict[tuple[str, str], float] = {}
    used: dict[tuple[str, str], int] = defaultdict(int)
    claims = 0
    for recorded in ledger.events():
        event: Event = recorded["event"]
        match recorded["type"]:
            case "provider.inventory_set":
                for name, inventory in event["inventories"].items():
                    free = inventory["total"] - inventory["reserved"]
                    capacity[event["provider_id"], name] = free * inventory["allocation_ratio"]
            case "provider.claimed":
                claims += 1
                for provider, amounts in event["amounts"].items():
                    for name, amount in amounts.items():
                        used[provider, name] += amount
                        assert used[provider, name] <= capacity[provider, name], recorded["position"]
            case "provider.released":
                raise AssertionError("nothing was deleted, and nothing failed")
    assert claims == HOSTS * SLOTS
    assert {used[key] for key in used if key[1] == "VCPU"} == {SLOTS}


def test_deleting_one_makes_room_for_one(ledger: LedgerProcess, servers: list[dict[str, Any]]) -> None:
    running = next(server for server in servers if server["status"] == "ACTIVE")
    with User(ledger) as user:
        image, flavor = running["image"]["id"], "one-slot"
        user.delete_server(running["id"])
        user.wait_until_gone(running["id"])
        assert user.wait_for(user.create_server(image, flavor), *SETTLED)["status"] == "ACTIVE"
        assert user.wait_for(user.create_server(image, flavor), *SETTLED)["status"] == "ERROR"
