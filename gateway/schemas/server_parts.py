"""Bodies about what hangs on a server: metadata and tags."""

from __future__ import annotations

from commands.instance.tags import MOST_TAGS
from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import METADATA, TAG, Forms, many, wrapped

SERVER = "/servers/{server_id}"
_METADATA = Since({OLDEST: wrapped("metadata", METADATA)})

BODIES: Forms = {
    ("POST", f"{SERVER}/metadata"): _METADATA,
    ("PUT", f"{SERVER}/metadata"): _METADATA,
    ("PUT", f"{SERVER}/metadata/{{key}}"): Since(
        {OLDEST: wrapped("meta", METADATA | {"minProperties": 1, "maxProperties": 1})}
    ),
    ("PUT", f"{SERVER}/tags"): Since({V(2, 26): wrapped("tags", many(TAG, maxItems=MOST_TAGS))}),
    ("PUT", f"{SERVER}/tags/{{tag}}"): Since({V(2, 26): {"type": "null"}}),
}
