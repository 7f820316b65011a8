"""What other services say happened to a server's network, volumes or power.

Nothing here waits for them yet: hosts plug and see for themselves. They are taken, each with its own code, and logged.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from gateway.backend import Backend
from gateway.request import Handler, HandlerKey, Request, Response

LOG = logging.getLogger(__name__)

WITH_TAG = frozenset({"volume-extended", "power-update", "accelerator-request-bound"})


class ExternalEvents:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("POST", "/os-server-external-events"): self.create}

    async def create(self, request: Request) -> Response:
        """200, or 207 where one of them was not taken."""
        answers = [await self._taken(event, request) for event in request.body["events"]]
        accepted = all(answer["code"] == 200 for answer in answers)
        return Response({"events": answers}, status=200 if accepted else 207)

    async def _taken(self, event: Mapping[str, Any], request: Request) -> dict[str, Any]:
        server_id = str(uuid.UUID(event["server_uuid"]))
        row = await self._backend.views.row("SELECT host FROM servers WHERE id = ? AND NOT deleted", (server_id,))
        if row is None:
            code = 404
        elif event["name"] in WITH_TAG and event.get("tag") is None:
            code = 400
        else:
            code = 200 if row[0] is not None else 422  # not on a host: there is nobody to be told
        LOG.info(
            "%s: %s of server %s, tag %s, status %s: %d",
            request.request_id,
            event["name"],
            server_id,
            event.get("tag"),
            event.get("status", "completed"),
            code,
        )
        return {**event, "status": "completed" if code == 200 else "failed", "code": code}
