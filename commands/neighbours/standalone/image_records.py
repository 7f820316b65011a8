"""The records of a directory's images: <id>.json each. Any process may write one; the others read it again.

To look at one costs a stat; to list them, a stat of the directory while nothing happens there.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

from commands.neighbours.standalone.image_record import (
    ACTIVE,
    DEACTIVATED,
    KILLED,
    QUEUED,
    SAVING,
    Image,
    from_json,
    to_json,
)
from commands.neighbours.standalone.private_file import Stamp, stamp_of, write_private

log = logging.getLogger(__name__)

IMAGE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The coarsest tick of a file system's clock (FAT's): two changes within one leave the same time on the directory.
TICK_S = 2.0


@dataclass(frozen=True, slots=True)
class _Listing:
    changed_at: int  # the directory's time of the last change, ns
    since: float  # when it was first seen so, monotonic
    settled: bool  # read a tick later: no change can hide behind that time
    images: tuple[Image, ...]


class ImageRecords:
    """Writers hold the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = f"{directory}{os.sep}"
        self._known: dict[str, tuple[Stamp, Image | None]] = {}  # None: a record that cannot be used
        self._listing = _Listing(-1, 0.0, False, ())

    def get(self, image_id: str) -> Image | None:
        known = self._known.get(image_id)
        if known is None and not IMAGE_ID.fullmatch(image_id):
            return None  # it may be a path to somewhere else
        stamp = stamp_of(f"{self._root}{image_id}.json")
        if known is not None and known[0] == stamp:
            return known[1]
        return self._read(image_id)

    def all(self) -> tuple[Image, ...]:
        """By id."""
        listing, now = self._listing, time.monotonic()
        changed_at = os.stat(self._root).st_mtime_ns  # before the names are read
        if changed_at == listing.changed_at and listing.settled:
            return listing.images
        since = listing.since if changed_at == listing.changed_at else now
        ids = sorted(name.removesuffix(".json") for name in os.listdir(self._root) if name.endswith(".json"))
        images = tuple(image for image_id in ids if (image := self.get(image_id)) is not None)
        for gone in set(self._known).difference(ids):
            self._known.pop(gone, None)
        self._listing = _Listing(changed_at, since, now - since > TICK_S, images)
        return images

    def exists(self, image_id: str) -> bool:
        """Whether there is a record, be it one that cannot be used."""
        return self.path(image_id).exists()

    def keep(self, image: Image) -> None:
        """Durable once this returns. An image that is receiving its data is queued until it has all of it."""
        image = replace(image, status=QUEUED) if image.status == SAVING else image
        self._known[image.id] = (write_private(self.path(image.id), to_json(image)), image)

    def remove(self, image_id: str) -> None:
        self.path(image_id).unlink(missing_ok=True)
        self._known.pop(image_id, None)

    def path(self, image_id: str) -> Path:
        return self._directory / f"{image_id}.json"

    def _read(self, image_id: str) -> Image | None:
        try:
            with self.path(image_id).open("rb") as file:
                stamp, content = stamp_of(file.fileno()), file.read()
        except FileNotFoundError:
            self._known.pop(image_id, None)
            return None
        image = self._parsed(image_id, content)
        if stamp is not None:
            self._known[image_id] = (stamp, image)
        return image

    def _parsed(self, image_id: str, content: bytes) -> Image | None:
        path = self.path(image_id)
        try:
            image = from_json(content)
        except ValueError as error:
            log.error("%s is left out: %s", path, error)
            return None
        if image.id != image_id:
            log.error("%s is left out: it is of image %s", path, image.id)
            return None
        lost = image.status in (ACTIVE, DEACTIVATED) and not (self._directory / image_id).exists()
        if lost and path.exists():  # a delete removes the record first
            log.error("image %s has lost its data", image_id)
            return replace(image, status=KILLED)
        return image
