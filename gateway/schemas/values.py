"""Values that many bodies and queries have, as JSON schemas in Nova's terms.

Keywords stand in the order in which a client is told of them, and lengths before patterns, so that long text is refused
before a pattern looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.microversions import Since
from gateway.operations import OperationKey
from gateway.schemas.formats import FORMATS, whole

Schema = dict[str, Any]
Forms = dict[OperationKey, Since[Schema]]  # for each operation, from which microversion on

MAX_INTEGER = 0x7FFFFFFF  # of Nova's columns
MAX_BIG_INTEGER = 0x7FFFFFFFFFFFFFFF


def whole_number(low: int, high: int = MAX_INTEGER, *, null: bool = False) -> Schema:
    """A number, or the same in text."""
    bounds = f"whole {low}..{high}"
    FORMATS.setdefault(bounds, whole(low, high))
    return {
        "type": ["integer", "string", "null"] if null else ["integer", "string"],
        "minLength": 1,
        "maxLength": 20,
        "pattern": "^-?[0-9]+$" if low < 0 else "^[0-9]*$",
        "minimum": low,
        "maximum": high,
        "format": bounds,
    }


def thing(properties: Mapping[str, Schema], required: Sequence[str] = (), *, closed: bool = True) -> Schema:
    """An object; a closed one has no other keys."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = not closed
    return schema


def wrapped(key: str, schema: Schema) -> Schema:
    """A body of one key that has to be there."""
    return thing({key: schema}, [key])


def many(items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items} | limits


def text(longest: int, *, shortest: int = 1, **more: Any) -> Schema:
    return {"type": "string", "minLength": shortest, "maxLength": longest} | more


NAME = text(255, format="name")
DESCRIPTION: Schema = {"type": ["string", "null"], "minLength": 0, "maxLength": 255, "format": "printable"}
UUID: Schema = {"type": "string", "format": "uuid"}
TRUTHS = ["True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes", "y", "t"]
UNTRUTHS = ["False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no", "n", "f"]
BOOLEAN: Schema = {"type": ["boolean", "string"], "enum": [True, *TRUTHS, False, *UNTRUTHS]}
POSITIVE = whole_number(1, MAX_BIG_INTEGER)
NOT_NEGATIVE = whole_number(0, MAX_BIG_INTEGER)
HOST = text(255, pattern="^[a-zA-Z0-9._-]*$")  # of a service or hypervisor: underscores do occur
ADDRESS: Schema = {"type": "string", "oneOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
TAG = text(60, pattern="^[^,/]*$")
METADATA: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9_:. -]{1,255}$": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
}

METADATA_WITH_NULL: Schema = METADATA | {
    "patternProperties": {"^[a-zA-Z0-9_:. -]{1,255}$": {"type": ["string", "null"], "maxLength": 255}}
}


def any_times(value: Schema) -> Schema:
    """A query field that may come several times."""
    return many(value)


def once(value: Schema) -> Schema:
    return many(value, maxItems=1)


ANY_TEXT = any_times({"type": "string"})
ANY_PATTERN = any_times({"type": "string", "format": "regex"})
ANY_TIME = any_times({"type": "string", "format": "date-time"})
