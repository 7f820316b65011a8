"""Images in a directory: <id>.json says what one is, <id> has its bytes once active, <id>.part before.

The record is written last, so what it calls active is complete. `gateway/standalone/glance.py` serves them.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from commands.neighbours.identity import Credentials
from commands.neighbours.images import ImageNotActive, ImageNotFound
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
from commands.neighbours.standalone.image_upload import Received, Upload
from commands.neighbours.standalone.private_file import sync_directory, write_private
from domain.instance.events import BootFile, ImageSpec

log = logging.getLogger(__name__)

IMAGE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAX_BYTES = 1 << 40


class ImageExists(Exception):
    pass


class ImageBusy(Exception):
    """It has its data already, or is just getting it."""


class StandaloneImages:
    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = Lock()
        self._images = {image.id: image for image in self._read_all()}
        self._sweep()

    def show(self, image_id: str, credentials: Credentials) -> ImageSpec:
        image = self._usable(image_id, credentials)
        kernel, ramdisk = (self._boot_file(image, key, credentials) for key in ("kernel_id", "ramdisk_id"))
        return image.to_spec(kernel, ramdisk)

    def fetch(self, image_id: str, to: Path) -> None:
        image = self._images.get(image_id)
        if image is None:
            raise ImageNotFound(image_id)
        if image.status != ACTIVE:
            raise ImageNotActive(image_id)
        source = self._data(image_id)
        temporary = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
        try:
            # A copy, never a link: a hypervisor may make the file its own, and must not own the image service's.
            shutil.copyfile(source, temporary)
            os.replace(temporary, to)
        except FileNotFoundError:
            raise ImageNotFound(image_id) from None  # deleted meanwhile
        finally:
            temporary.unlink(missing_ok=True)

    # what the HTTP face asks besides

    def get(self, image_id: str) -> Image | None:
        return self._images.get(image_id)

    def all(self) -> list[Image]:
        return list(self._images.values())

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def create(self, image: Image) -> Image:
        """Raises:
        ImageExists
        """
        with self._lock:
            if image.id in self._images:
                raise ImageExists(image.id)
            now = self._clock()
            return self._keep(replace(image, created_at=now, updated_at=now))

    def change(self, image_id: str, alter: Callable[[Image], Image]) -> Image:
        """Raises:
        ImageNotFound: it was deleted; and whatever `alter` raises.
        """
        with self._lock:
            before = self._images.get(image_id)
            if before is None:
                raise ImageNotFound(image_id)
            after = alter(before)
            return before if after == before else self._keep(replace(after, updated_at=self._clock()))

    def delete(self, image_id: str) -> None:
        with self._lock:
            if self._images.pop(image_id, None) is not None:
                self._record(image_id).unlink(missing_ok=True)
                self._data(image_id).unlink(missing_ok=True)
                sync_directory(self._directory)

    def begin_upload(self, image_id: str) -> Upload:
        """Raises:
        ImageNotFound: it was deleted.
        ImageBusy: it has its data, or is getting it.
        """
        with self._lock:
            image = self._images.get(image_id)
            if image is None:
                raise ImageNotFound(image_id)
            if image.status != QUEUED:
                raise ImageBusy(image_id)
            part = self._data(image_id).with_suffix(".part")
            part.unlink(missing_ok=True)
            upload = Upload(
                part, image.disk_format, self._max_bytes, lambda received: self._received(image_id, received)
            )
            self._images[image_id] = replace(image, status=SAVING)  # on disk it stays queued
            return upload

    def open_data(self, image_id: str) -> BinaryIO | None:
        """The image's bytes, None when it has none. They stay readable if it is deleted meanwhile."""
        image = self._images.get(image_id)
        if image is None or image.status not in (ACTIVE, DEACTIVATED):
            return None
        try:
            return self._data(image_id).open("rb")
        except FileNotFoundError:
            return None

    def _received(self, image_id: str, received: Received | None) -> None:
        part = self._data(image_id).with_suffix(".part")
        with self._lock:
            image = self._images.get(image_id)
            if image is None or image.status != SAVING:
                part.unlink(missing_ok=True)  # deleted meanwhile
                return
            if received is None:
                self._images[image_id] = replace(image, status=QUEUED)
                return
            os.replace(part, self._data(image_id))
            self._keep(
                replace(
                    image,
                    status=ACTIVE,
                    size_bytes=received.size_bytes,
                    virtual_size_bytes=received.virtual_size_bytes,
                    md5=received.md5,
                    sha512=received.sha512,
                    updated_at=self._clock(),
                )
            )

    def _usable(self, image_id: str, credentials: Credentials) -> Image:
        image = self._images.get(image_id)
        if image is None or not image.readable_by(credentials):
            raise ImageNotFound(image_id)
        if image.status != ACTIVE:
            raise ImageNotActive(image_id)
        return image

    def _boot_file(self, image: Image, key: str, credentials: Credentials) -> BootFile | None:
        image_id = image.properties.get(key)
        return self._usable(image_id, credentials).to_boot_file() if image_id else None

    def _keep(self, image: Image) -> Image:
        recorded = replace(image, status=QUEUED) if image.status == SAVING else image
        write_private(self._record(image.id), to_json(recorded))
        self._images[image.id] = image
        return image

    def _data(self, image_id: str) -> Path:
        return self._directory / image_id

    def _record(self, image_id: str) -> Path:
        return self._directory / f"{image_id}.json"

    def _read_all(self) -> list[Image]:
        images = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                image = from_json(path.read_bytes())
            except ValueError as error:
                log.error("%s is left out: %s", path, error)
                continue
            if image.status in (ACTIVE, DEACTIVATED) and not self._data(image.id).exists():
                log.error("image %s has lost its data", image.id)
                image = replace(image, status=KILLED)
            images.append(image)
        return images

    def _sweep(self) -> None:
        """Remove what crashes left: parts of uploads, data whose record was not written or is deleted."""
        for path in self._directory.iterdir():
            image = self._images.get(path.name)
            orphan = IMAGE_ID.fullmatch(path.name) and not self._record(path.name).exists()
            unfinished = image is not None and image.status == QUEUED
            if path.suffix == ".part" or path.name.startswith(".") or orphan or unfinished:
                path.unlink(missing_ok=True)
