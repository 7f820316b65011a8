"""The password of a guest's administrator: set another, and what the guest has said of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from commands.instance.create import payload_ref
from commands.instance.password import ChangePassword
from commands.vault import Payload
from domain.identifiers import UserId, instance_stream
from gateway.backend import Backend
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.server_action import ACTION
from gateway.servers import find_server, server_in_scope

PASSWORD = "/servers/{server_id}/os-server-password"


class ServerPassword:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("POST", ACTION, "changePassword"): self.change,
            ("GET", PASSWORD): self.show,
            ("DELETE", PASSWORD): self.clear,
        }

    async def change(self, request: Request) -> Response:
        instance_id, project_id = server_in_scope(request)
        [owner] = await find_server(self._backend, request, "user_id")
        password = payload_ref(instance_id, f"admin_password/{uuid.uuid4()}")
        command = ChangePassword(instance_id=instance_id, project_id=project_id, password=password)
        data = request.body["changePassword"]["adminPass"].encode()
        payload = Payload(data, subject=UserId(owner), owner=instance_stream(instance_id))
        await self._backend.ask(request, command, {password: payload})
        return Response(status=202)

    async def show(self, request: Request) -> Response:
        """What a guest has posted to its metadata service, encrypted for its key; there is none here that it could."""
        await find_server(self._backend, request, "id")
        return Response({"password": ""})

    async def clear(self, request: Request) -> Response:
        await find_server(self._backend, request, "id")
        return Response(status=204)
