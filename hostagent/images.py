"""The host's image cache: whole, checked images, one file each, which guests' disks are built on.

A libvirt overlay needs its base image for as long as it lives, so nothing that a guest uses is ever removed.
One agent uses a cache; its threads share one `ImageCache`.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from urllib.parse import quote, unquote

ALGORITHMS = ("sha512", "sha256", "md5")  # Glance's os_hash_algo, and its old checksum
CHUNK_BYTES = 1 << 20
FRESH_S = 3600  # an image used this lately may belong to a guest that is still being made

_PART = ".part"


class ImageError(Exception):
    """The image could not be had; the message helps an operator."""


class ImageCorrupt(ImageError):
    """What was downloaded is not what the ledger's order names."""


@dataclass(frozen=True, slots=True)
class CachedImage:
    image_id: str
    path: Path
    size_bytes: int
    used_at: float  # seconds since the epoch: when a guest last asked for it


class ImageCache:
    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        clock: Callable[[], float] = time,
        elapsed: Callable[[], float] = monotonic,
    ) -> None:
        """`max_bytes` bounds what `trim` leaves; images in use may exceed it."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        self._elapsed = elapsed
        self._asked: dict[str, float] = {}  # file name → when a guest of this start asked for it, by `elapsed`
        self._downloads: dict[str, tuple[threading.Lock, int]] = {}  # file name → its lock, threads at it
        self._guard = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        for part in directory.glob(f"*{_PART}"):  # left by an agent that was killed
            part.unlink(missing_ok=True)

    def ensure(
        self,
        image_id: str,
        checksum_algorithm: str | None,
        checksum: str | None,
        fetch: Callable[[str, Path], None],
    ) -> Path:
        """The image's file, downloaded unless it is here; `fetch(image_id, path)` writes it to `path`.

        Without a checksum nothing is verified. One download at a time for each image; others wait for it.

        Raises:
            ImageCorrupt: the checksum is another; nothing is kept.
            ImageError: the algorithm is unknown, or the image's id names no file.
            What `fetch` raises passes through.
        """
        if checksum is not None and checksum_algorithm not in ALGORITHMS:
            raise ImageError(f"image {image_id}: checksum algorithm {checksum_algorithm!r} is not known")
        path = self._directory / _file_name(image_id, checksum)
        with self._downloading(path.name):
            if not self._touch(path):
                self._download(image_id, checksum_algorithm, checksum, fetch, path)
            self._asked[path.name] = self._elapsed()
        return path

    def held(self) -> list[CachedImage]:
        """Every whole image in the cache, the one unused for longest first."""
        images = []
        for path in self._directory.iterdir():
            if path.suffix == _PART:
                continue
            with suppress(FileNotFoundError):
                status = path.stat()
                name = unquote(path.name.rpartition("@")[0])
                images.append(CachedImage(name, path, status.st_size, status.st_mtime))
        return sorted(images, key=lambda image: image.used_at)

    def trim(self, in_use: Set[str]) -> list[CachedImage]:
        """Remove images until the cache is within its bound, the one unused for longest first; say which.

        `in_use` names the images that guests are built on, kernels and ramdisks included. An image that this start was
        asked for within the last hour stays too: its guest may not be there to be counted yet.
        """
        images = self.held()
        excess = sum(image.size_bytes for image in images) - self._max_bytes
        removed = []
        for image in images:
            if excess <= 0:
                break
            if image.image_id in in_use or not self._remove(image):
                continue
            excess -= image.size_bytes
            removed.append(image)
        return removed

    def _remove(self, image: CachedImage) -> bool:
        with self._downloading(image.path.name):  # so that no `ensure` is about to answer with it
            asked = self._asked.get(image.path.name)
            if asked is not None and self._elapsed() - asked < FRESH_S:
                return False
            self._asked.pop(image.path.name, None)
            try:
                image.path.unlink()
            except FileNotFoundError:
                return False
        return True

    def _touch(self, path: Path) -> bool:
        now = self._clock()
        try:
            os.utime(path, (now, now))
        except FileNotFoundError:
            return False
        return True

    def _download(
        self,
        image_id: str,
        algorithm: str | None,
        checksum: str | None,
        fetch: Callable[[str, Path], None],
        path: Path,
    ) -> None:
        part = path.with_name(path.name + _PART)
        try:
            fetch(image_id, part)
            if algorithm is not None and checksum is not None:
                _verify(image_id, part, algorithm, checksum)
            _flush(part)  # a power cut must not leave a short file under the final name
            os.replace(part, path)
            self._touch(path)
            _flush(self._directory)
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _downloading(self, name: str) -> Iterator[None]:
        with self._guard:
            lock, threads = self._downloads.get(name, (threading.Lock(), 0))
            self._downloads[name] = (lock, threads + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, threads = self._downloads.pop(name)
                if threads > 1:
                    self._downloads[name] = (lock, threads - 1)


def _file_name(image_id: str, checksum: str | None) -> str:
    """The image's id and the head of its checksum: another content under the same id is another file."""
    name = f"{quote(image_id, safe='')}@{quote(checksum or 'unverified', safe='')[:16]}"
    if not image_id or len(name) + len(_PART) > 255:
        raise ImageError(f"image {image_id!r}: its id cannot name a file")
    return name


def _verify(image_id: str, path: Path, algorithm: str, checksum: str) -> None:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as image:
        while chunk := image.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != checksum.lower():
        raise ImageCorrupt(
            f"image {image_id}: {path.stat().st_size} bytes came, whose {algorithm} is {digest.hexdigest()};"
            f" it should be {checksum}"
        )


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
