"""The bytes of images, streamed both ways in pieces of a mebibyte (Glance v2, "Image data")."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from commands.neighbours.identity import Identity
from commands.neighbours.images import ImageNotFound
from commands.neighbours.standalone.image_format import ImageDataRefused
from commands.neighbours.standalone.image_record import DEACTIVATED
from commands.neighbours.standalone.image_upload import ImageTooBig, Upload
from commands.neighbours.standalone.images import ImageBusy, StandaloneImages
from gateway.standalone.exchange import Refusal, caller, no_content
from gateway.standalone.glance_access import FORBIDDEN, readable, writable

PIECE_BYTES = 1 << 20
BYTES = "application/octet-stream"


class DataRoutes:
    def __init__(self, images: StandaloneImages, identity: Identity) -> None:
        self._images = images
        self._identity = identity

    def routes(self) -> list[Route]:
        return [
            Route("/v2/images/{id}/file", self.receive, methods=["PUT"]),
            Route("/v2/images/{id}/file", self.send, methods=["GET"]),
        ]

    async def receive(self, request: Request) -> Response:
        image = writable(request, self._images, caller(request, self._identity))
        if request.headers.get("content-type", BYTES).partition(";")[0].strip() != BYTES:
            raise Refusal(415, f"The content type must be {BYTES}.")
        if image.disk_format is None or image.container_format is None:
            raise Refusal(400, "disk_format and container_format must be set before the data comes.")
        announced = max(_length(request, name) or 0 for name in ("content-length", "x-openstack-image-size"))
        if announced > self._images.max_bytes:
            raise Refusal(413, str(ImageTooBig(self._images.max_bytes)))
        try:
            upload = await run_in_threadpool(self._images.begin_upload, image.id)
        except ImageNotFound:
            raise Refusal(404, f"No image found with ID {image.id}") from None
        except ImageBusy:
            raise Refusal(409, "The image has its data, or is just receiving it.") from None
        await self._fill(upload, request)
        return no_content()

    async def _fill(self, upload: Upload, request: Request) -> None:
        """Whatever goes wrong, a client that goes away included: the image is queued again."""
        try:
            async for piece in _pieces(request.stream()):
                await run_in_threadpool(upload.write, piece)
            announced = _length(request, "x-openstack-image-size")
            if announced is not None and announced != upload.size_bytes:
                raise Refusal(400, f"{upload.size_bytes} bytes came; {announced} were announced.")
            await run_in_threadpool(upload.commit)
        except BaseException as error:
            upload.abort()  # here, since this request may be being cancelled
            match error:
                case ImageTooBig():
                    raise Refusal(413, str(error)) from None
                case ImageDataRefused():
                    raise Refusal(400, str(error)) from None
                case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
                    raise Refusal(413, "There is no room left for the image.") from None
            raise

    async def send(self, request: Request) -> Response:
        credentials = caller(request, self._identity)
        image = readable(request, self._images, credentials)
        if image.status == DEACTIVATED and "admin" not in credentials.roles:
            raise Refusal(403, FORBIDDEN)
        file = self._images.open_data(image.id)
        if file is None:
            return no_content()
        headers = {"Content-Length": str(os.fstat(file.fileno()).st_size), "Content-MD5": image.md5 or ""}
        if request.method == "HEAD":
            file.close()
            return Response(headers=headers, media_type=BYTES)
        return StreamingResponse(_read(file), headers=headers, media_type=BYTES)


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Network chunks gathered, so that a thread is asked once a mebibyte."""
    gathered = bytearray()
    async for chunk in stream:
        gathered += chunk
        if len(gathered) >= PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await run_in_threadpool(file.read, PIECE_BYTES):
            yield piece


def _length(request: Request, header: str) -> int | None:
    value = request.headers.get(header, "")
    return int(value) if value.isdecimal() and len(value) < 20 else None
