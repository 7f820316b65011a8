"""The port to images: what a create reads of one, and its bytes for a host.

`standalone/images.py` keeps them in a directory of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from commands.neighbours.identity import Credentials
from domain.errors import Invalid
from domain.instance.events import ImageSpec


class ImageNotFound(Invalid):
    """A request names an image that its project cannot see (Nova answers 400)."""

    code = "image.not_found"

    def __init__(self, image_id: str) -> None:
        super().__init__(f"Image {image_id} could not be found.")


class ImageNotActive(Invalid):
    code = "image.not_active"

    def __init__(self, image_id: str) -> None:
        super().__init__(f"Image {image_id} is not active.")


class Images(Protocol):
    def show(self, image_id: str, credentials: Credentials) -> ImageSpec:
        """The image with its checksum, its kernel and ramdisk resolved to images of their own.

        Raises:
            ImageNotFound: it, or its kernel or ramdisk, is not there for this project.
            ImageNotActive: it is there, but its data is not.
        """

    def fetch(self, image_id: str, to: Path) -> None:
        """Put the image's bytes at `to`, complete or not at all. The file is the caller's own.

        Raises:
            ImageNotFound, ImageNotActive: there are no bytes to be had.
        """

    def open(self, image_id: str) -> BinaryIO:
        """The image's bytes, to be read in pieces and closed by the caller, whole even if it is deleted meanwhile.

        Raises:
            ImageNotFound, ImageNotActive: there are no bytes to be had.
        """
