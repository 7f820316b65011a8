"""Flavors: list, detail, show, create, describe, delete. Extra specs and access: `flavor_extras.py`."""

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
from gateway.microversions import Steps, V, Version, without
from gateway.request import Handler, HandlerKey, Request, Response
from gateway.schemas.values import MAX_BIG_INTEGER

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
EXTRA_SPECS_COLUMN = 11
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
        }

    async def index(self, request: Request) -> Response:
        return await self._page(request, "flavors", whole=False)

    async def detail(self, request: Request) -> Response:
        return await self._page(request, "flavors/detail", whole=True)

    async def show(self, request: Request) -> Response:
        return Response({"flavor": _whole(await self._row(request, request.path_params["flavor_id"]), request)})

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

    async def _row(self, request: Request, flavor_id: str) -> Any:
        return await find_flavor(self._backend, request, flavor_id)

    async def _page(self, request: Request, path: str, *, whole: bool) -> Response:
        query = request.query
        conditions, parameters = _asked_for(request)
        sorted_by = SORTABLE[query.get("sort_key") or "flavorid"]
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
        shown = _whole if whole else _brief
        body: dict[str, Any] = {"flavors": [shown(row, request) for row in rows]}
        if rows and len(rows) == limit:
            href = f"{request.base_url}/{path}?{query.with_changed(marker=rows[-1][0])}"
            body["flavors_links"] = [{"rel": "next", "href": href}]
        return Response(body)


async def find_flavor(backend: Backend, request: Request, flavor_id: str) -> Any:
    """A flavor's row, if the caller's project may see it.

    Raises:
        FlavorNotFound: HTTP answers 404.
    """
    condition, parameters = _visible(request)
    row = await backend.views.row(
        f"SELECT {_COLUMNS} FROM flavors f WHERE flavor_id = ? AND ({condition})", (flavor_id, *parameters)
    )
    if row is None:
        raise FlavorNotFound(flavor_id)
    return row


def _visible(request: Request) -> tuple[str, tuple[object, ...]]:
    """The flavors that the caller may use: public ones and its project's; for administrators all."""
    if request.allows("context_is_admin"):
        return "1", ()
    return _OWN, (request.credentials.project_id,)


def _asked_for(request: Request) -> tuple[list[str], list[object]]:
    """The query's filters as conditions, and their parameters.

    Raises:
        Fault: 400
    """
    query = request.query
    conditions = [f"({_OWN})"]
    parameters: list[object] = [request.credentials.project_id]
    asked = query.get("is_public")
    if asked is not None and request.allows("context_is_admin"):  # dropped for others
        if asked.lower() == "none":
            conditions, parameters = [], []
        elif not _truth_of(asked):
            conditions, parameters = ["NOT is_public"], []
    for name, column in (("minRam", "memory_mib"), ("minDisk", "root_gib")):
        text = query.get(name)
        if text is not None:
            conditions.append(f"{column} >= ?")
            parameters.append(_least(name, text))
    if (wanted := query.get("name")) is not None and request.version >= V(2, 102):
        conditions.append("instr(name, ?) > 0")
        parameters.append(wanted)
    return conditions, parameters


def _truth_of(asked: str) -> bool:
    word = asked.strip().lower()
    if word not in _WORDS:
        raise Fault(400, f"Invalid is_public filter [{asked[:50]}]")
    return _WORDS[word]


_WORDS = dict.fromkeys(("1", "t", "true", "on", "y", "yes"), True) | dict.fromkeys(
    ("0", "f", "false", "off", "n", "no"), False
)


def _least(name: str, text: str) -> int:
    """At most what a column can hold."""
    try:
        return max(-1, min(int(text[:20]), MAX_BIG_INTEGER))
    except ValueError:
        raise Fault(400, f"Invalid {name} filter [{text[:50]}]") from None


def _limit(text: str | None, most: int) -> int:
    return most if text is None or not text.isdigit() or int(text[:12]) == 0 else min(int(text[:12]), most)


def _links(row: Any, request: Request) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": f"{request.base_url}/flavors/{row[12]}"},
        {"rel": "bookmark", "href": f"{request.bookmark_url}/flavors/{row[12]}"},
    ]


def _brief(row: Any, request: Request) -> dict[str, Any]:
    flavor = {"id": row[0], "name": row[1], "links": _links(row, request), "description": row[10]}
    return VIEW.lower(flavor, request.version)


def _whole(row: Any, request: Request) -> dict[str, Any]:
    flavor: dict[str, Any] = {
        "id": row[0],
        "name": row[1],
        "ram": row[2],
        "disk": row[3],
        "OS-FLV-EXT-DATA:ephemeral": row[4],
        "vcpus": row[5],
        "swap": row[6],
        "os-flavor-access:is_public": bool(row[8]),
        "links": _links(row, request),
        "description": row[10],
    }
    if request.allows(EXTRA_SPECS):
        flavor["extra_specs"] = orjson.loads(row[EXTRA_SPECS_COLUMN])
    return _with_older(row, VIEW.lower(flavor, request.version), request.version)


def _with_older(row: Any, flavor: dict[str, Any], version: Version) -> dict[str, Any]:
    """Two fields were taken away at 2.102."""
    return (
        flavor if version >= V(2, 102) else flavor | {"rxtx_factor": row[7], "OS-FLV-DISABLED:disabled": bool(row[9])}
    )


def _no_swap_is_empty(flavor: dict[str, Any]) -> None:
    if flavor.get("swap") == 0:
        flavor["swap"] = ""


VIEW = Steps(
    (V(2, 55), without("description")),
    (V(2, 61), without("extra_specs")),
    (V(2, 75), _no_swap_is_empty),
)
