"""What a create or a JSON patch makes of an image, and what it may not (Glance v2, "Images"). Pure.

A path has one step: a field, or a property, which is any other name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.image_format import CONTAINER_FORMATS, DISK_FORMATS
from commands.neighbours.standalone.image_record import PUBLIC, QUEUED, VISIBILITIES, Image
from gateway.standalone.exchange import Refusal
from gateway.standalone.glance_access import FORBIDDEN, require_member
from gateway.standalone.glance_schema import READ_ONLY, WRITABLE

MEDIA_TYPES = tuple(f"application/openstack-images-v2.{minor}-json-patch" for minor in (1, 0))
MOST_PROPERTIES = MOST_TAGS = 128  # Glance's image_property_quota and image_tag_quota
LONGEST_VALUE = 65_535
LARGEST = 2**31 - 1
PROPERTY_NAME = re.compile(r"[^\x00-\x1f]{1,255}")

_ATTRIBUTES = {"os_hidden": "hidden", "min_disk": "min_disk_gib", "min_ram": "min_ram_mib"}


def created(image_id: str, body: Mapping[str, Any], credentials: Credentials) -> Image:
    """Raises:
    Refusal
    """
    require_member(credentials)
    image = Image(id=image_id, owner=credentials.project_id, created_at=0, updated_at=0)
    for name, value in body.items():
        image = _set(image, name, value, credentials)
    return image


def altered(image: Image, operations: Any, credentials: Credentials) -> Image:
    """Raises:
    Refusal
    """
    if not isinstance(operations, list):
        raise Refusal(400, "Request body must be a JSON array of operation objects.")
    for operation in operations:
        kind, name = _operation(operation)
        exists = name in WRITABLE or name in image.properties
        if name in READ_ONLY:
            raise Refusal(403, f"Attribute '{name}' is read-only.")
        if kind in ("replace", "remove") and not exists:
            raise Refusal(409, f"Property {name} does not exist.")
        if kind == "remove":
            image = _without(image, name)
        elif "value" not in operation:
            raise Refusal(400, f"Operation {kind} needs a value.")
        else:
            image = _set(image, name, operation["value"], credentials)
    return image


def checked_tag(tag: Any) -> str:
    if not isinstance(tag, str) or not 0 < len(tag) <= 255:
        raise Refusal(400, "A tag must be text of 1 to 255 characters.")
    return tag


def _operation(operation: Any) -> tuple[str, str]:
    """Of both media types: {"op": KIND, "path": …}, or 2.0's {KIND: PATH}."""
    if not isinstance(operation, dict):
        raise Refusal(400, "Operations must be JSON objects.")
    kinds = ("add", "replace", "remove")
    kind = operation.get("op", next((one for one in kinds if one in operation), None))
    path = operation.get("path", operation.get(kind) if isinstance(kind, str) else None)
    if kind not in kinds:
        raise Refusal(400, f"Operations must be one of {', '.join(kinds)}.")
    if not isinstance(path, str) or not path.startswith("/") or path.count("/") != 1:
        raise Refusal(400, "path must be a JSON pointer of one step.")
    return kind, path[1:].replace("~1", "/").replace("~0", "~")


def _without(image: Image, name: str) -> Image:
    if name in WRITABLE:
        raise Refusal(403, f"Property {name} may not be removed.")
    return replace(image, properties={key: text for key, text in image.properties.items() if key != name})


def _set(image: Image, name: str, value: Any, credentials: Credentials) -> Image:
    if name in READ_ONLY:
        raise Refusal(403, f"Attribute '{name}' is read-only.")
    if name not in WRITABLE:
        return _with_property(image, name, value)
    if name in ("disk_format", "container_format") and image.status != QUEUED:
        raise Refusal(403, f"Attribute {name} can be only replaced for a queued image.")
    if name == "visibility" and value == PUBLIC and "admin" not in credentials.roles:
        raise Refusal(403, "Only an administrator may make an image public.")
    if name == "owner" and value != image.owner and "admin" not in credentials.roles:
        raise Refusal(403, FORBIDDEN)
    if not _fits(name, value):
        raise Refusal(400, f"Invalid value for {name}.")
    changed: dict[str, Any] = {_ATTRIBUTES.get(name, name): value}
    if name == "tags":
        changed = {"tags": tuple(sorted({checked_tag(tag) for tag in value}))}
    return replace(image, **changed)


def _fits(name: str, value: Any) -> bool:
    match name:
        case "name" | "owner":
            return value is None or (isinstance(value, str) and len(value) <= 255)
        case "visibility":
            return value in VISIBILITIES
        case "protected" | "os_hidden":
            return isinstance(value, bool)
        case "min_disk" | "min_ram":
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
        case "disk_format":
            return value is None or value in DISK_FORMATS
        case "container_format":
            return value is None or value in CONTAINER_FORMATS
        case _:
            return isinstance(value, list) and len(value) <= MOST_TAGS


def _with_property(image: Image, name: str, value: Any) -> Image:
    if not PROPERTY_NAME.fullmatch(name) or name == "members":
        raise Refusal(400, "A property's name must be printable text of 1 to 255 characters.")
    if not isinstance(value, str) or len(value) > LONGEST_VALUE:
        raise Refusal(400, f"Property {name} must be text of at most {LONGEST_VALUE} characters.")
    properties = {**image.properties, name: value}
    if len(properties) > MOST_PROPERTIES:
        raise Refusal(413, f"An image has at most {MOST_PROPERTIES} properties.")
    return replace(image, properties=properties)
