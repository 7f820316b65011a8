"""Environments of their own, for what must not meet the ledger's packages: tempest, and Nova for its schemas."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "conformance"
TEMPEST = "tempest==47.0.0"
NOVA = "nova==34.0.0"
LIMIT_S = 1200


class Unavailable(Exception):
    """The packages cannot be had."""


def programs_of(package: str) -> Path:
    """The `bin` directory of a virtual environment with this package, made where it is not there yet.

    Raises:
        Unavailable
    """
    place = CACHE / package
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _run(sys.executable, "-m", "venv", "--clear", place)
            _run(place / "bin" / "python", "-m", "pip", "install", "--quiet", package)
            (place / "complete").touch()
    return place / "bin"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
