"""How an image looks in Glance v2, and the JSON schemas that clients read to learn it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from commands.neighbours.standalone.image_format import CONTAINER_FORMATS, DISK_FORMATS
from commands.neighbours.standalone.image_record import HASH_ALGORITHM, VISIBILITIES, Image

READ_ONLY = (
    "id",
    "status",
    "created_at",
    "updated_at",
    "size",
    "virtual_size",
    "checksum",
    "os_hash_algo",
    "os_hash_value",
    "self",
    "file",
    "schema",
    "direct_url",
    "locations",
    "stores",
    "store",
)
WRITABLE = (
    "name",
    "visibility",
    "protected",
    "os_hidden",
    "owner",
    "disk_format",
    "container_format",
    "min_disk",
    "min_ram",
    "tags",
)


def image_body(image: Image) -> dict[str, Any]:
    here = f"/v2/images/{image.id}"
    return {
        **image.properties,
        "id": image.id,
        "name": image.name,
        "status": image.status,
        "visibility": image.visibility,
        "protected": image.protected,
        "os_hidden": image.hidden,
        "owner": image.owner,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "min_disk": image.min_disk_gib,
        "min_ram": image.min_ram_mib,
        "size": image.size_bytes,
        "virtual_size": image.virtual_size_bytes,
        "checksum": image.md5,
        "os_hash_algo": HASH_ALGORITHM if image.sha512 else None,
        "os_hash_value": image.sha512,
        "tags": image.tags,
        "created_at": time_text(image.created_at),
        "updated_at": time_text(image.updated_at),
        "self": here,
        "file": f"{here}/file",
        "schema": "/v2/schemas/image",
    }


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(longest: int | None = 255, **more: Any) -> dict[str, Any]:
    return {"type": ["null", "string"], **({"maxLength": longest} if longest else {}), **more}


def _read_only(kind: str) -> dict[str, Any]:
    return {"type": ["null", kind], "readOnly": True}


_BYTES = _read_only("integer")
_FIELDS: dict[str, Any] = {
    "id": {
        "type": "string",
        "pattern": "^([0-9a-f]){8}-([0-9a-f]){4}-([0-9a-f]){4}-([0-9a-f]){4}-([0-9a-f]){12}$",
    },
    "name": _text(),
    "visibility": {"type": "string", "enum": VISIBILITIES},
    "protected": {"type": "boolean"},
    "os_hidden": {"type": "boolean"},
    "owner": _text(),
    "disk_format": _text(None, enum=[None, *DISK_FORMATS]),
    "container_format": _text(None, enum=[None, *CONTAINER_FORMATS]),
    "min_disk": {"type": "integer", "description": "GiB"},
    "min_ram": {"type": "integer", "description": "MiB"},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
    **{name: _read_only("string") for name in READ_ONLY[1:] if name not in ("locations", "stores", "size")},
    "size": _BYTES,
    "virtual_size": _BYTES,
}
IMAGE_SCHEMA: dict[str, Any] = {
    "name": "image",
    "properties": _FIELDS,
    "additionalProperties": {"type": "string"},
    "links": [
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}
IMAGES_SCHEMA: dict[str, Any] = {
    "name": "images",
    "properties": {
        "images": {"type": "array", "items": IMAGE_SCHEMA},
        "first": {"type": "string"},
        "next": {"type": "string"},
        "schema": {"type": "string"},
    },
    "links": [
        {"rel": "first", "href": "{first}"},
        {"rel": "next", "href": "{next}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}
