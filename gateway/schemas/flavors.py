"""Bodies of POST /flavors and PUT /flavors/{id}; of extra specs and access."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V, Version
from gateway.schemas.values import BOOLEAN, METADATA, NAME, Forms, Schema, text, thing, whole_number, wrapped

CREATE_STEPS = (V(2, 1), V(2, 55), V(2, 102))

FLAVOR_ID: Schema = {
    "type": ["string", "number", "null"],
    "minLength": 1,
    "maxLength": 255,
    "pattern": "^[a-zA-Z0-9._-]([a-zA-Z0-9. _-]*[a-zA-Z0-9._-])?$",
}
RXTX_FACTOR: Schema = {
    "type": ["number", "string"],
    "maxLength": 40,
    "pattern": r"^[0-9]+(\.[0-9]+)?$",
    "minimum": 0,
    "exclusiveMinimum": True,
    "maximum": 3.40282e38,
}
DESCRIPTION: Schema = {"type": ["string", "null"], "minLength": 0, "maxLength": 65535, "format": "printable"}


METADATA_KEY = "^[a-zA-Z0-9_:. -]{1,255}$"
EXTRA_SPECS: Schema = METADATA | {"patternProperties": {METADATA_KEY: {"type": ["string", "number"], "maxLength": 255}}}
TENANT = thing({"tenant": text(255)}, ["tenant"])
ACTION = "/flavors/{flavor_id}/action"


def _create(version: Version) -> Schema:
    flavor = {
        "name": NAME,
        "id": FLAVOR_ID,
        "ram": whole_number(1),
        "vcpus": whole_number(1),
        "disk": whole_number(0),
        "OS-FLV-EXT-DATA:ephemeral": whole_number(0),
        "swap": whole_number(0),
        "os-flavor-access:is_public": BOOLEAN,
    }
    if version < V(2, 102):
        flavor["rxtx_factor"] = RXTX_FACTOR
    if version >= V(2, 55):
        flavor["description"] = DESCRIPTION
    return wrapped("flavor", thing(flavor, ["name", "ram", "vcpus", "disk"]))


BODIES: Forms = {
    ("POST", "/flavors"): Since({version: _create(version) for version in CREATE_STEPS}),
    ("PUT", "/flavors/{flavor_id}"): Since(
        {V(2, 55): wrapped("flavor", thing({"description": DESCRIPTION}, ["description"]))}
    ),
    ("POST", "/flavors/{flavor_id}/os-extra_specs"): Since({OLDEST: wrapped("extra_specs", EXTRA_SPECS)}),
    ("PUT", "/flavors/{flavor_id}/os-extra_specs/{key}"): Since(
        {OLDEST: EXTRA_SPECS | {"minProperties": 1, "maxProperties": 1}}
    ),
    ("POST", ACTION, "addTenantAccess"): Since({OLDEST: wrapped("addTenantAccess", TENANT)}),
    ("POST", ACTION, "removeTenantAccess"): Since({OLDEST: wrapped("removeTenantAccess", TENANT)}),
}
