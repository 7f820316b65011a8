"""Host aggregates: operators group hosts, some of them as an availability zone."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import orjson

from commands.host_aggregate import (
    AddAggregateHost,
    CreateAggregate,
    DeleteAggregate,
    RemoveAggregateHost,
    UpdateAggregate,
)
from domain.errors import AggregateNotFound, ComputeHostNotFound
from domain.host_aggregate import ZONE
from domain.identifiers import HostName, NodeId, ServiceId
from gateway.backend import Backend
from gateway.microversions import Steps, V, without
from gateway.numbers import whole_id
from gateway.request import Handler, HandlerKey, Request, Response

_COLUMNS = "aggregate_id, uuid, name, zone, metadata, created_at, updated_at"

VIEW = Steps((V(2, 41), without("uuid")))


class HostAggregates:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        one, action = "/os-aggregates/{aggregate_id}", "/os-aggregates/{aggregate_id}/action"
        return {
            ("GET", "/os-aggregates"): self.index,
            ("POST", "/os-aggregates"): self.create,
            ("GET", one): self.show,
            ("PUT", one): self.update,
            ("DELETE", one): self.delete,
            ("POST", action, "add_host"): self.add_host,
            ("POST", action, "remove_host"): self.remove_host,
            ("POST", action, "set_metadata"): self.set_metadata,
        }

    async def index(self, request: Request) -> Response:
        rows = await self._backend.views.rows(f"SELECT {_COLUMNS} FROM host_aggregates ORDER BY aggregate_id")
        hosts: dict[int, list[str]] = {}
        for aggregate_id, host in await self._backend.views.rows(
            "SELECT aggregate_id, host FROM aggregate_hosts ORDER BY sequence"
        ):
            hosts.setdefault(aggregate_id, []).append(host)
        return Response({"aggregates": [_aggregate(row, hosts.get(row[0], []), request) for row in rows]})

    async def create(self, request: Request) -> Response:
        """Answers without hosts and metadata, as Nova does."""
        body = request.body["aggregate"]
        made = uuid.uuid4()
        zone = (body.get(ZONE) or "").strip() or None
        await self._backend.ask(
            request, CreateAggregate(aggregate_uuid=made, name=body["name"].strip(), availability_zone=zone)
        )
        row = await self._backend.views.row(f"SELECT {_COLUMNS} FROM host_aggregates WHERE uuid = ?", (str(made),))
        shown = _aggregate(row, [], request)
        return Response({"aggregate": {k: v for k, v in shown.items() if k not in ("hosts", "metadata")}})

    async def show(self, request: Request) -> Response:
        return await self._shown(request, _id(request))

    async def update(self, request: Request) -> Response:
        aggregate_id, body = _id(request), request.body["aggregate"]
        command = UpdateAggregate(
            aggregate_id=aggregate_id,
            name=body["name"].strip() if "name" in body else None,
            metadata={ZONE: body[ZONE]} if ZONE in body else None,
            nodes=await self._nodes(aggregate_id),
        )
        await self._backend.ask(request, command)
        return await self._shown(request, aggregate_id)

    async def set_metadata(self, request: Request) -> Response:
        """Beside what there is; an item that is null is taken away."""
        aggregate_id = _id(request)
        command = UpdateAggregate(
            aggregate_id=aggregate_id,
            metadata=request.body["set_metadata"]["metadata"],
            nodes=await self._nodes(aggregate_id),
            action="update metadata of",
        )
        await self._backend.ask(request, command)
        return await self._shown(request, aggregate_id)

    async def delete(self, request: Request) -> Response:
        await self._backend.ask(request, DeleteAggregate(aggregate_id=_id(request)))
        return Response()

    async def add_host(self, request: Request) -> Response:
        aggregate_id, host = _id(request), request.body["add_host"]["host"]
        service_id = await self._service(host)
        if service_id is None:
            raise ComputeHostNotFound(host)
        command = AddAggregateHost(aggregate_id=aggregate_id, host=HostName(host), service_id=service_id)
        await self._backend.ask(request, command)
        return await self._shown(request, aggregate_id)

    async def remove_host(self, request: Request) -> Response:
        aggregate_id, host = _id(request), request.body["remove_host"]["host"]
        command = RemoveAggregateHost(
            aggregate_id=aggregate_id, host=HostName(host), service_id=await self._service(host)
        )
        await self._backend.ask(request, command)
        return await self._shown(request, aggregate_id)

    async def _shown(self, request: Request, aggregate_id: int) -> Response:
        """Raises:
        AggregateNotFound: HTTP answers 404.
        """
        row = await self._backend.views.row(
            f"SELECT {_COLUMNS} FROM host_aggregates WHERE aggregate_id = ?", (aggregate_id,)
        )
        if row is None:
            raise AggregateNotFound(request.path_params["aggregate_id"])
        hosts = await self._backend.views.rows(
            "SELECT host FROM aggregate_hosts WHERE aggregate_id = ? ORDER BY sequence", (aggregate_id,)
        )
        return Response({"aggregate": _aggregate(row, [host for (host,) in hosts], request)})

    async def _nodes(self, aggregate_id: int) -> dict[HostName, NodeId]:
        """Of the aggregate's hosts."""
        rows = await self._backend.views.rows(
            "SELECT s.host, h.node_id FROM aggregate_hosts a JOIN services s USING (host) "
            "JOIN hypervisors h USING (service_id) WHERE a.aggregate_id = ?",
            (aggregate_id,),
        )
        return {HostName(host): NodeId(uuid.UUID(node_id)) for host, node_id in rows}

    async def _service(self, host: str) -> ServiceId | None:
        row = await self._backend.views.row("SELECT service_id FROM services WHERE host = ?", (host,))
        return None if row is None else ServiceId(uuid.UUID(row[0]))


def _id(request: Request) -> int:
    return whole_id(request.path_params["aggregate_id"], "id")


def _aggregate(row: Any, hosts: list[str], request: Request) -> dict[str, Any]:
    shown = {
        "id": row[0],
        "uuid": row[1],
        "name": row[2],
        "availability_zone": row[3],
        "metadata": orjson.loads(row[4]),
        "hosts": hosts,
        "created_at": row[5],
        "updated_at": row[6],
        "deleted": False,
        "deleted_at": None,
    }
    return VIEW.lower(shown, request.version)
