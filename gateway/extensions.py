"""What Nova once called extensions: a list that has been frozen since 2.1, of what every Compute API has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from gateway.faults import not_found
from gateway.request import Handler, HandlerKey, Request, Response

NAMESPACE = "http://docs.openstack.org/compute/ext/fake_xml"
FROZEN = "2014-12-03T00:00:00Z"
OF_V2_ONLY = ["OS-EXT-VIF-NET", "ExtendedVIFNet", "Adds network id parameter to the virtual interface list."]


class Extensions:
    def handlers(self) -> Mapping[HandlerKey, Handler]:
        return {("GET", "/extensions"): self.index, ("GET", "/extensions/{alias}"): self.show}

    async def index(self, request: Request) -> Response:
        return Response({"extensions": list(extensions(v2=request.legacy_v2).values())})

    async def show(self, request: Request) -> Response:
        found = extensions(v2=request.legacy_v2).get(request.path_params["alias"])
        if found is None:
            raise not_found()
        return Response({"extension": found})


@cache
def extensions(*, v2: bool) -> Mapping[str, Any]:
    """By alias, in the order of the list."""
    rows = orjson.loads((files("gateway") / "data" / "extensions.json").read_bytes())
    if v2:
        rows = sorted([*rows, OF_V2_ONLY])
    return {
        alias: {
            "alias": alias,
            "name": name,
            "description": description,
            "links": [],
            "namespace": NAMESPACE,
            "updated": FROZEN,
        }
        for alias, name, description in rows
    }
