"""One process at a time in a directory: an embedded ledger's, a host's, or one that holds views."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DirectoryInUse(Exception):
    """Another process has this directory open."""


def lock(directory: Path) -> int:
    """Hold the directory for this process, until the returned descriptor is closed.

    Raises:
        DirectoryInUse: another process holds it.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DirectoryInUse(f"{directory} is in use by another compute-ledger process") from None
    return descriptor
