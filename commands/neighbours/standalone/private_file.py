"""Files that only their owner may read, replaced whole: a crash and a reader find the old content or the new.

Of several processes that write one file, each holds its lock meanwhile (`lock_file.py`); readers look at its stamp.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

Stamp = tuple[int, int, int]  # time of the last write in ns, size, inode: another content has another


def write_private(path: Path, content: bytes) -> Stamp:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _date(descriptor, stamp_of(path))
            os.fsync(descriptor)
            written = _stamp(os.fstat(descriptor))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return written


def stamp_of(file: str | Path | int) -> Stamp | None:
    """Of a path or an open descriptor; None when there is no file to be looked at."""
    try:
        return _stamp(os.stat(file))
    except OSError:
        return None


def sync_directory(directory: Path) -> None:
    """Make renames and removals in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stamp(status: os.stat_result) -> Stamp:
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _date(descriptor: int, before: Stamp | None) -> None:
    """Later than the file that is replaced. A file system's own clock may stand still for 10 ms, and it gives the inode of
    a file that is gone to the next one: two contents of the same size could have the same stamp."""
    at = max(time.time_ns(), before[0] + 1 if before else 0)
    os.utime(descriptor, ns=(at, at))
