"""Whom an image is shared with (Glance v2, "Sharing"): its owner adds projects, each accepts or not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.identity import Credentials, Identity
from commands.neighbours.images import ImageNotFound
from commands.neighbours.standalone.image_record import SHARED, Image
from commands.neighbours.standalone.images import StandaloneImages
from gateway.standalone.exchange import Refusal, answer, caller, json_object, no_content, text
from gateway.standalone.glance_access import FORBIDDEN, readable, writable

STATUSES = ("pending", "accepted", "rejected")
MOST_MEMBERS = 128  # Glance's image_member_quota


class MemberRoutes:
    def __init__(self, images: StandaloneImages, identity: Identity) -> None:
        self._images = images
        self._identity = identity

    def routes(self) -> list[Route]:
        members, member = "/v2/images/{id}/members", "/v2/images/{id}/members/{member}"
        return [
            Route(members, self.list, methods=["GET"]),
            Route(members, self.add, methods=["POST"]),
            Route(member, self.show, methods=["GET"]),
            Route(member, self.decide, methods=["PUT"]),
            Route(member, self.remove, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        credentials = caller(request, self._identity)
        image = readable(request, self._images, credentials)
        rows = [_row(image, one) for one in image.members if _sees(image, one, credentials)]
        return answer({"members": rows, "schema": "/v2/schemas/members"})

    async def show(self, request: Request) -> Response:
        credentials = caller(request, self._identity)
        image, member = readable(request, self._images, credentials), request.path_params["member"]
        return answer(_row(image, _known(image, member, credentials)))

    async def add(self, request: Request) -> Response:
        image = writable(request, self._images, caller(request, self._identity))
        member = text(await json_object(request), "member")
        if not member:
            raise Refusal(400, "Expecting to find member.")
        if image.visibility != SHARED:
            raise Refusal(403, "Only shared images have members.")
        if not self._identity.project_exists(member):
            raise Refusal(400, f"There is no project {member}.")

        def added(one: Image) -> Image:
            if member in one.members:
                raise Refusal(409, f"Project {member} is a member of the image already.")
            if len(one.members) >= MOST_MEMBERS:
                raise Refusal(413, f"An image has at most {MOST_MEMBERS} members.")
            return replace(one, members={**one.members, member: "pending"})

        return answer(_row(await self._change(image.id, added), member))

    async def decide(self, request: Request) -> Response:
        """The member's own answer; an admin may give it too."""
        credentials = caller(request, self._identity)
        image, member = readable(request, self._images, credentials), request.path_params["member"]
        _known(image, member, credentials)
        status = text(await json_object(request), "status")
        if status not in STATUSES:
            raise Refusal(400, f"status must be one of {', '.join(STATUSES)}.")
        if member != credentials.project_id and "admin" not in credentials.roles:
            raise Refusal(403, FORBIDDEN)
        after = await self._change(
            image.id,
            lambda one: replace(one, members={**one.members, member: status}) if member in one.members else one,
        )
        return answer(_row(after, member))

    async def remove(self, request: Request) -> Response:
        credentials = caller(request, self._identity)
        image, member = writable(request, self._images, credentials), request.path_params["member"]
        _known(image, member, credentials)
        await self._change(
            image.id,
            lambda one: replace(one, members={m: s for m, s in one.members.items() if m != member}),
        )
        return no_content()

    async def _change(self, image_id: str, alter: Any) -> Image:
        try:
            return await run_in_threadpool(self._images.change, image_id, alter)
        except ImageNotFound:
            raise Refusal(404, f"No image found with ID {image_id}") from None


def _sees(image: Image, member: str, credentials: Credentials) -> bool:
    return member == credentials.project_id or image.owner == credentials.project_id or "admin" in credentials.roles


def _known(image: Image, member: str, credentials: Credentials) -> str:
    if member not in image.members or not _sees(image, member, credentials):
        raise Refusal(404, f"Project {member} is not a member of image {image.id}.")
    return member


def _row(image: Image, member: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(image.updated_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "image_id": image.id,
        "member_id": member,
        "status": image.members.get(member, "pending"),
        "created_at": at,
        "updated_at": at,
        "schema": "/v2/schemas/member",
    }
