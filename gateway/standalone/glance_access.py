"""Which image a request is about, and whether its caller may read or change it (Glance's default policy)."""

from __future__ import annotations

from starlette.requests import Request

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.image_record import Image
from commands.neighbours.standalone.images import StandaloneImages
from gateway.standalone.exchange import Refusal

FORBIDDEN = "You are not authorized to complete this action."


def readable(request: Request, images: StandaloneImages, credentials: Credentials) -> Image:
    """Raises:
    Refusal: 404 when it is not there, or not for this caller.
    """
    image_id = request.path_params["id"]
    image = images.get(image_id)
    if image is None or not image.readable_by(credentials):
        raise Refusal(404, f"No image found with ID {image_id}")
    return image


def writable(request: Request, images: StandaloneImages, credentials: Credentials) -> Image:
    """Raises:
    Refusal: 404 as for reading; 403 when it is another project's, or the caller only reads.
    """
    image = readable(request, images, credentials)
    require_member(credentials)
    if "admin" not in credentials.roles and image.owner != credentials.project_id:
        raise Refusal(403, FORBIDDEN)
    return image


def require_member(credentials: Credentials) -> None:
    if "member" not in credentials.roles:
        raise Refusal(403, FORBIDDEN)
