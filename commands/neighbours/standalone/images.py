"""Images in a directory: <id>.json says what one is, <id> has its bytes once active, <id>.part before.

The record is written last, so what it calls active is complete. `gateway/standalone/glance.py` serves them. Several
processes may serve one directory; its lock lets one of them write at a time, but data comes in without it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from commands.neighbours.identity import Credentials
from commands.neighbours.images import ImageNotActive, ImageNotFound
from commands.neighbours.standalone.image_record import ACTIVE, DEACTIVATED, QUEUED, SAVING, Image
from commands.neighbours.standalone.image_records import IMAGE_ID, ImageRecords
from commands.neighbours.standalone.image_upload import Received, Upload, claim, is_being_written
from commands.neighbours.standalone.lock_file import locked
from commands.neighbours.standalone.private_file import sync_directory
from domain.instance.events import BootFile, ImageSpec

__all__ = ["IMAGE_ID", "ImageBusy", "ImageExists", "StandaloneImages"]

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
        self._lock_file = directory / "lock"
        self._records = ImageRecords(directory)
        with locked(self._lock_file):
            self._sweep()

    def show(self, image_id: str, credentials: Credentials) -> ImageSpec:
        image = self._usable(image_id, credentials)
        kernel, ramdisk = (self._boot_file(image, key, credentials) for key in ("kernel_id", "ramdisk_id"))
        return image.to_spec(kernel, ramdisk)

    def fetch(self, image_id: str, to: Path) -> None:
        source = self._active_data(image_id)
        temporary = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
        try:
            # A copy, never a link: a hypervisor may make the file its own, and must not own the image service's.
            shutil.copyfile(source, temporary)
            os.replace(temporary, to)
        except FileNotFoundError:
            raise ImageNotFound(image_id) from None  # deleted meanwhile
        finally:
            temporary.unlink(missing_ok=True)

    def open(self, image_id: str) -> BinaryIO:
        try:
            return self._active_data(image_id).open("rb")
        except FileNotFoundError:
            raise ImageNotFound(image_id) from None  # deleted meanwhile

    # what the HTTP face asks besides

    def get(self, image_id: str) -> Image | None:
        image = self._records.get(image_id)
        if image is None or image.status != QUEUED:
            return image
        if is_being_written(self._part(image_id)) or is_being_written(self._data(image_id)):
            return replace(image, status=SAVING)
        return self._records.get(image_id)  # it may have got its data between the first look and the second

    def all(self) -> list[Image]:
        found = [self.get(image.id) if image.status == QUEUED else image for image in self._records.all()]
        return [image for image in found if image is not None]

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def create(self, image: Image) -> Image:
        """Raises:
        ImageExists
        """
        with locked(self._lock_file):
            if self._records.exists(image.id):
                raise ImageExists(image.id)
            now = self._clock()
            return self._keep(replace(image, created_at=now, updated_at=now))

    def change(self, image_id: str, alter: Callable[[Image], Image]) -> Image:
        """Raises:
        ImageNotFound: it was deleted; and whatever `alter` raises.
        """
        with locked(self._lock_file):
            before = self._found(image_id)
            after = alter(before)
            return before if after == before else self._keep(replace(after, updated_at=self._clock()))

    def delete(self, image_id: str) -> None:
        with locked(self._lock_file):
            if self._records.get(image_id) is not None:
                self._records.remove(image_id)
                for path in (self._data(image_id), self._part(image_id)):
                    path.unlink(missing_ok=True)
                sync_directory(self._directory)

    def begin_upload(self, image_id: str) -> Upload:
        """Raises:
        ImageNotFound: it was deleted.
        ImageBusy: it has its data, or is getting it.
        """
        with locked(self._lock_file):
            image = self._found(image_id)
            if image.status != QUEUED:
                raise ImageBusy(image_id)
            file = claim(self._part(image_id))
        return Upload(
            file, image.disk_format, self._max_bytes, lambda received: self._received(image_id, file, received)
        )

    def open_data(self, image_id: str) -> BinaryIO | None:
        """The image's bytes, None when it has none. They stay readable if it is deleted meanwhile."""
        image = self._records.get(image_id)
        if image is None or image.status not in (ACTIVE, DEACTIVATED):
            return None
        try:
            return self._data(image_id).open("rb")
        except FileNotFoundError:
            return None

    def _received(self, image_id: str, file: BinaryIO, received: Received | None) -> None:
        part = self._part(image_id)
        with locked(self._lock_file):
            if not part.exists() or not os.path.samestat(part.stat(), os.fstat(file.fileno())):
                return  # deleted meanwhile, and perhaps made anew
            image = self._records.get(image_id)
            if received is None or image is None:
                part.unlink()
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

    def _found(self, image_id: str) -> Image:
        image = self.get(image_id)
        if image is None:
            raise ImageNotFound(image_id)
        return image

    def _active_data(self, image_id: str) -> Path:
        image = self._records.get(image_id)
        if image is None:
            raise ImageNotFound(image_id)
        if image.status != ACTIVE:
            raise ImageNotActive(image_id)
        return self._data(image_id)

    def _usable(self, image_id: str, credentials: Credentials) -> Image:
        image = self._records.get(image_id)
        if image is None or not image.readable_by(credentials):
            raise ImageNotFound(image_id)
        if image.status != ACTIVE:
            raise ImageNotActive(image_id)
        return image

    def _boot_file(self, image: Image, key: str, credentials: Credentials) -> BootFile | None:
        image_id = image.properties.get(key)
        return self._usable(image_id, credentials).to_boot_file() if image_id else None

    def _keep(self, image: Image) -> Image:
        self._records.keep(image)
        return image

    def _data(self, image_id: str) -> Path:
        return self._directory / image_id

    def _part(self, image_id: str) -> Path:
        return self._directory / f"{image_id}.part"

    def _sweep(self) -> None:
        """Remove what crashes left: parts of uploads, data whose record was not written or is deleted."""
        queued = {image.id for image in self._records.all() if image.status == QUEUED}
        for path in self._directory.iterdir():
            abandoned = path.suffix == ".part" and not is_being_written(path)
            orphan = IMAGE_ID.fullmatch(path.name) and not self._records.exists(path.name)
            if path.name.startswith(".") or abandoned or orphan or path.name in queued:
                path.unlink(missing_ok=True)
