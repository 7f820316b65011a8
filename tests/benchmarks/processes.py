"""What a process uses, as proc(5) tells it: processor time and memory, of those that it has started too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.ledger_process import children_of

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
GONE = (FileNotFoundError, ProcessLookupError)

FIXED_WORK = """\
import time
things = {}
for number in range(300_000):
    things[number % 1000] = (number, str(number))
print(time.process_time())
"""

Processes = Mapping[str, Sequence[int]]  # by role


def cpu_s(pid: int) -> float:
    """User and system time; of children too, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    seconds = ticks / TICKS_A_SECOND
    for child in children_of(pid):
        with suppress(*GONE):
            seconds += cpu_s(child)
    return seconds


def cpu_by_role(processes: Processes) -> dict[str, float]:
    return {role: sum(map(cpu_s, pids)) for role, pids in processes.items()}


def busy_s() -> float:
    """Of all processors, since the machine was started; what other machines took of them too (proc(5), /proc/stat)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_A_SECOND


def yardstick_s() -> float:
    """How long a fixed piece of work takes on every core at once: shared machines are not always as fast."""
    command = [sys.executable, "-S", "-c", FIXED_WORK]
    cores = os.sched_getaffinity(0)
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in cores]
    return sum(float(worker.communicate()[0]) for worker in workers) / len(cores)


def memory_mib(pid: int) -> float:
    """What is resident; of a process with children, what is their part of it, since they share pages."""
    family = list(_family(pid))
    if len(family) == 1:
        return _number(Path(f"/proc/{pid}/status"), "VmRSS") / 1024
    return sum(_number(Path(f"/proc/{member}/smaps_rollup"), "Pss") for member in family) / 1024


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in children_of(pid):
        yield from _family(child)


def _number(file: Path, field: str) -> int:
    with suppress(*GONE):
        found = re.search(rf"^{field}:\s+(\d+)", file.read_text(), re.MULTILINE)
        return 0 if found is None else int(found[1])
    return 0
