"""The bytes of one image on their way in: beside the store until complete, checked and synced.

Their file is locked by its writer while it is open, under whichever name: the file system knows who receives what, and that
a writer which was killed does no more.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from commands.neighbours.standalone.image_format import HEAD_BYTES, check, virtual_size_bytes


class ImageTooBig(Exception):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"The image is larger than the {limit_bytes} bytes allowed here.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    size_bytes: int
    virtual_size_bytes: int | None
    md5: str
    sha512: str


def claim(path: Path) -> BinaryIO:
    """A new file, which is locked already when it appears at `path`. Callers take turns."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    os.replace(temporary, path)
    return file


def is_being_written(path: str | Path) -> bool:
    """Whether somebody who is alive has claimed the file there, and not closed it yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class Upload:
    """One writer's; ends with `commit` or `abort`. Calls block: they hash and write."""

    def __init__(
        self,
        file: BinaryIO,  # as claimed
        disk_format: str | None,
        limit_bytes: int,
        done: Callable[[Received | None], None],  # None: nothing came of it
    ) -> None:
        self._file = file
        self._disk_format = disk_format
        self._limit_bytes = limit_bytes
        self._done = done
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha512 = hashlib.sha512()
        self._head = b""
        self._size_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Raises:
        ImageTooBig: over the limit with this chunk.
        OSError: the disk is full, or broken.
        """
        self._size_bytes += len(chunk)
        if self._size_bytes > self._limit_bytes:
            raise ImageTooBig(self._limit_bytes)
        self._head += chunk[: HEAD_BYTES - len(self._head)]
        self._md5.update(chunk)
        self._sha512.update(chunk)
        self._file.write(chunk)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def commit(self) -> None:
        """The image is active, durably, once this returns.

        Raises:
            ImageDataRefused: the data is not what the image's disk format says.
            OSError: the disk is full, or broken.
        """
        check(self._head, self._disk_format)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._done(
            Received(
                size_bytes=self._size_bytes,
                virtual_size_bytes=virtual_size_bytes(self._head, self._disk_format, self._size_bytes),
                md5=self._md5.hexdigest(),
                sha512=self._sha512.hexdigest(),
            )
        )
        self._file.close()

    def abort(self) -> None:
        """Leave nothing; safe after anything."""
        if self._file.closed:
            return
        try:
            self._done(None)
        finally:
            with suppress(OSError):  # what it could not flush is not wanted
                self._file.close()
