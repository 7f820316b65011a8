"""When this machine was started: what an operator is told a hypervisor's uptime from."""

from __future__ import annotations

from pathlib import Path

STAT = Path("/proc/stat")


def boot_time_s(stat: Path = STAT) -> int | None:
    """In seconds since 1970, as the kernel counts them; None where it does not tell."""
    try:
        lines = stat.read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)
    except (OSError, ValueError, IndexError):
        return None
