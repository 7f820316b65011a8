"""`make up` as a process over a directory of its own, without the set-up that comes before."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

PROGRAM = Path(__file__).parents[2] / "deploy" / "make_up.py"
START_LIMIT_S = 180  # two seconds, or ten where a guest is built first, on an idle machine
STOP_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class MakeUp:
    data: Path
    said: str  # all that it printed until it was ready
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        found = re.search(r"answers at (\S+)", self.said)
        assert found is not None, self.said
        return found[1]


def start(data: Path, **variables: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "COMPUTE_LEDGER_"))}
    environment |= {"LISTEN": "127.0.0.1:0", "DATA": str(data)} | variables
    return subprocess.Popen(
        [sys.executable, PROGRAM],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@contextmanager
def made_up(data: Path, *, driver: str) -> Iterator[MakeUp]:
    """Ready inside the block; stopped, as by Ctrl-C, at its end."""
    process = start(data, DRIVER=driver)
    try:
        yield MakeUp(data, wait_until_ready(process), process)
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def wait_until_ready(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    said, deadline = b"", monotonic() + START_LIMIT_S
    while b"Ctrl-C stops it." not in said:
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - monotonic()))
        piece = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not piece:
            raise AssertionError(f"make up was not ready: {said.decode(errors='replace')}")
        said += piece
    return said.decode()


def processes_of(data: Path) -> list[str]:
    """The command lines that name the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # gone
                continue
            if str(data) in line:
                found.append(line)
    return found
