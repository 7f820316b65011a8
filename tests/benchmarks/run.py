"""Measures a ledger from outside, as its clients see it, and prints a table. Asserts nothing about time.

    python -m tests.benchmarks.run [--drivers fake,test] [--servers 400] [--events 100000]

Each driver gets a fresh directory and a process of its own; the clients run in this one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CLIENTS = 16
VERSION = {"OpenStack-API-Version": "compute 2.100"}
CONFIG = """\
[DEFAULT]
cpu_allocation_ratio = 1000
ram_allocation_ratio = 1000
disk_allocation_ratio = 1000
[quota]
instances = -1
cores = -1
ram = -1
"""


@dataclass
class Table:
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, what: str, value: str, aim: str = "") -> None:
        self.rows.append((what, value, aim))
        print(f"  {what}: {value}" + (f"   (aim {aim})" if aim else ""), flush=True)

    def show(self, title: str) -> None:
        widths = [max(len(row[column]) for row in self.rows) for column in range(3)]
        print(f"\n{title}")
        for row in self.rows:
            print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        print()


class Client:
    """One keep-alive connection with a token."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self.headers = {"Content-Type": "application/json", **VERSION}
        if token is not None:
            self.headers["X-Auth-Token"] = token

    def call(self, method: str, path: str, body: object = None) -> tuple[int, bytes, http.client.HTTPMessage]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = (
            self.headers
            if not isinstance(body, bytes)
            else {**self.headers, "Content-Type": "application/octet-stream"}
        )
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        return response.status, response.read(), response.headers

    def expect(self, status: int, method: str, path: str, body: object = None) -> bytes:
        got, content, _ = self.call(method, path, body)
        if got != status:
            raise RuntimeError(f"{method} {path}: {got} {content[:300]!r}")
        return content


@dataclass
class Ledger:
    url: str
    directory: Path
    process: subprocess.Popen[str]
    ready_s: float
    token: str = ""
    flavor: str = ""
    image: str = ""

    def client(self) -> Client:
        return Client(self.url, self.token)

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def ledger(driver: str, *, hosts: int = 2, extra: tuple[str, ...] = ()) -> Iterator[Ledger]:
    directory = Path(tempfile.mkdtemp(prefix="compute-ledger-bench-"))
    config = directory / "bench.conf"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "gateway.cli", "up", "--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
    command += ["--driver", driver, "--hosts", str(hosts), "--config-file", str(config), *extra]
    started = time.perf_counter()
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError(f"the ledger did not start: {(directory / 'log').read_text()[-2000:]}")
        running = Ledger(line.split()[1], directory / "data", process, time.perf_counter() - started)
        log_in(running)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def log_in(running: Ledger) -> None:
    clouds = (running.directory / "clouds.yaml").read_text()
    password = re.findall(r"username: admin\s+password: \"(.+)\"", clouds)[0]
    user = {"name": "admin", "domain": {"name": "Default"}, "password": password}
    scope = {"project": {"name": "admin", "domain": {"name": "Default"}}}
    auth = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    status, content, headers = Client(running.url).call("POST", "/identity/v3/auth/tokens", auth)
    if status != 201:
        raise RuntimeError(f"log-in: {status} {content!r}")
    running.token = headers["X-Subject-Token"]
    client = running.client()
    image = {"name": "bench", "disk_format": "raw", "container_format": "bare"}
    running.image = json.loads(client.expect(201, "POST", "/image/v2/images", image))["id"]
    client.expect(204, "PUT", f"/image/v2/images/{running.image}/file", b"\0" * 4096)
    flavor = {"flavor": {"name": "bench", "ram": 64, "vcpus": 1, "disk": 1}}
    running.flavor = json.loads(client.expect(200, "POST", "/compute/v2.1/flavors", flavor))["flavor"]["id"]


def create(running: Ledger, client: Client, name: str) -> str:
    server = {"name": name, "imageRef": running.image, "flavorRef": running.flavor, "networks": "auto"}
    answer = client.expect(202, "POST", "/compute/v2.1/servers", {"server": server})
    identifier: str = json.loads(answer)["server"]["id"]
    return identifier


def one_at_a_time(running: Ledger, table: Table, count: int) -> None:
    client = running.client()
    accepted, active = [], []
    for number in range(count + 10):
        started = time.perf_counter()
        identifier = create(running, client, f"one-{number}")
        accepted.append(time.perf_counter() - started)
        while True:
            content = client.expect(200, "GET", f"/compute/v2.1/servers/{identifier}")
            status = json.loads(content)["server"]["status"]
            if status == "ACTIVE":
                break
            if status == "ERROR":
                raise RuntimeError(content.decode())
        active.append(time.perf_counter() - started)
    table.add("POST answered, one at a time, p50 / p99", percentiles(accepted[10:]))
    table.add("POST to ACTIVE, one at a time, p50 / p99", percentiles(active[10:]), "50 ms")


