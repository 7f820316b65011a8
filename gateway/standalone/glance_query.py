"""Which images a list shows, in which order, a page at a time (Glance v2, "List images"). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import eq, ge, gt, le, lt, ne
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.image_record import COMMUNITY, SHARED, VISIBILITIES, Image
from gateway.standalone.exchange import Refusal
from gateway.standalone.glance_schema import image_body

DEFAULT_LIMIT, MAX_LIMIT = 25, 1000  # Glance's limit_param_default and api_limit_max

SORT_KEYS: dict[str, Callable[[Image], Any]] = {
    "name": lambda image: image.name or "",
    "status": lambda image: image.status,
    "container_format": lambda image: image.container_format or "",
    "disk_format": lambda image: image.disk_format or "",
    "size": lambda image: image.size_bytes or 0,
    "id": lambda image: image.id,
    "created_at": lambda image: image.created_at,
    "updated_at": lambda image: image.updated_at,
}
CONTROLS = frozenset({"limit", "marker", "sort", "sort_key", "sort_dir", "visibility", "member_status"})
COMPARISONS = {"gt": gt, "gte": ge, "lt": lt, "lte": le, "eq": eq, "neq": ne}
LISTS = ("id", "name", "status", "disk_format", "container_format")  # take in:a,b


def page(images: Iterable[Image], credentials: Credentials, query: QueryParams) -> dict[str, Any]:
    """Raises:
    Refusal: 400 for a filter, order, limit or marker that means nothing.
    """
    rows = [image for image in images if _listed(image, credentials, query)]
    for key, value in query.multi_items():
        if key not in CONTROLS:
            rows = [image for image in rows if _matches(image, key, value)]
    rows = _ordered(rows, query)
    if marker := query.get("marker"):
        ids = [image.id for image in rows]
        if marker not in ids:
            raise Refusal(400, f"The marker {marker} is not in the list.")
        rows = rows[ids.index(marker) + 1 :]
    limit = _limit(query)
    body: dict[str, Any] = {
        "images": [image_body(image) for image in rows[:limit]],
        "first": _link(query, None),
        "schema": "/v2/schemas/images",
    }
    if 0 < limit < len(rows):
        body["next"] = _link(query, rows[limit - 1].id)
    return body


def _listed(image: Image, credentials: Credentials, query: QueryParams) -> bool:
    """What is found without its id: nothing hidden, no community image of others, no share not accepted."""
    visibility = query.get("visibility")
    if visibility is not None and visibility not in (*VISIBILITIES, "all"):
        raise Refusal(400, f"Invalid visibility value: {visibility}")
    member_status = query.get("member_status", "accepted")
    if member_status not in ("accepted", "pending", "rejected", "all"):
        raise Refusal(400, f"Invalid member status: {member_status}")
    if "os_hidden" not in query and image.hidden:
        return False
    if not image.readable_by(credentials) or visibility not in (None, "all", image.visibility):
        return False
    if "admin" in credentials.roles or image.owner == credentials.project_id:
        return True
    if image.visibility == COMMUNITY:
        return visibility in (COMMUNITY, "all")
    if image.visibility == SHARED:
        return member_status in ("all", image.members.get(credentials.project_id or ""))
    return True


def _matches(image: Image, key: str, value: str) -> bool:
    match key:
        case "tag":
            return value in image.tags
        case "owner":
            return image.owner == value
        case "protected" | "os_hidden":
            return (image.protected if key == "protected" else image.hidden) == _flag(key, value)
        case "size_min":
            return (image.size_bytes or 0) >= _number(key, value)
        case "size_max":
            return (image.size_bytes or 0) <= _number(key, value)
        case "created_at":
            return _compared(key, int(image.created_at), value)
        case "updated_at":
            return _compared(key, int(image.updated_at), value)
        case _:
            if key in LISTS and value.startswith("in:"):
                return _field(image, key) in [one.strip('"') for one in value[3:].split(",")]
            return _field(image, key) == value


def _field(image: Image, key: str) -> str | None:
    if key in image.properties:
        return image.properties[key]
    value = image_body(image).get(key)
    return None if value is None else str(value)


def _compared(key: str, seconds: int, value: str) -> bool:
    operator, colon, moment = value.partition(":")
    if operator not in COMPARISONS or not colon:
        operator, moment = "eq", value
    try:
        at = datetime.fromisoformat(moment if moment[-1:] == "Z" or "+" in moment else moment + "+00:00")
    except ValueError:
        raise Refusal(400, f"Invalid time in {key}: {value}") from None
    return bool(COMPARISONS[operator](seconds, int(at.timestamp())))


def _ordered(rows: list[Image], query: QueryParams) -> list[Image]:
    """By created_at, the newest first, unless asked otherwise; last by id, so that pages do not overlap."""
    if "sort" in query:
        if "sort_key" in query or "sort_dir" in query:
            raise Refusal(400, "Old and new sorting syntax cannot be combined")
        wanted = [(key, way or "desc") for key, _, way in (s.partition(":") for s in query["sort"].split(","))]
    else:
        keys = query.getlist("sort_key") or ["created_at"]
        ways = query.getlist("sort_dir") or ["desc"]
        wanted = list(zip(keys, (ways * len(keys) if len(ways) == 1 else ways), strict=False))
    rows = sorted(rows, key=lambda image: image.id, reverse=bool(wanted) and wanted[0][1] == "desc")
    for key, way in reversed(wanted):
        if key not in SORT_KEYS or way not in ("asc", "desc"):
            raise Refusal(400, f"Invalid sort: {key}:{way}")
        rows.sort(key=SORT_KEYS[key], reverse=way == "desc")
    return rows


def _limit(query: QueryParams) -> int:
    return min(_number("limit", query["limit"]) if "limit" in query else DEFAULT_LIMIT, MAX_LIMIT)


def _number(key: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 18:
        raise Refusal(400, f"{key} must be a number, not negative.")
    return int(value)


def _flag(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise Refusal(400, f"{key} must be true or false.")
    return value.lower() in ("true", "1")


def _link(query: QueryParams, marker: str | None) -> str:
    items = [(key, value) for key, value in query.multi_items() if key != "marker"]
    if marker is not None:
        items.append(("marker", marker))
    return "/v2/images" + (f"?{urlencode(items)}" if items else "")
