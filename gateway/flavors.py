"""Flavors: list, detail, show, create, describe, delete; their extra specs as reads."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import orjson

from commands.flavor import CreateFlavor, DeleteFlavor, DescribeFlavor
from domain.errors import FlavorNotFound
from domain.flavor import FlavorSpec
from gateway.backend import Backend
from gateway.faults import Fault
from gateway.microversions import V
from gateway.request import Handler, HandlerKey, Request, Response

SORTABLE = {
    "created_at": "sequence",
    "description": "ifnull(description, '')",  # a page cannot begin after NULL
    "disabled": "disabled",
    "ephemeral_gb": "ephemeral_gib",
    "flavorid": "flavor_id",
    "id": "sequence",
    "is_public": "is_public",
    "memory_mb": "memory_mib",
    "name": "name",
    "root_gb": "root_gib",
    "rxtx_factor": "rxtx_factor",
    "swap": "swap_mib",
    "updated_at": "sequence",
    "vcpu_weight": "sequence",
    "vcpus": "vcpus",
}
EXTRA_SPECS = "os_compute_api:os-flavor-extra-specs:index"
_COLUMNS = (
    "flavor_id, name, memory_mib, root_gib, ephemeral_gib, vcpus, swap_mib, rxtx_factor, is_public, disabled, "
    "description, extra_specs, url_id"
)

_OWN = "is_public OR EXISTS (SELECT 1 FROM flavor_access a WHERE a.flavor_id = f.flavor_id AND a.project_id = ?)"


class Flavors:
    def __init__(self, backend: Backend, max_limit: int) -> None:
        self._backend = backend
        self._max_limit = max_limit

    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {
            ("GET", "/flavors"): self.index,
            ("GET", "/flavors/detail"): self.detail,
            ("GET", "/flavors/{flavor_id}"): self.show,
            ("POST", "/flavors"): self.create,
            ("PUT", "/flavors/{flavor_id}"): self.describe,
            ("DELETE", "/flavors/{flavor_id}"): self.delete,
            ("GET", "/flavors/{flavor_id}/os-extra_specs"): self.extra_specs,
            ("GET", "/flavors/{flavor_id}/os-extra_specs/{key}"): self.extra_spec,
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "flavors", whole=False)

    async def detail(self, request: Request) -> Response:
        return await self._page(request, "flavors/detail", whole=True)

    async def show(self, request: Request) -> Response:
        return Response({"flavor": _whole(await self._found(request), request)})

    async def create(self, request: Request) -> Response:
        body = request.body["flavor"]
        given = body.get("id")
        flavor = FlavorSpec(
            flavor_id=str(uuid.uuid4()) if given in (None, "", "auto") else str(given),
            name=body["name"],
            vcpus=int(body["vcpus"]),
            memory_mib=int(body["ram"]),
            root_gib=int(body["disk"]),
            ephemeral_gib=int(body.get("OS-FLV-EXT-DATA:ephemeral", 0)),
            swap_mib=int(body.get("swap") or 0),
            rxtx_factor=float(body.get("rxtx_factor", 1.0)),
            is_public=str(body.get("os-flavor-access:is_public", True)).lower() in ("1", "t", "true", "on", "y", "yes"),
            description=body.get("description"),
        )
        await self._backend.ask(request, CreateFlavor(flavor=flavor))
        row = await self._row(request, flavor.flavor_id)
        return Response({"flavor": _whole(row, request)})

    async def describe(self, request: Request) -> Response:
        flavor_id = request.path_params["flavor_id"]
        description = request.body["flavor"]["description"]
        await self._backend.ask(request, DescribeFlavor(flavor_id=flavor_id, description=description))
        return Response({"flavor": _whole(await self._row(request, flavor_id), request)})

    async def delete(self, request: Request) -> Response:
        await self._backend.ask(request, DeleteFlavor(flavor_id=request.path_params["flavor_id"]))
        return Response(status=202)

    async def extra_specs(self, request: Request) -> Response:
        row = await self._found(request)
        return Response({"extra_specs": orjson.loads(row[11])})

    async def extra_spec(self, request: Request) -> Response:
        row, key = await self._found(request), request.path_params["key"]
        specs: Mapping[str, str] = orjson.loads(row[11])
        if key not in specs:
            raise Fault(404, f"Flavor {row[0]} has no extra specs with key {key}.")
        return Response({key: specs[key]})

    async def _found(self, request: Request) -> Any:
        """The flavor that the path names, if the caller's project may see it.

        Raises:
            FlavorNotFound: HTTP answers 404.
        """
        return await self._row(request, request.path_params["flavor_id"])

    async def _row(self, request: Request, flavor_id: str) -> Any:
        condition, parameters = _visible(request)
        row = await self._backend.views.row(
            f"SELECT {_COLUMNS} FROM flavors f WHERE flavor_id = ? AND ({condition})", (flavor_id, *parameters)
        )
        if row is None:
            raise FlavorNotFound(flavor_id)
        return row

    async def _page(self, request: Request, path: str, *, whole: bool) -> Response:
        query, admin = request.query, request.allows("context_is_admin")
        conditions: list[str] = []
        parameters: list[object] = []
        asked = (query.get("is_public") or "").lower()
        if admin and asked == "none":
            pass
        elif admin and asked in ("0", "f", "false", "off", "n", "no"):
            conditions.append("NOT is_public")
        elif admin and asked:
            conditions.append("is_public")
        else:
            conditions.append(f"({_OWN})")
            parameters.append(request.credentials.project_id)
        for name, column in (("minRam", "memory_mib"), ("minDisk", "root_gib")):
            text = query.get(name)
            if text is not None:
                if not (text.isascii() and text.isdigit()):
                    raise Fault(400, f"Invalid {name} filter [{text[:50]}]")
                conditions.append(f"{column} >= ?")
                parameters.append(int(text[:12]))
        wanted = query.get("name") if request.version >= V(2, 102) else None
        if wanted is not None:
            conditions.append("instr(name, ?) > 0")
            parameters.append(wanted)
        sorted_by = SORTABLE.get(query.get("sort_key") or "flavorid")
        if sorted_by is None:
            raise Fault(400, f"Sort key supplied is invalid: {(query.get('sort_key') or '')[:100]}")
        down = (query.get("sort_dir") or "asc") == "desc"
        limit = _limit(query.get("limit"), self._max_limit)
        marker = query.get("marker")
        if marker is not None:
            condition, own = _visible(request)
            at = await self._backend.views.row(
                f"SELECT {sorted_by}, flavor_id FROM flavors f WHERE flavor_id = ? AND ({condition})", (marker, *own)
            )
            if at is None:
                raise Fault(400, f"marker [{marker}] not found")
            conditions.append(f"({sorted_by}, flavor_id) {'<' if down else '>'} (?, ?)")
            parameters.extend(at)
        order = "DESC" if down else "ASC"
        rows = await self._backend.views.rows(
            f"SELECT {_COLUMNS} FROM flavors f WHERE {' AND '.join(conditions) or '1'} "
            f"ORDER BY {sorted_by} {order}, flavor_id {order} LIMIT ?",
            (*parameters, limit),
        )
        body: dict[str, Any] = {"flavors": [(_whole if whole else _brief)(row, request) for row in rows]}
        if rows and len(rows) == limit:
            href = f"{request.base_url}/{path}?{query.with_changed(marker=rows[-1][0])}"
            body["flavors_links"] = [{"rel": "next", "href": href}]
        return Response(body)


def _visible(request: Request) -> tuple[str, tuple[object, ...]]:
    """The flavors that the caller may use: public ones and its project's; for administrators all."""
    if request.allows("context_is_admin"):
        return "1", ()
    return _OWN, (request.credentials.project_id,)