def many_clients(running: Ledger, table: Table, count: int) -> None:
    local = threading.local()
    cpu = running.cpu_s()

    def one(number: int) -> float:
        if not hasattr(local, "client"):
            local.client = running.client()
        started = time.perf_counter()
        create(running, local.client, f"many-{number}")
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        answered = list(pool.map(one, range(count)))
    client = running.client()
    while json.loads(client.expect(200, "GET", "/compute/v2.1/servers?status=BUILD&limit=1"))["servers"]:
        pass
    elapsed = time.perf_counter() - started
    errors = json.loads(client.expect(200, "GET", "/compute/v2.1/servers?status=ERROR"))["servers"]
    if errors:
        raise RuntimeError(f"{len(errors)} servers are in ERROR")
    table.add(f"servers/s to ACTIVE, {CLIENTS} clients, {count} servers", f"{count / elapsed:.0f}", "200")
    table.add(f"POST answered, {CLIENTS} clients, p50 / p99", percentiles(answered))
    table.add("CPU of the process a server", f"{(running.cpu_s() - cpu) / count * 1000:.1f} ms")


def lists(running: Ledger, table: Table) -> None:
    client = running.client()
    have = len(json.loads(client.expect(200, "GET", "/compute/v2.1/servers"))["servers"])
    for number in range(have, 1000):
        create(running, client, f"fill-{number}")
    detail = timed(lambda: client.expect(200, "GET", "/compute/v2.1/servers/detail?limit=1000"), 30)
    shown = len(json.loads(client.expect(200, "GET", "/compute/v2.1/servers/detail?limit=1000"))["servers"])
    table.add(f"detail of {shown} servers, p50 / p99", percentiles(detail), "15 ms")
    brief = timed(lambda: client.expect(200, "GET", "/compute/v2.1/servers?limit=1000"), 30)
    table.add(f"list of {shown} servers, p50 / p99", percentiles(brief))
    identifier = json.loads(client.expect(200, "GET", "/compute/v2.1/servers?limit=1"))["servers"][0]["id"]
    table.add(
        "show, p50 / p99",
        percentiles(timed(lambda: client.expect(200, "GET", f"/compute/v2.1/servers/{identifier}"), 300)),
    )


def deletes(running: Ledger, table: Table, count: int) -> None:
    client = running.client()
    servers = json.loads(client.expect(200, "GET", f"/compute/v2.1/servers?limit={count}"))["servers"]
    local = threading.local()

    def one(identifier: str) -> None:
        if not hasattr(local, "client"):
            local.client = running.client()
        local.client.expect(204, "DELETE", f"/compute/v2.1/servers/{identifier}")

    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one, [s["id"] for s in servers]))
    gone = servers[0]["id"]
    while client.call("GET", f"/compute/v2.1/servers/{gone}")[0] != 404:
        pass
    table.add(
        f"deletes/s, {CLIENTS} clients, {len(servers)} servers", f"{len(servers) / (time.perf_counter() - started):.0f}"
    )


def rebuild(running: Ledger, table: Table, events: int) -> None:
    """Rebuild every view from a log of at least so many events, made by real creates and power cycles."""
    client = running.client()
    ids = [s["id"] for s in json.loads(client.expect(200, "GET", "/compute/v2.1/servers?limit=1000"))["servers"]]
    local = threading.local()

    def act(identifier: str, action: object) -> None:
        if not hasattr(local, "client"):
            local.client = running.client()
        local.client.call("POST", f"/compute/v2.1/servers/{identifier}/action", action)

    with ThreadPoolExecutor(CLIENTS) as pool:
        while head(running) < events:
            for action in ({"os-stop": None}, {"os-start": None}, {"reboot": {"type": "HARD"}}):
                list(pool.map(act, ids, [action] * len(ids)))
    command = [sys.executable, "-m", "gateway.cli", "rebuild", "all", "--data", str(running.directory)]
    started = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    elapsed = time.perf_counter() - started
    rates = []
    for name, applied, seconds in re.findall(r"(\w+): (\d+) events in ([\d.]+) s", output):
        rates.append(int(applied) / float(seconds))
        table.add(f"rebuild of {name}, {applied} events", f"{rates[-1]:,.0f} events/s", "20,000")
    table.add("rebuild of all views, one after another", f"{elapsed:.1f} s")
    table.add("rebuild, slowest view", f"{min(rates):,.0f} events/s", "20,000")


def head(running: Ledger) -> int:
    import sqlite3

    db = sqlite3.connect(f"file:{running.directory / 'ledger.db'}?mode=ro", uri=True)
    try:
        return int(db.execute("SELECT MAX(rowid) FROM stored_events").fetchone()[0])
    finally:
        db.close()


def timed(call: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return taken


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{statistics.median(ordered) * 1000:.1f} / {p99 * 1000:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drivers", default="fake,test")
    parser.add_argument("--servers", type=int, default=400)
    parser.add_argument("--events", type=int, default=100_000)
    arguments = parser.parse_args()
    for driver in arguments.drivers.split(","):
        print(f"driver {driver}", flush=True)
        table = Table()
        with ledger(driver) as running:
            table.add("start to ready", f"{running.ready_s:.2f} s", "under 2 s")
            table.add("idle memory (RSS)", f"{running.memory_mib():.0f} MiB", "150 MiB")
            one_at_a_time(running, table, 100)
            many_clients(running, table, arguments.servers)
            lists(running, table)
            deletes(running, table, 200)
            if driver == "fake":
                rebuild(running, table, arguments.events)
            table.add("memory at the end (RSS)", f"{running.memory_mib():.0f} MiB")
        table.show(f"Compute Ledger, embedded, driver {driver}, 2 hosts")


if __name__ == "__main__":
    main()
