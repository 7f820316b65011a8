"""What is measured of a running ledger, as its clients see it; each measure shows lines of the table."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter
from typing import Any, Protocol

from tests.benchmarks.clients import SEEN_EVERY_S, SERVERS, Client, wait_until
from tests.benchmarks.deployments import Running
from tests.benchmarks.processes import busy_s, cpu_by_role, memory_mib, yardstick_s
from tests.benchmarks.table import percentiles

CLIENTS = 16
ROUNDS = 3
ALONE = 100
NOT_COUNTED = 10
SHOWN = 1000
REST_S = 5.0
DELETED = 200
ACTIONS: tuple[Mapping[str, Any], ...] = ({"os-stop": None}, {"os-start": None}, {"reboot": {"type": "HARD"}})


class Show(Protocol):
    def __call__(self, what: str, value: str, aim: str = "") -> None: ...


def start(running: Running, show: Show) -> None:
    show("start to ready", f"{running.ready_s:.1f} s")
    if running.beside_s:
        show("  of that, PostgreSQL and Kafka, made anew", f"{running.beside_s:.1f} s")


def memory(running: Running, show: Show) -> None:
    mib = {role: [memory_mib(pid) for pid in pids] for role, pids in running.processes.items()}
    show("memory when ready", f"{sum(map(sum, mib.values())):,.0f} MiB")
    if len(mib) > 1:
        for role, each in mib.items():
            show(
                f"  memory of {role}{', each' if len(each) > 1 else ''}",
                " + ".join(f"{one:.0f}" for one in each) + " MiB",
            )


def memory_at_the_end(running: Running, show: Show) -> None:
    mib = sum(memory_mib(pid) for pids in running.processes.values() for pid in pids)
    show("memory at the end", f"{mib:,.0f} MiB")


def at_rest(running: Running, show: Show) -> None:
    before = sum(cpu_by_role(running.processes).values())
    time.sleep(REST_S)
    used = (sum(cpu_by_role(running.processes).values()) - before) / REST_S
    show("CPU at rest", f"{used:.2f} cores")


@dataclass(frozen=True, slots=True)
class Boot:
    """When what was seen of one server, by the clock of the machine."""

    stream: str
    asked: float
    answered: float
    active: float


def one_at_a_time(running: Running, show: Show) -> None:
    """The first few are not counted: connections open, caches fill."""
    after = running.ledger.position()
    clients = [running.cloud.client(number) for number in range(running.cloud.gateways)]
    cpu = sum(cpu_by_role(running.processes).values())
    boots = [_boot(running, clients[n % len(clients)], f"alone-{n}") for n in range(NOT_COUNTED + ALONE)][NOT_COUNTED:]
    show("POST answered, one at a time", percentiles([boot.answered - boot.asked for boot in boots]))
    show("POST to ACTIVE, one at a time", percentiles([boot.active - boot.asked for boot in boots]), "50 ms")
    used = sum(cpu_by_role(running.processes).values()) - cpu
    hops: dict[str, list[float]] = {}
    recorded = _times(running, after)
    for boot in boots:
        began = recorded[boot.stream]
        appended, scheduled, spawned = (
            began[f"instance.{what}"] for what in ("create_requested", "scheduled", "spawned")
        )
        hops.setdefault("POST to append", []).append(appended - boot.asked)
        hops.setdefault("append to scheduled", []).append(scheduled - appended)
        hops.setdefault("scheduled to spawned", []).append(spawned - scheduled)
        hops.setdefault("spawned to seen by GET", []).append(boot.active - spawned)
    for hop, took in hops.items():
        show(f"  {hop}", percentiles(took))
    show("CPU a server, one at a time", f"{used / (NOT_COUNTED + ALONE) * 1000:.1f} ms")


def _boot(running: Running, client: Client, name: str) -> Boot:
    asked = time.time()
    server = running.cloud.create(client, name)
    answered = time.time()
    while (status := client.get(f"{SERVERS}/{server}")["server"]["status"]) != "ACTIVE":
        if status == "ERROR":
            raise RuntimeError(f"server {server} is in ERROR")
        time.sleep(SEEN_EVERY_S)
    return Boot(f"instance:{server}", asked, answered, time.time())


def _times(running: Running, after: int) -> dict[str, dict[str, float]]:
    """By stream and type, when an event was recorded: its transaction had begun then."""
    found: dict[str, dict[str, float]] = {}
    for event in running.ledger.events(after=after):
        found.setdefault(event["stream"], {})[event["type"]] = datetime.fromisoformat(event["time"]).timestamp()
    return found


def many_clients(running: Running, show: Show, count: int) -> None:
    answered: list[float] = []
    took: list[float] = []

    def one(client: Client, name: str) -> None:
        began = perf_counter()
        running.cloud.create(client, name)
        answered.append(perf_counter() - began)

    yardstick = yardstick_s()
    cpu, own, busy = cpu_by_role(running.processes), time.process_time(), busy_s()
    for number in range(ROUNDS):
        began = perf_counter()
        running.cloud.side_by_side(CLIENTS, one, [f"many-{number}-{n}" for n in range(count)])
        running.cloud.settle()
        took.append(perf_counter() - began)
    used = {role: after - cpu[role] for role, after in cpu_by_role(running.processes).items()}
    own = time.process_time() - own
    others = busy_s() - busy - own - sum(used.values())
    yardstick = (yardstick + yardstick_s()) / 2

    def each(seconds: float) -> str:
        return f"{seconds / count / ROUNDS * 1000:.1f} ms"

    rate = f"{count / statistics.median(took):.0f} ({count / max(took):.0f} to {count / min(took):.0f})"
    show(f"servers/s to ACTIVE, {CLIENTS} clients, {ROUNDS} × {count} servers", rate, "200")
    show(f"POST answered, {CLIENTS} clients", percentiles(answered))
    show(f"CPU a server, {CLIENTS} clients", each(sum(used.values())))
    if len(used) > 1:
        for role, seconds in used.items():
            show(f"  CPU of {role}", each(seconds))
    show("  beside it, the clients", each(own))
    show("  beside it, all else on the machine", f"{max(0.0, others / sum(took)):.1f} cores")
    show("  beside it, a fixed piece of work", f"{yardstick * 1000:.0f} ms")


def reads(running: Running, show: Show) -> None:
    client = running.cloud.client()
    have = len(client.get(f"{SERVERS}?limit={SHOWN}")["servers"])
    running.cloud.side_by_side(CLIENTS, running.cloud.create, [f"fill-{n}" for n in range(have, SHOWN)])
    running.cloud.settle()
    detail = _timed(lambda: client.expect(200, "GET", f"{SERVERS}/detail?limit={SHOWN}"), 30)
    show(f"detail of {SHOWN:,} servers", percentiles(detail), "15 ms")
    brief = _timed(lambda: client.expect(200, "GET", f"{SERVERS}?limit={SHOWN}"), 30)
    show(f"list of {SHOWN:,} servers", percentiles(brief))
    server = client.get(f"{SERVERS}?limit=1")["servers"][0]["id"]
    show("show", percentiles(_timed(lambda: client.expect(200, "GET", f"{SERVERS}/{server}"), 300)))


def deletes(running: Running, show: Show) -> None:
    """Until none of them is listed any more."""
    client = running.cloud.client()
    servers = [server["id"] for server in client.get(f"{SERVERS}?limit={DELETED}")["servers"]]

    def one(client: Client, server: str) -> None:
        client.expect(204, "DELETE", f"{SERVERS}/{server}")

    began = perf_counter()
    running.cloud.side_by_side(CLIENTS, one, servers)
    wait_until(lambda: not {server["id"] for server in client.get(f"{SERVERS}?limit={SHOWN}")["servers"]} & {*servers})
    rate = len(servers) / (perf_counter() - began)
    show(f"deletes/s until gone, {CLIENTS} clients, {len(servers)} servers", f"{rate:.0f}")


def rebuild(running: Running, show: Show, events: int) -> None:
    """Of every view, from at least so many events, which are made by real power cycles."""
    client = running.cloud.client()
    servers = [server["id"] for server in client.get(f"{SERVERS}?limit={SHOWN}")["servers"]]

    def act(client: Client, asked: tuple[str, Mapping[str, Any]]) -> None:
        server, action = asked
        client.call("POST", f"{SERVERS}/{server}/action", action)  # those that are busy refuse

    while running.ledger.position() < events:
        for action in ACTIONS:
            running.cloud.side_by_side(CLIENTS, act, [(server, action) for server in servers])
    said = running.ledger.command("rebuild", "all").stdout
    took = [(int(applied), float(seconds)) for applied, seconds in re.findall(r"\w+: (\d+) events in ([\d.]+) s", said)]
    slowest = min(applied / seconds for applied, seconds in took)
    show("rebuild, the slowest view", f"{slowest:,.0f} events/s of {max(took)[0]:,}", "20,000")
    show("rebuild of every view, one after another", f"{sum(seconds for _, seconds in took):.1f} s")


def _timed(call: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = perf_counter()
        call()
        taken.append(perf_counter() - began)
    return taken
