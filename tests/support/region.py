"""A distributed ledger for journeys: every role a process, over a PostgreSQL and a Kafka of its own.

It can be asked what an embedded one can (`ledger_process.py`), so that the same stories are told of both.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from commands.postgresql_sessions import advisory_key
from deploy.private_kafka import why_no_kafka
from deploy.private_postgresql import programs
from deploy.region import PROGRAM, Part, Region, answers
from tests.support.hypervisors import eventually

SHARED_ROLES = ("managers", "projections", "relay", "inbox")
START_LIMIT_S = 180
ROOMY = """\
[DEFAULT]
cpu_allocation_ratio = 1000
[quota]
instances = -1
cores = -1
ram = -1
"""


class RegionLedger:
    """Gateways, every other role twice, and agents, each with a working directory of its own."""

    def __init__(self, directory: Path, *, settings: str = "") -> None:
        self.region = Region(directory, settings=settings)
        self.directory = self.region.data
        self.gateways: list[Part] = []
        self.agents: list[Part] = []

    def start(
        self, *, gateways: int = 2, copies: str = "ab", settings: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        """Start all but the agents; `settings` are more arguments for some."""
        more = settings or {}
        for number in range(1, gateways + 1):
            name = f"gateway-{number}"
            self.gateways.append(self.region.add_gateway(name, *more.get(name, ())))
        for role in SHARED_ROLES:
            for copy in copies:
                name = f"{role}-{copy}"
                self.region.add(name, [role], *more.get(name, more.get(role, ())))
        self.region.start()

    def add_agents(self, *names: str, arguments: dict[str, tuple[str, ...]] | None = None) -> None:
        """Enroll and start these hosts, and wait until the ledger knows that they are up."""
        urls = [gateway.url for gateway in self.gateways]
        for name in names:
            self.agents.append(self.region.add_agent(name, urls, *(arguments or {}).get(name, ())))
        self.region.start(*names)
        eventually(
            lambda: self.recorded("service.came_up") >= len(self.agents), "the hosts are up", within_s=START_LIMIT_S
        )
        for url in urls:
            eventually(lambda url=url: answers(url), f"{url} is ready", within_s=START_LIMIT_S)

    @property
    def url(self) -> str:
        return self.gateways[0].url

    @property
    def log_file(self) -> Path:
        """All their logs in one file, as they are now."""
        joined = self.region.directory / "all.log"
        joined.write_text(self.logged())
        return joined

    def logged(self) -> str:
        return "".join(f"== {part.name}\n{part.logged()}" for part in self.region.parts.values())

    def active(self, seat: str) -> Part:
        """The process that holds this seat, as PostgreSQL knows it."""
        found = self.active_or_none(seat)
        assert found is not None, f"nobody holds the seat {seat}"
        return found

    def active_or_none(self, seat: str) -> Part | None:
        key = advisory_key(f"election/{seat}")
        holders = self.stored(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' "
            "AND granted AND (classid::bigint << 32 | objid::bigint) = %s",
            key,
        )
        pids = [int(name.rpartition("/")[2]) for (name,) in holders]
        return next((part for part in self.region.parts.values() if part.running and part.pid in pids), None)

    def part(self, name: str) -> Part:
        return self.region.parts[name]

    def credentials(self, cloud: str) -> dict[str, str]:
        clouds = yaml.safe_load((self.directory / "clouds.yaml").read_text())
        auth: dict[str, str] = clouds["clouds"][cloud]["auth"]
        return auth

    def clouds_files(self) -> list[Path]:
        """One for each gateway, each leading to it."""
        files = []
        for gateway in self.gateways:
            clouds = yaml.safe_load((self.directory / "clouds.yaml").read_text())
            for cloud in clouds["clouds"].values():
                cloud["auth"]["auth_url"] = f"{gateway.url}/identity/v3"
            file = self.region.directory / f"clouds-{gateway.name}.yaml"
            file.write_text(yaml.safe_dump(clouds))
            files.append(file)
        return files

    def host_directory(self, number: int = 1) -> Path:
        return self.region.directory / "hosts" / self.agents[number - 1].name

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        where = ["--data", str(self.directory), "--store", self.region.store_url]
        return subprocess.run([PROGRAM, *arguments, *where], capture_output=True, text=True, timeout=120, check=check)

    def events(self, *, after: int = 0) -> list[dict[str, Any]]:
        lines = self.command("events", "--after", str(after), "--limit", "1000000").stdout.splitlines()
        return [json.loads(line) for line in lines]

    def position(self) -> int:
        return int(self.stored("SELECT COALESCE(MAX(notification_id), 0) FROM stored_events")[0][0])

    def recorded(self, wire_name: str) -> int:
        return int(self.stored("SELECT COUNT(*) FROM stored_events WHERE topic = %s", wire_name)[0][0])

    def payloads(self) -> int:
        return int(self.stored("SELECT COUNT(*) FROM vault_payloads")[0][0])

    def stored(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Of the store, past every process."""
        with psycopg.connect(self.region.store_url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def close(self) -> None:
        self.region.close()


@contextmanager
def running_region(
    *, hosts: int = 2, settings: str = "", gateways: int = 2, copies: str = "ab"
) -> Iterator[RegionLedger]:
    """A region with fake hosts, for as long as the block lasts."""
    if (reason := why_no_region()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="region-", ignore_cleanup_errors=True) as directory:
        ledger = RegionLedger(Path(directory), settings=settings)
        try:
            ledger.start(gateways=gateways, copies=copies)
            if hosts:
                ledger.add_agents(*(f"host-{number}" for number in range(1, hosts + 1)))
            yield ledger
        finally:
            ledger.close()


@pytest.fixture(scope="session")
def region() -> Iterator[RegionLedger]:
    """One for the session, with two hosts and room without end. Tests that stop Kafka or PostgreSQL have their own."""
    with running_region(settings=ROOMY) as ledger:
        yield ledger


def why_no_region() -> str | None:
    return "PostgreSQL is not installed" if programs() is None else why_no_kafka()
