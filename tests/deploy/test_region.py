"""A distributed ledger on one machine: what its processes are told, and what is said of them."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy.private_kafka import PrivateKafka
from deploy.private_postgresql import PrivatePostgreSQL
from deploy.region import Part, Region
from tests.support.hypervisors import eventually
from tests.support.region import RegionLedger

STORE = "postgresql://ledger:se cret@127.0.0.1:1/ledger"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Region:
    """Over a store and a Kafka that are not there."""
    return Region(tmp_path / "a region", store=STORE, kafka="127.0.0.1:1")


def test_what_is_printed_for_a_shell_is_what_the_ledger_is(elsewhere: Region) -> None:
    names = ("OS_CLIENT_CONFIG_FILE", "COMPUTE_LEDGER_DATA", "COMPUTE_LEDGER_STORE", "COMPUTE_LEDGER_KAFKA")
    show = "".join(f'printf "%s\\n" "${name}";' for name in names)
    shell = ["bash", "-ec", f"{elsewhere.exports()}{show} type -P compute-ledger"]
    told = subprocess.run(shell, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()

    assert told[:-1] == [f"{elsewhere.data}/clouds.yaml", str(elsewhere.data), STORE, "127.0.0.1:1"]
    assert os.access(told[-1], os.X_OK)


def test_a_process_that_ends_by_itself_is_told_of_with_its_last_words(elsewhere: Region) -> None:
    part = elsewhere.add("relay-a", ["relay"], "--nonsense")
    assert part.died() is None

    part.begin()
    pid = part.pid

    said = last_words(part)
    assert said.startswith(f"relay-a (pid {pid}) ended, exit code 2; in {part.log_file} it says last: ")
    assert "--nonsense" in said
    part.kill()
    assert part.died() is None


def test_one_that_was_killed_is_told_of(elsewhere: Region) -> None:
    part = elsewhere.add("relay-a", ["relay"])
    part.begin()
    os.kill(part.pid, 9)

    assert "killed by SIGKILL" in last_words(part)


def test_the_end_of_postgresql_and_of_kafka_is_told_of_too() -> None:
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory, closing(Region(Path(directory))) as region:
        assert region.died() == {}
        postgresql, kafka = pid_of(region.postgresql), pid_of(region.kafka)
        os.kill(postgresql, signal.SIGKILL)
        os.kill(kafka, signal.SIGKILL)

        eventually(lambda: len(region.died()) == 2, "both have ended")
        said = region.died()
        assert said["postgresql"].startswith(f"postgresql (pid {postgresql}) ended, killed by SIGKILL; in ")
        assert said["kafka"].startswith(f"kafka (pid {kafka}) ended, killed by SIGKILL; in ")
    assert region.died() == {}


def test_no_command_line_shows_the_stores_password(elsewhere: Region, region: RegionLedger) -> None:
    agent = elsewhere.add("host-1", ["agent"], store=False)
    assert elsewhere.add("inbox-a", ["inbox"]).environment["COMPUTE_LEDGER_STORE"] == STORE
    assert STORE not in agent.environment.values()

    password = region.region.store_url.partition("@")[0].rpartition(":")[2]
    assert len(password) > 10
    running = [part for part in region.region.parts.values() if part.running]
    assert len(running) > 5
    assert [part.name for part in running if password in command_line(part)] == []


def pid_of(server: PrivatePostgreSQL | PrivateKafka | None) -> int:
    assert server is not None
    assert server._process is not None
    return server._process.pid


def last_words(part: Part) -> str:
    eventually(part.died, "it has ended", within_s=120)
    return part.died() or ""


def command_line(part: Part) -> str:
    return Path(f"/proc/{part.pid}/cmdline").read_text()
