"""Which tokens were revoked: a file of audit ids that only grows, read by several processes.

A line each, appended and synced. A start drops those whose tokens have expired anyway, and puts a shorter file in the place
of the longer one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from commands.neighbours.standalone.lock_file import locked
from commands.neighbours.standalone.private_file import write_private


class Revocations:
    def __init__(self, path: Path, lock_file: Path, now: float) -> None:
        """The caller holds the lock file's lock."""
        self._path = path
        self._lock_file = lock_file
        _drop_expired(path, now)
        self._lock = Lock()
        # Kept open, so that its inode is given to no file that takes its place: another file has another.
        self._file = path.open("rb", buffering=0)
        self._read_bytes = 0  # of it, up to the end of a line
        self._seen = (0, 0)  # its inode, and its size when it was last read
        self._expiry: dict[str, float] = {}
        self._read_on()

    def __contains__(self, audit_id: str) -> bool:
        """Whether any process has revoked it by now; costs a stat."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return audit_id in self._expiry  # somebody took the file away; what it said stays in force
        if (status.st_ino, status.st_size) != self._seen:
            self._read_on()
        return audit_id in self._expiry

    def add(self, audit_id: str, expires_at: float) -> None:
        """Durable, and known to every process, once this returns."""
        with locked(self._lock_file):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    file.write(b"\n")  # after a line that a crash cut off
                file.write(_line(audit_id, expires_at))
                file.flush()
                os.fsync(descriptor)
            self._read_on()

    def _read_on(self) -> None:
        with self._lock:
            try:
                now_there = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                return
            if os.path.samestat(os.fstat(now_there.fileno()), os.fstat(self._file.fileno())):
                now_there.close()
            else:
                self._file.close()
                self._file, self._read_bytes = now_there, 0
            status = os.fstat(self._file.fileno())
            if status.st_size < self._read_bytes:
                self._read_bytes = 0  # cut short by hand
            content = os.pread(self._file.fileno(), status.st_size - self._read_bytes, self._read_bytes)
            whole = content[: content.rfind(b"\n") + 1]  # the rest is still being written, or was never answered
            self._expiry.update(_parsed(whole))
            self._read_bytes += len(whole)
            self._seen = (status.st_ino, status.st_size)  # last: who finds it so finds what was read


def _drop_expired(path: Path, now: float) -> None:
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else None
    live = [line for line in lines or () if any(expires > now for _, expires in _parsed(line))]
    if live != lines:
        write_private(path, b"".join(live))


def _line(audit_id: str, expires_at: float) -> bytes:
    return f"{audit_id} {expires_at}\n".encode()


def _parsed(content: bytes) -> Iterable[tuple[str, float]]:
    for line in content.decode(errors="replace").splitlines():
        audit_id, _, expires = line.partition(" ")
        try:
            yield audit_id, float(expires)
        except ValueError:
            continue  # cut off by a crash