def _limit(text: str | None, most: int) -> int:
    return most if text is None or not text.isdigit() or int(text[:12]) == 0 else min(int(text[:12]), most)


def _links(row: Any, request: Request) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": f"{request.base_url}/flavors/{row[12]}"},
        {"rel": "bookmark", "href": f"{request.bookmark_url}/flavors/{row[12]}"},
    ]


def _brief(row: Any, request: Request) -> dict[str, Any]:
    flavor: dict[str, Any] = {"id": row[0], "name": row[1], "links": _links(row, request)}
    if request.version >= V(2, 55):
        flavor["description"] = row[10]
    return flavor


def _whole(row: Any, request: Request) -> dict[str, Any]:
    version = request.version
    flavor: dict[str, Any] = {
        "id": row[0],
        "name": row[1],
        "ram": row[2],
        "disk": row[3],
        "OS-FLV-EXT-DATA:ephemeral": row[4],
        "vcpus": row[5],
        "swap": row[6] if row[6] or version >= V(2, 75) else "",
        "os-flavor-access:is_public": bool(row[8]),
        "links": _links(row, request),
    }
    if version < V(2, 102):
        flavor["rxtx_factor"] = row[7]
        flavor["OS-FLV-DISABLED:disabled"] = bool(row[9])
    if version >= V(2, 55):
        flavor["description"] = row[10]
    if version >= V(2, 61) and request.allows(EXTRA_SPECS):
        flavor["extra_specs"] = orjson.loads(row[11])
    return flavor
