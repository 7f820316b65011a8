"""What is measured: a ledger in one process, and one of every role twice with PostgreSQL and Kafka. Both have two hosts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.benchmarks.clients import Cloud
from tests.benchmarks.processes import Processes, name_of
from tests.support.ledger_process import LedgerProcess, children_of, running_ledger
from tests.support.region import RegionLedger

HOSTS = 2
GATEWAYS = 2
BESIDE = {"postgres": "PostgreSQL", "java": "Kafka"}
SETTINGS = """\
[DEFAULT]
cpu_allocation_ratio = 1000
ram_allocation_ratio = 1000
disk_allocation_ratio = 1000
[quota]
instances = -1
cores = -1
ram = -1
"""


@dataclass(frozen=True, slots=True)
class Running:
    ledger: LedgerProcess | RegionLedger
    cloud: Cloud
    processes: Processes
    ready_s: float  # since it was begun, with nothing there
    beside_s: float = 0.0  # of that, until PostgreSQL and Kafka answered


@contextmanager
def embedded(driver: str) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        began = perf_counter()
        with running_ledger(Path(directory), driver=driver, hosts=HOSTS, settings=SETTINGS) as ledger:
            ready_s = perf_counter() - began
            cloud = Cloud([ledger.url], ledger.credentials("admin"))
            yield Running(ledger, cloud, {"the process": [ledger.pid]}, ready_s)


@contextmanager
def distributed(driver: str = "fake") -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        began = perf_counter()
        ledger = RegionLedger(Path(directory), settings=SETTINGS)
        try:
            beside_s = perf_counter() - began
            ledger.start(gateways=GATEWAYS)
            hosts = [f"host-{number}" for number in range(1, HOSTS + 1)]
            ledger.add_agents(*hosts, arguments=dict.fromkeys(hosts, ("--driver", driver)))
            ready_s = perf_counter() - began
            cloud = Cloud([gateway.url for gateway in ledger.gateways], ledger.credentials("admin"))
            yield Running(ledger, cloud, _by_role(ledger), ready_s, beside_s)
        finally:
            ledger.close()


DEPLOYMENTS: Mapping[str, Callable[[str], AbstractContextManager[Running]]] = {
    "embedded": embedded,
    "distributed": distributed,
}


def _by_role(ledger: RegionLedger) -> Processes:
    found: dict[str, list[int]] = {}
    for part in ledger.region.parts.values():
        found.setdefault(part.arguments[part.arguments.index("--role") + 1], []).append(part.pid)
    started = {name_of(pid): pid for pid in children_of(os.getpid())}
    return found | {role: [started[name]] for name, role in BESIDE.items() if name in started}
