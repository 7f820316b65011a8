"""Bodies of /os-aggregates."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since
from gateway.schemas.values import HOST, METADATA_WITH_NULL, NAME, Forms, Schema, text, thing, wrapped

ZONE: Schema = {"oneOf": [text(255, format="az_name"), {"type": "null"}]}
SPACED_NAME = text(255, format="name_or_spaced")
ACTION = "/os-aggregates/{aggregate_id}/action"

UPDATE = thing({"name": SPACED_NAME, "availability_zone": ZONE}) | {
    "anyOf": [{"required": ["name"]}, {"required": ["availability_zone"]}]
}


def _action(name: str, field: str, value: Schema) -> Since[Schema]:
    return Since({OLDEST: wrapped(name, thing({field: value}, [field]))})


BODIES: Forms = {
    ("POST", "/os-aggregates"): Since(
        {OLDEST: wrapped("aggregate", thing({"name": NAME, "availability_zone": ZONE}, ["name"]))}
    ),
    ("PUT", "/os-aggregates/{aggregate_id}"): Since({OLDEST: wrapped("aggregate", UPDATE)}),
    ("POST", ACTION, "add_host"): _action("add_host", "host", HOST),
    ("POST", ACTION, "remove_host"): _action("remove_host", "host", HOST),
    ("POST", ACTION, "set_metadata"): _action("set_metadata", "metadata", METADATA_WITH_NULL),
}
