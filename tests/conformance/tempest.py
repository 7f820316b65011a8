"""One run of tempest against a ledger, and what became of each test."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PASSES = Path(__file__).with_name("tempest_passes.txt")
RUNS = {"any": ("2.1", "latest"), "newest": ("latest", "latest")}  # tempest's bounds of microversions
RUN_LIMIT_S = 3600
CONCURRENCY = 2

_LINE = re.compile(
    r"^\{\d+\} (?P<id>(?:setUpClass|tearDownClass) \(\S+\)|\S+?)(?:\[\S*\])? \[[\d.]+s\] \.\.\. "
    r"(?P<end>ok|FAILED|SKIPPED)(?:: (?P<reason>.*))?$"
)
_ERROR = re.compile(r"[\w.]*(?:tempest\.lib\.exceptions\.|Error|Exception|Details|Mismatch)")


@dataclass(frozen=True, slots=True)
class Result:
    end: str  # "ok", "FAILED" or "SKIPPED"
    told: str  # what tempest printed of it

    @property
    def last_line(self) -> str:
        """The error, where one was told."""
        lines = [line.strip() for line in self.told.splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or lines or [""])[-1][:300]


class Passes:
    """Which tests pass, in which of the runs: a file with a line for each."""

    def __init__(self) -> None:
        self._runs: dict[str, set[str]] = {}  # by test

    @staticmethod
    def read(file: Path) -> Passes:
        passes = Passes()
        for line in file.read_text().splitlines() if file.exists() else ():
            runs, _, one = line.partition(" ")
            for name in runs.split(","):
                passes.add(name, (one,))
        return passes

    def add(self, run: str, ids: Iterable[str]) -> None:
        for one in ids:
            self._runs.setdefault(one, set()).add(run)

    def of(self, run: str) -> set[str]:
        return {one for one, runs in self._runs.items() if run in runs}

    def write(self, file: Path) -> None:
        file.write_text("".join(f"{','.join(sorted(runs))} {one}\n" for one, runs in sorted(self._runs.items())))


def run(programs: Path, workspace: Path, ids: Iterable[str] | None = None, regex: str = "") -> dict[str, Result]:
    """By test. A class that could not be set up is told of under its own name, and its tests are not there.

    Args:
        programs: the directory of tempest's programs.
        ids: the tests to run; without them, those that `regex` finds.
    """
    command = [str(programs / "tempest"), "run", "--concurrency", str(CONCURRENCY)]
    if ids is None:
        command += ["--regex", regex]
    else:
        wanted = workspace / "wanted"
        wanted.write_text("".join(f"{re.escape(one)}(\\[|$)\n" for one in ids))
        command += ["--include-list", str(wanted)]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    (workspace / "output").write_text(done.stdout + done.stderr)
    return dict(results(done.stdout))


def results(output: str) -> Iterable[tuple[str, Result]]:
    body = output.partition("\n======\nTotals\n")[0]
    for block in re.split(r"\n(?=\{\d+\} )", body):
        found = _LINE.match(block.partition("\n")[0])
        if found is not None:
            yield found["id"], Result(found["end"], found["reason"] or block.partition("\n")[2])
