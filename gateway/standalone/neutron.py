"""The face of Neutron v2.0 over the one flat network: everything can be read, nothing can be changed.

Lists of what is not built here are empty, so that clients which look before they act go on.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.identity import Credentials, Identity
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.standalone.exchange import Refusal, answer, application, caller
from gateway.standalone.links import Links
from gateway.standalone.neutron_rows import Row, quota_row, rows_of

# Path → the collection's key and one row's key.
COLLECTIONS = {
    "networks": ("networks", "network"),
    "subnets": ("subnets", "subnet"),
    "ports": ("ports", "port"),
    "security-groups": ("security_groups", "security_group"),
    "security-group-rules": ("security_group_rules", "security_group_rule"),
    "default-security-group-rules": ("default_security_group_rules", "default_security_group_rule"),
    "extensions": ("extensions", "extension"),
    "availability_zones": ("availability_zones", "availability_zone"),
    "floatingips": ("floatingips", "floatingip"),
    "routers": ("routers", "router"),
    "subnetpools": ("subnetpools", "subnetpool"),
    "address-scopes": ("address_scopes", "address_scope"),
    "address-groups": ("address_groups", "address_group"),
    "agents": ("agents", "agent"),
    "trunks": ("trunks", "trunk"),
    "rbac-policies": ("rbac_policies", "rbac_policy"),
    "network-ip-availabilities": ("network_ip_availabilities", "network_ip_availability"),
    "service-providers": ("service_providers", "service_provider"),
}
CONTROLS = frozenset({"fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"})
WRITES = ["POST", "PUT", "PATCH", "DELETE"]


def neutron(networks: StandaloneNetworks, identity: Identity, links: Links) -> Starlette:
    """Neutron v2.0, to be mounted at /network."""

    async def versions(request: Request) -> Response:
        link = {"rel": "self", "href": f"{links.service(request)}/v2.0/"}
        return answer({"versions": [{"id": "v2.0", "status": "CURRENT", "links": [link]}]})

    async def resources(request: Request) -> Response:
        here = f"{links.service(request)}/v2.0"
        return answer(
            {
                "resources": [
                    {"name": one, "collection": many, "links": [{"rel": "self", "href": f"{here}/{path}"}]}
                    for path, (many, one) in COLLECTIONS.items()
                ]
            }
        )

    async def many(request: Request) -> Response:
        path, project_id = request.path_params["path"], _project_of(caller(request, identity))
        if path not in COLLECTIONS:
            raise _not_found(path)
        key, _ = COLLECTIONS[path]
        rows = rows_of(key, networks, project_id)
        return answer({key: _selected(rows, request)})

    async def one(request: Request) -> Response:
        path, project_id = request.path_params["path"], _project_of(caller(request, identity))
        wanted = request.path_params["id"]
        if path not in COLLECTIONS:
            raise _not_found(path)
        key, single = COLLECTIONS[path]
        for row in rows_of(key, networks, project_id):
            if wanted == row.get("alias" if key == "extensions" else "id"):
                return answer({single: _with_fields(row, request)})
        kind = "".join(word.capitalize() for word in single.split("_"))
        raise Refusal(404, f"{kind} {wanted} could not be found.", f"{kind}NotFound")

    async def quotas(request: Request) -> Response:
        credentials, wanted = caller(request, identity), request.path_params["id"]
        if wanted != credentials.project_id and "admin" not in credentials.roles:
            raise _not_found(wanted)
        return answer({"quota": quota_row(detailed=request.url.path.endswith("details.json"))})

    async def refuse(request: Request) -> Response:
        caller(request, identity)
        message = f"The network {networks.name} is fixed by this service's settings; nothing can be changed."
        raise Refusal(403, message, "PolicyNotAuthorized")

    routes = [
        Route("/", versions),
        Route("/v2.0", resources),
        Route("/v2.0/", resources),
        Route("/v2.0/{anything:path}", refuse, methods=WRITES),
        Route("/v2.0/quotas/{id}", quotas),
        Route("/v2.0/quotas/{id}/default", quotas),
        Route("/v2.0/quotas/{id}/details.json", quotas),
        Route("/v2.0/{path}", many),
        Route("/v2.0/{path}/{id}", one),
    ]
    return application(routes, _shape)


def _shape(refusal: Refusal) -> dict[str, Any]:
    """Neutron's; a missing login is answered by its middleware, in Keystone's shape."""
    if refusal.status == 401:
        return refusal.keystone_shape()
    kind = refusal.kind or f"HTTP{refusal.title.replace(' ', '')}"
    return {"NeutronError": {"type": kind, "message": refusal.message, "detail": ""}}


def _not_found(what: str) -> Refusal:
    return Refusal(404, f"The resource {what} could not be found.", "HTTPNotFound")


def _project_of(credentials: Credentials) -> str:
    return credentials.project_id or ""


def _selected(rows: list[Row], request: Request) -> list[Row]:
    """Rows whose field is one of the values the query gives for it; fields that no row has select nothing."""
    query = request.query_params
    for key in set(query.keys()) - CONTROLS:
        wanted = {value.lower() for value in query.getlist(key)}
        rows = [row for row in rows if key not in row or _as_text(row[key]) in wanted]
    ids = [row.get("id") for row in rows]
    if (marker := query.get("marker")) and marker in ids:
        rows = rows[ids.index(marker) + 1 :]
    if (limit := query.get("limit", "")).isdecimal() and len(limit) < 10:
        rows = rows[: int(limit) or None]
    return [_with_fields(row, request) for row in rows]


def _with_fields(row: Row, request: Request) -> Row:
    fields = request.query_params.getlist("fields")
    return {key: value for key, value in row.items() if key in fields} if fields else row


def _as_text(value: object) -> str:
    return "" if value is None else str(value).lower()
