"""What was measured, as a table: a line for each thing, a column for each deployment; and how durations are told."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

AIM = "aim"


class Table:
    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self._title = title
        self._columns = list(columns)
        self._rows: list[str] = []
        self._cells: dict[tuple[str, str], str] = {}
        self._place: dict[str, int] = {}  # by column, after which row it goes on

    def add(self, column: str, row: str, value: str, aim: str = "") -> None:
        """A row that only one column has stands where it came up there. Each is told at once, for who waits."""
        if (row, column) in self._cells:
            raise ValueError(f"{row} was told already")
        if row not in self._rows:
            self._rows.insert(self._place.get(column, -1) + 1, row)
        self._place[column] = self._rows.index(row)
        self._cells[row, column] = value
        if aim:
            self._cells[row, AIM] = aim
        print(f"  {column}: {row.strip()}: {value}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        columns = [*self._columns, *([AIM] if any(column == AIM for _, column in self._cells) else [])]
        lines = [[self._title, *columns]]
        lines += [[row, *(self._cells.get((row, column), "") for column in columns)] for row in self._rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(columns) + 1)]
        texts = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        texts.insert(1, "-" * (sum(widths) + 2 * len(columns)))
        return "\n".join(text.rstrip() for text in texts)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def percentiles(seconds: Sequence[float]) -> str:
    """The median, and what one in a hundred exceeds."""
    return f"{statistics.median(seconds) * 1000:.1f} / {percentile(seconds, 0.99) * 1000:.1f} ms"


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def machine() -> str:
    memory = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {int(memory) // 2**20} GiB, Python {platform.python_version()}"


def some_of(*known: str) -> Callable[[str], tuple[str, ...]]:
    """An argument that lists some of these, with commas between."""

    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if not chosen or not set(chosen) <= set(known):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(known)}")
        return chosen

    return read


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
