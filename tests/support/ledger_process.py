"""`compute-ledger` as an operator runs it: a process over one directory, started, killed, stopped and started again.

Its standard error goes to a file beside the directory, so that tests can read what it logged. A process that a test
forgets ends with the test process.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, Any

import yaml

PROGRAM = Path(sys.executable).with_name("compute-ledger")
START_LIMIT_S = 120  # two to four seconds on an idle machine
STOP_LIMIT_S = 60
COMMAND_LIMIT_S = 120
PR_SET_PDEATHSIG = 1  # prctl(2)


class DidNotStart(Exception):
    """The process ended, or said nothing, before it was ready; with its exit code and what it wrote to stderr."""

    def __init__(self, code: int | None, errors: str) -> None:
        super().__init__(f"exit code {code}: {errors[-2000:]}")
        self.code = code
        self.errors = errors


class LedgerProcess:
    """One `compute-ledger up`, and the other subcommands on its directory. To be started from the main thread."""

    def __init__(
        self,
        directory: Path,
        *,
        driver: str = "fake",
        hosts: int = 1,
        libvirt_uri: str | None = None,
        settings: str = "",
        listen: str = "127.0.0.1:0",
    ) -> None:
        """`settings` is the text of a configuration file."""
        self.directory = directory / "data"
        self.log_file = directory / "stderr.log"
        self.url = ""
        self.arguments = ["--driver", driver, "--hosts", str(hosts), "--listen", listen]
        if libvirt_uri is not None:
            self.arguments += ["--libvirt-uri", libvirt_uri]
        if settings:
            file = directory / "compute-ledger.conf"
            file.write_text(settings)
            self.arguments += ["--config-file", str(file)]
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0  # how long the log file was when it was started

    def start(self) -> LedgerProcess:
        """Start it and wait until it is ready.

        Raises:
            DidNotStart
        """
        self._logged = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            process = self._process = subprocess.Popen(
                [PROGRAM, "up", "--data", self.directory, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=_end_with_parent,
            )
        assert process.stdout is not None
        line = _line(process.stdout, START_LIMIT_S)
        if not line.startswith(b"ready "):
            process.kill()
            raise DidNotStart(self._ended(), self.logged())
        self.url = line.decode().split()[1]
        return self

    def logged(self) -> str:
        """What it has written to its standard error since it was started."""
        return self.log_file.read_bytes()[self._logged :].decode()

    @property
    def pid(self) -> int:
        return self._running().pid

    def kill(self) -> None:
        """End it where it stands (SIGKILL)."""
        self._running().kill()
        self._ended()

    def stop(self) -> int:
        """End it as an operator does (SIGTERM); its exit code."""
        self._running().send_signal(signal.SIGTERM)
        return self._ended()

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Another subcommand on this directory: `events`, `verify`, `rebuild all`, …"""
        name, *rest = arguments
        done = subprocess.run(
            [PROGRAM, name, "--data", self.directory, *rest],
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def events(self, *, after: int = 0) -> list[dict[str, Any]]:
        """What is recorded, as `compute-ledger events` lists it."""
        lines = self.command("events", "--after", str(after), "--limit", "1000000").stdout.splitlines()
        return [json.loads(line) for line in lines]

    def position(self) -> int:
        """Of the last recorded event; 0 without any."""
        return int(self._stored("SELECT COALESCE(MAX(rowid), 0) FROM stored_events")[0][0])

    def recorded(self, wire_name: str) -> int:
        """How many events of a type there are."""
        return int(self._stored("SELECT COUNT(*) FROM stored_events WHERE topic = ?", wire_name)[0][0])

    def payloads(self) -> int:
        """How many sealed payloads the vault holds."""
        return int(self._stored("SELECT COUNT(*) FROM vault_payloads")[0][0])

    def credentials(self, cloud: str) -> dict[str, str]:
        """User, password and project of a cloud in clouds.yaml."""
        clouds = yaml.safe_load((self.directory / "clouds.yaml").read_text())
        auth: dict[str, str] = clouds["clouds"][cloud]["auth"]
        return auth

    def host_directory(self, number: int = 1) -> Path:
        return self.directory / "hosts" / str(number)

    def _stored(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Of the store, past the process: also while it runs, and after it was killed."""
        path = self.directory / "ledger.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(statement, parameters).fetchall()

    def _ended(self) -> int:
        process = self._running()
        code = process.wait(STOP_LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the ledger is not running"
        return self._process


@contextmanager
def running_ledger(directory: Path, **options: Any) -> Iterator[LedgerProcess]:
    """A ledger for as long as the block lasts; `options` are LedgerProcess's."""
    ledger = LedgerProcess(directory, **options)
    try:
        yield ledger.start()
    finally:
        ledger.close()


def children_of(pid: int) -> set[int]:
    """The processes that a process has started and that still run."""
    return {int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)}


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def _line(output: IO[bytes], within_s: float) -> bytes:
    """The first line; what there is of it when the limit is reached or the output ends."""
    deadline, line = monotonic() + within_s, b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([output], [], [], max(0.0, deadline - monotonic()))
        if not readable:
            return line
        part = os.read(output.fileno(), 1000)
        if not part:
            return line
        line += part
    return line


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
