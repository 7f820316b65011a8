"""Keystone's lists, and who may read them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from commands.neighbours.identity import Credentials
from gateway.standalone.exchange import Refusal, answer
from gateway.standalone.links import Links

NOT_AUTHORIZED = "You are not authorized to perform the requested action."


def require_admin(credentials: Credentials) -> None:
    if "admin" not in credentials.roles:
        raise Refusal(403, NOT_AUTHORIZED)


def require_reader(credentials: Credentials) -> None:
    """An admin, or any reader of the system."""
    if not (credentials.system_scope and "reader" in credentials.roles):
        require_admin(credentials)


def listing(request: Request, links: Links, name: str, rows: list[dict[str, Any]]) -> Response:
    """The rows whose fields equal the query's, after `marker`, at most `limit`; other keys are skipped."""
    query = request.query_params
    for key, value in query.items():
        if rows and key in rows[0] and key not in ("links", "options", "tags"):
            rows = [row for row in rows if _as_text(row.get(key)) == value.lower()]
    ids = [row.get("id") for row in rows]
    if (marker := query.get("marker")) and marker in ids:
        rows = rows[ids.index(marker) + 1 :]
    if (limit := query.get("limit", "")).isdecimal() and len(limit) < 10:
        rows = rows[: int(limit) or None]
    here = f"{links.service(request)}/v3/{name}"
    return answer({name: rows, "links": {"self": here, "previous": None, "next": None}})


def _as_text(value: object) -> str:
    return "" if value is None else str(value).lower()
