"""What an order names and does not carry: images, user data, passwords, files. Asked for by order, from whoever keeps it.

In one process that is the vault and the image service themselves; on another machine, the gateway's agent API.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import orjson

from commands.orders import GuestSpec
from domain.identifiers import InstanceId, VaultRef
from domain.instance.events import BootFile, ImageSpec
from hostagent.config_drive import ConfigDrivePayload, write_config_drive
from hostagent.drivers.protocol import DriverError, GuestFiles
from hostagent.images import ImageCache


class PayloadSource(Protocol):
    def payload(self, instance_id: InstanceId, ref: VaultRef) -> bytes | None:
        """The bytes of a sealed payload of a guest; None when it is gone."""

    def fetch_image(self, instance_id: InstanceId, image_id: str, to: Path) -> None:
        """Put the bytes of an image that a guest boots from at `to`.

        Raises:
            Exception: they cannot be had; the message says why.
        """


class Files:
    """Puts in place what a create needs: images through the host's cache, and the config drive."""

    def __init__(
        self, source: PayloadSource, images: ImageCache, directory: Path, clock: Callable[[], datetime]
    ) -> None:
        self._source = source
        self._images = images
        self._directory = directory
        self._clock = clock

    def prepare(self, guest: GuestSpec) -> GuestFiles:
        """Raises:
        DriverError: an image cannot be had or is corrupt, a payload is gone, or there is no room for a file.
        """
        image = guest.image
        root = kernel = ramdisk = drive = None
        if image is not None:
            root = self._image(guest, image)
            kernel = None if image.kernel is None else self._image(guest, image.kernel)
            ramdisk = None if image.ramdisk is None else self._image(guest, image.ramdisk)
        if guest.config_drive:
            drive = self._directory / f"{guest.instance_id}.config.iso"
            payload = self._payload_of(guest)
            try:
                write_config_drive(drive, guest, payload, seed=secrets.token_bytes(32), now=self._clock())
            except OSError as error:
                raise DriverError(f"the config drive cannot be written: {error}") from error
        return GuestFiles(
            root_image=root,
            root_format="raw" if image is None or image.disk_format is None else image.disk_format,
            kernel=kernel,
            ramdisk=ramdisk,
            config_drive=drive,
        )

    def password(self, guest: GuestSpec) -> str:
        """The administrator's password, as the ledger has it now.

        Raises:
            DriverError: it cannot be had.
        """
        password = self._payload(guest, guest.admin_password)
        return "" if password is None else password.decode()

    def trim(self, guests: Iterable[GuestSpec]) -> None:
        """Let go of cached images that none of these guests was made from, as far as the cache is over its bound."""
        in_use: set[str] = set()
        for guest in guests:
            if guest.image is not None:
                boot_files = (f.image_id for f in (guest.image.kernel, guest.image.ramdisk) if f is not None)
                in_use.update((guest.image.image_id, *boot_files))
        self._images.trim(in_use)

    def discard(self, files: GuestFiles) -> None:
        """After a create that failed: what was made for this guest alone."""
        if files.config_drive is not None:
            files.config_drive.unlink(missing_ok=True)

    def _image(self, guest: GuestSpec, image: ImageSpec | BootFile) -> Path:
        fetch = partial(self._source.fetch_image, guest.instance_id)
        try:
            return self._images.ensure(image.image_id, image.checksum_algorithm, image.checksum, fetch)
        except Exception as error:
            raise DriverError(f"image {image.image_id} cannot be had: {error}") from error

    def _payload_of(self, guest: GuestSpec) -> ConfigDrivePayload:
        password = self._payload(guest, guest.admin_password)
        injected = self._payload(guest, guest.injected_files)
        return ConfigDrivePayload(
            user_data=self._payload(guest, guest.user_data),
            admin_password=None if password is None else password.decode(),
            injected_files=() if injected is None else decode_injected_files(injected),
        )

    def _payload(self, guest: GuestSpec, ref: VaultRef | None) -> bytes | None:
        if ref is None:
            return None
        try:
            payload = self._source.payload(guest.instance_id, ref)
        except Exception as error:
            raise DriverError(f"a payload of the guest cannot be had: {error}") from error
        if payload is None:
            raise DriverError("a payload that the guest was created with is no longer kept")
        return payload


def decode_injected_files(payload: bytes) -> list[tuple[str, bytes]]:
    """Nova's personality as it lies in the vault: a JSON list of path and base64 contents."""
    return [(path, base64.b64decode(contents)) for path, contents in orjson.loads(payload)]
