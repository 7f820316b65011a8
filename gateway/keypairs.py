"""Key pairs of a user. A private key that is made here is in one answer and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from commands.keypair import CreateKeypair, DeleteKeypair
from domain.errors import KeypairNotFound
from domain.identifiers import ProjectId, UserId
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.key_material import fingerprint, generated
from gateway.microversions import Steps, V, without
from gateway.request import Handler, HandlerKey, Request, Response

VIEW = Steps((V(2, 2), without("type")))
_COLUMNS = "name, type, public_key, fingerprint, user_id, keypair_id, created_at"


class Keypairs:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-keypairs"): self.index,
            ("POST", "/os-keypairs"): self.create,
            ("GET", "/os-keypairs/{keypair_name}"): self.show,
            ("DELETE", "/os-keypairs/{keypair_name}"): self.delete,
        }

    async def index(self, request: Request) -> Response:
        user_id = _user(request, "index", request.query.get("user_id"))
        limit, marker = self._max_limit, None
        if request.version >= V(2, 35):
            asked = request.query.get("limit")
            if asked and asked.isdigit() and int(asked[:9]):
                limit = min(int(asked[:9]), limit)
            marker = request.query.get("marker")
        after = ""
        if marker is not None:
            if await self._row(user_id, marker) is None:
                raise Fault(400, f"Marker {marker} could not be found.")
            after = marker
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM keypairs WHERE user_id = ? AND name > ? ORDER BY name LIMIT ?",
            (user_id, after, limit),
        )
        body: dict[str, Any] = {"keypairs": [{"keypair": _brief(row, request)} for row in rows]}
        if rows and len(rows) == limit and request.version >= V(2, 35):
            href = f"{request.base_url}/os-keypairs?{request.query.with_changed(marker=rows[-1][0])}"
            body["keypairs_links"] = [{"rel": "next", "href": href}]
        return Response(body)

    async def create(self, request: Request) -> Response:
        body = request.body["keypair"]
        user_id = _user(request, "create", body.get("user_id"))
        kind = body.get("type", "ssh")
        public_key, private_key = body.get("public_key"), None
        if public_key is None:  # from 2.92 on it is required
            public_key, private_key = await asyncio.to_thread(generated, kind, user_id)
        command = CreateKeypair(
            user_id=UserId(user_id),
            project_id=ProjectId(request.project_id),
            name=body["name"],
            type=kind,
            public_key=public_key,
            fingerprint=fingerprint(public_key, kind),
        )
        await self._backend.ask(request, command)
        made: dict[str, Any] = {
            "name": command.name,
            "public_key": command.public_key,
            "fingerprint": command.fingerprint,
            "user_id": user_id,
            "type": kind,
        }
        if private_key is not None:
            made["private_key"] = private_key
        made = VIEW.lower(made, request.version)
        return Response({"keypair": made}, status=201 if request.version >= V(2, 2) else 200)

    async def show(self, request: Request) -> Response:
        name = request.path_params["keypair_name"]
        user_id = _user(request, "show", request.query.get("user_id"))
        row = await self._row(user_id, name)
        if row is None:
            raise KeypairNotFound(name, user_id)
        shown = {
            **_brief(row, request),
            "user_id": row[4],
            "id": row[5],
            "created_at": row[6],
            "deleted": False,
            "deleted_at": None,
            "updated_at": None,
        }
        return Response({"keypair": shown})

    async def delete(self, request: Request) -> Response:
        user_id = _user(request, "delete", request.query.get("user_id"))
        command = DeleteKeypair(user_id=UserId(user_id), name=request.path_params["keypair_name"])
        await self._backend.ask(request, command)
        return Response(status=204 if request.version >= V(2, 2) else 202)

    async def _row(self, user_id: str, name: str) -> Any:
        return await self._backend.views.row(
            f"SELECT {_COLUMNS} FROM keypairs WHERE user_id = ? AND name = ?", (user_id, name)
        )


def _user(request: Request, operation: str, asked: str | None) -> str:
    """Whose key pairs: the caller's, or from 2.10 on anybody's for an administrator."""
    user_id = asked if asked and request.version >= V(2, 10) else request.user_id
    request.require(f"os_compute_api:os-keypairs:{operation}", user_id=user_id)
    return user_id


def _brief(row: Any, request: Request) -> dict[str, Any]:
    keypair = {"name": row[0], "public_key": row[2], "fingerprint": row[3], "type": row[1]}
    return VIEW.lower(keypair, request.version)
