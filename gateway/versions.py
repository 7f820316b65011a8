"""The documents that tell which versions of the Compute API there are; answered without a token."""

from __future__ import annotations

from typing import Any

from gateway.faults import not_found
from gateway.microversions import NEWEST, OLDEST
from gateway.request import Response

MEDIA_TYPE = "application/vnd.openstack.compute+json;version="
PREFIXES = ("v2.1", "v2")


def listing(base: str) -> Response:
    """GET / of the service. `base` is where it is mounted, without a slash at the end."""
    return Response({"versions": [_version("v2", base), _version("v2.1", base)]})


def choices(base: str, path: str) -> Response:
    """A path that names no version: 300."""
    found = [
        {
            "id": version["id"],
            "status": version["status"],
            "links": [{"rel": "self", "href": f"{base}/{prefix}{path}"}],
            "media-types": _media_types(prefix),
        }
        for prefix, version in ((prefix, _version(prefix, base)) for prefix in PREFIXES)
    ]
    return Response({"choices": found}, 300)


def document(base: str, prefix: str) -> Response:
    """GET /v2.1/: what clients discover the microversions from."""
    version = _version(prefix, base)
    version["links"].append({"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"})
    version["media-types"] = _media_types(prefix)
    return Response({"version": version})


def document_of(base: str, version_id: str) -> Response:
    """GET /v2.1/versions/{version_id}: the same under an older path.

    Raises:
        Fault: 404
    """
    for prefix in PREFIXES:
        if _version(prefix, base)["id"] == version_id:
            return document(base, prefix)
    raise not_found()


def _version(prefix: str, base: str) -> dict[str, Any]:
    with_microversions = prefix == "v2.1"
    return {
        "id": "v2.1" if with_microversions else "v2.0",
        "status": "CURRENT" if with_microversions else "SUPPORTED",
        "version": str(NEWEST) if with_microversions else "",
        "min_version": str(OLDEST) if with_microversions else "",
        "updated": "2013-07-23T11:33:21Z" if with_microversions else "2011-01-21T11:33:21Z",
        "links": [{"rel": "self", "href": f"{base}/{prefix}/"}],
    }


def _media_types(prefix: str) -> list[dict[str, str]]:
    number = "2.1" if prefix == "v2.1" else "2"
    return [{"base": "application/json", "type": MEDIA_TYPE + number}]
