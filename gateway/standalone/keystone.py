"""The face of Keystone v3: version documents, the catalog's parts, and the routes of everything else.

Logging in is in `keystone_tokens.py`; accounts are in `keystone_projects.py`, `_users.py` and `_roles.py`.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commands.neighbours.standalone.identity import StandaloneIdentity
from gateway.standalone.catalog import REGION, SERVICES
from gateway.standalone.exchange import Refusal, answer, application, caller
from gateway.standalone.keystone_listing import listing, require_reader
from gateway.standalone.keystone_projects import ProjectRoutes
from gateway.standalone.keystone_roles import RoleRoutes
from gateway.standalone.keystone_tokens import TokenRoutes
from gateway.standalone.keystone_users import UserRoutes
from gateway.standalone.links import Links

VERSION = "v3.14"
MEDIA_TYPES = [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}]


def keystone(identity: StandaloneIdentity, links: Links) -> Starlette:
    """Keystone v3, to be mounted at /identity."""
    rooms = (TokenRoutes, ProjectRoutes, UserRoutes, RoleRoutes)

    async def versions(request: Request) -> Response:
        return answer({"versions": {"values": [_version(links.service(request))]}}, 300)

    async def version(request: Request) -> Response:
        return answer({"version": _version(links.service(request))})

    async def regions(request: Request) -> Response:
        caller(request, identity)
        self_link = f"{links.service(request)}/v3/regions/{REGION}"
        row = {"id": REGION, "description": "", "parent_region_id": None, "links": {"self": self_link}}
        return _listed_or_shown(request, links, "regions", [row])

    async def services(request: Request) -> Response:
        require_reader(caller(request, identity))
        here = f"{links.service(request)}/v3/services"
        rows = [
            {"id": one.id, "type": one.type, "name": one.name, "description": "", "enabled": True}
            | {"links": {"self": f"{here}/{one.id}"}}
            for one in SERVICES
        ]
        return _listed_or_shown(request, links, "services", rows)

    async def endpoints(request: Request) -> Response:
        require_reader(caller(request, identity))
        here = f"{links.service(request)}/v3/endpoints"
        rows = [
            endpoint | {"service_id": one.id, "enabled": True, "links": {"self": f"{here}/{endpoint['id']}"}}
            for one in SERVICES
            for endpoint in one.endpoints(links.base(request))
        ]
        return _listed_or_shown(request, links, "endpoints", rows)

    routes = [
        Route("/", versions),
        Route("/v3", version),
        Route("/v3/", version),
        Route("/v3/regions", regions),
        Route("/v3/regions/{id}", regions),
        Route("/v3/services", services),
        Route("/v3/services/{id}", services),
        Route("/v3/endpoints", endpoints),
        Route("/v3/endpoints/{id}", endpoints),
    ]
    routes += [route for room in rooms for route in room(identity, links).routes()]
    return application(routes, Refusal.keystone_shape)


def _version(service: str) -> dict[str, Any]:
    return {
        "id": VERSION,
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{service}/v3/"}],
        "media-types": MEDIA_TYPES,
    }


def _listed_or_shown(request: Request, links: Links, name: str, rows: list[dict[str, Any]]) -> Response:
    wanted = request.path_params.get("id")
    if wanted is None:
        return listing(request, links, name, rows)
    for row in rows:
        if row["id"] == wanted:
            return answer({name[:-1]: row})
    raise Refusal(404, f"Could not find {name[:-1]}: {wanted}.")
