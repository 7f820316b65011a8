"""A host's directory belongs to one agent at a time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.directory_lock import DirectoryInUse, lock
from gateway.hosts import LocalHost
from gateway.options import Options
from hostagent.host_key import HostCredential
from tests.support.enrolled import enroll
from tests.support.ledger import Ledger, Payloads
from tests.support.ledger_process import COMMAND_LIMIT_S, PROGRAM


@contextmanager
def a_host(ledger: Ledger, credential: HostCredential, directory: Path) -> Iterator[LocalHost]:
    options = Options(directory=directory, url="")
    host = LocalHost(
        options, directory, "gamma", ledger.log, Payloads(ledger.vault), credential.take_up, signer=credential
    )
    host.driver.open()
    with closing(host):
        yield host


def test_a_second_agent_in_a_hosts_directory_is_refused_for_as_long_as_the_first_is_there(
    ledger: Ledger, tmp_path: Path
) -> None:
    credential, directory = enroll(ledger, "gamma"), tmp_path / "host"
    with (
        a_host(ledger, credential, directory),
        pytest.raises(DirectoryInUse, match=f"{directory} is in use by another compute-ledger process"),
        a_host(ledger, credential, directory),
    ):
        pass

    with a_host(ledger, credential, directory):
        pass


def test_it_is_told_in_one_line(ledger: Ledger, tmp_path: Path) -> None:
    enroll(ledger, "gamma")
    directory = tmp_path / "host"
    directory.mkdir()
    held = lock(directory)
    try:
        arguments = ["--credential", str(ledger.directory / "gamma.credential"), "--kafka", "127.0.0.1:1"]
        refused = subprocess.run(
            [PROGRAM, "up", "--role", "agent", "--gateway", "http://127.0.0.1:1", "--data", directory, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
        )
    finally:
        os.close(held)

    assert refused.returncode == 1
    said = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert said == [f"compute-ledger: {directory} is in use by another compute-ledger process"]
