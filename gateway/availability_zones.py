"""Availability zones: of the hosts as they registered, or as an aggregate puts them. A zone with no enabled host is there,
but not available.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.backend import Backend
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.services import BINARY


class AvailabilityZones:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/os-availability-zone"): self.index,
            ("GET", "/os-availability-zone/detail"): self.detail,
        }

    async def index(self, request: Request) -> Response:
        return Response(
            {"availabilityZoneInfo": [_zone(name, available, None) for name, available in await self._zones()]}
        )

    async def detail(self, request: Request) -> Response:
        hosts: dict[str, dict[str, Any]] = {}
        rows = await self._backend.views.rows(
            "SELECT zone, host, up AND NOT forced_down, updated_at FROM services WHERE enabled ORDER BY zone, host"
        )
        for zone, host, alive, updated_at in rows:
            shown = {"available": bool(alive), "active": True, "updated_at": updated_at}
            hosts.setdefault(zone, {})[host] = {BINARY: shown}
        zones = await self._zones()
        return Response(
            {"availabilityZoneInfo": [_zone(name, available, hosts.get(name)) for name, available in zones]}
        )

    async def _zones(self) -> list[Any]:
        """Names, and whether they are available; those that are first."""
        return await self._backend.views.rows(
            "SELECT zone, MAX(enabled) FROM services GROUP BY zone ORDER BY 2 DESC, zone"
        )


def _zone(name: str, available: int, hosts: Any) -> dict[str, Any]:
    return {"zoneName": name, "zoneState": {"available": bool(available)}, "hosts": hosts}
