"""The face of Glance v2: images made, read, changed and deleted. Their bytes go through `glance_data.py`.

An image that a project may not see does not exist for it: 404.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.identity import Identity
from commands.neighbours.images import ImageNotFound
from commands.neighbours.standalone.image_record import ACTIVE, DEACTIVATED, Image
from commands.neighbours.standalone.images import IMAGE_ID, ImageExists, StandaloneImages
from gateway.standalone.exchange import (
    Refusal,
    answer,
    application,
    caller,
    json_body,
    json_object,
    no_content,
)
from gateway.standalone.glance_access import readable, writable
from gateway.standalone.glance_data import DataRoutes
from gateway.standalone.glance_members import MemberRoutes
from gateway.standalone.glance_patch import MEDIA_TYPES, altered, checked_tag, created
from gateway.standalone.glance_query import page
from gateway.standalone.glance_schema import IMAGE_SCHEMA, IMAGES_SCHEMA, image_body
from gateway.standalone.links import Links

VERSIONS = ("v2.9", "v2.7", "v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0")
TAG = "/v2/images/{id}/tags/{tag}"


def glance(images: StandaloneImages, identity: Identity, links: Links) -> Starlette:
    """Glance v2, to be mounted at /image."""

    async def versions(request: Request) -> Response:
        link = {"rel": "self", "href": f"{links.service(request)}/v2/"}
        rows = [
            {"id": one, "status": "CURRENT" if one == VERSIONS[0] else "SUPPORTED", "links": [link]} for one in VERSIONS
        ]
        return answer({"versions": rows}, 200 if request.url.path.endswith("/versions") else 300)

    async def index(request: Request) -> Response:
        return answer(page(images.all(), caller(request, identity), request.query_params))

    async def show(request: Request) -> Response:
        return answer(image_body(readable(request, images, caller(request, identity))))

    async def create(request: Request) -> Response:
        credentials = caller(request, identity)
        body = await json_object(request)
        image_id = body.pop("id", None) or str(uuid4())
        if not isinstance(image_id, str) or not IMAGE_ID.fullmatch(image_id):
            raise Refusal(400, "id must be a UUID.")
        image = created(image_id, body, credentials)
        try:
            image = await run_in_threadpool(images.create, image)
        except ImageExists:
            raise Refusal(409, f"Image ID {image_id} already exists!") from None
        location = f"{links.service(request)}/v2/images/{image_id}"
        return answer(image_body(image), 201, {"Location": location})

    async def update(request: Request) -> Response:
        credentials = caller(request, identity)
        image = writable(request, images, credentials)
        if request.headers.get("content-type", "").partition(";")[0].strip() not in MEDIA_TYPES:
            raise Refusal(415, f"The content type must be one of {', '.join(MEDIA_TYPES)}.")
        operations = await json_body(request)
        return answer(image_body(await _change(image.id, lambda one: altered(one, operations, credentials))))

    async def delete(request: Request) -> Response:
        image = writable(request, images, caller(request, identity))
        if image.protected:
            raise Refusal(403, f"Image {image.id} is protected and cannot be deleted.")
        await run_in_threadpool(images.delete, image.id)
        return no_content()

    async def add_tag(request: Request) -> Response:
        image, tag = writable(request, images, caller(request, identity)), request.path_params["tag"]
        checked_tag(tag)
        await _change(image.id, lambda one: replace(one, tags=tuple(sorted({*one.tags, tag}))))
        return no_content()

    async def remove_tag(request: Request) -> Response:
        image, tag = writable(request, images, caller(request, identity)), request.path_params["tag"]
        if tag not in image.tags:
            raise Refusal(404, f"Tag {tag} could not be found.")
        await _change(image.id, lambda one: replace(one, tags=tuple(t for t in one.tags if t != tag)))
        return no_content()

    async def deactivate(request: Request) -> Response:
        return await _turn(request, {ACTIVE, DEACTIVATED}, DEACTIVATED)

    async def reactivate(request: Request) -> Response:
        return await _turn(request, {ACTIVE, DEACTIVATED}, ACTIVE)

    async def _turn(request: Request, allowed: set[str], status: str) -> Response:
        credentials = caller(request, identity)
        image = readable(request, images, credentials)
        if "admin" not in credentials.roles:
            raise Refusal(403, "You are not authorized to complete this action.")

        def turned(one: Image) -> Image:
            if one.status not in allowed:
                raise Refusal(403, f"An image in status {one.status} cannot become {status}.")
            return replace(one, status=status)

        await _change(image.id, turned)
        return no_content()

    async def _change(image_id: str, alter: Callable[[Image], Image]) -> Image:
        try:
            return await run_in_threadpool(images.change, image_id, alter)
        except ImageNotFound:
            raise Refusal(404, f"No image found with ID {image_id}") from None

    def _document(content: Any) -> Any:
        async def document(request: Request) -> Response:
            caller(request, identity)
            return answer(content)

        return document

    no_import = {"import-methods": {"description": "Import methods available.", "type": "array", "value": []}}
    routes = [
        Route("/", versions),
        Route("/versions", versions),
        Route("/v2/images", index, methods=["GET"]),
        Route("/v2/images", create, methods=["POST"]),
        Route("/v2/images/{id}", show, methods=["GET"]),
        Route("/v2/images/{id}", update, methods=["PATCH"]),
        Route("/v2/images/{id}", delete, methods=["DELETE"]),
        Route(TAG, add_tag, methods=["PUT"]),
        Route(TAG, remove_tag, methods=["DELETE"]),
        Route("/v2/images/{id}/actions/deactivate", deactivate, methods=["POST"]),
        Route("/v2/images/{id}/actions/reactivate", reactivate, methods=["POST"]),
        Route("/v2/schemas/image", _document(IMAGE_SCHEMA)),
        Route("/v2/schemas/images", _document(IMAGES_SCHEMA)),
        Route("/v2/info/import", _document(no_import)),
        *DataRoutes(images, identity).routes(),
        *MemberRoutes(images, identity).routes(),
    ]
    return application(routes, _shape)


def _shape(refusal: Refusal) -> dict[str, Any]:
    """As WebOb, which Glance uses, writes them in JSON; a missing login is answered by its middleware."""
    if refusal.status == 401:
        return refusal.keystone_shape()
    return {
        "message": refusal.message,
        "code": f"{refusal.status} {refusal.title}",
        "title": refusal.title,
    }
