"""Bodies about what hangs on a server: metadata, tags, consoles."""

from __future__ import annotations

from commands.instance.tags import MOST_TAGS
from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import METADATA, TAG, Forms, Schema, many, thing, wrapped

SERVER = "/servers/{server_id}"
_METADATA = Since({OLDEST: wrapped("metadata", METADATA)})

PROTOCOLS = ["vnc", "spice", "serial", "rdp"]
CONSOLE_TYPES = ["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"]


def _console(protocols: list[str], types: list[str]) -> Schema:
    fields: dict[str, Schema] = {
        "protocol": {"type": "string", "enum": protocols},
        "type": {"type": "string", "enum": types},
    }
    return wrapped("remote_console", thing(fields, list(fields)))


BODIES: Forms = {
    ("POST", f"{SERVER}/metadata"): _METADATA,
    ("PUT", f"{SERVER}/metadata"): _METADATA,
    ("PUT", f"{SERVER}/metadata/{{key}}"): Since(
        {OLDEST: wrapped("meta", METADATA | {"minProperties": 1, "maxProperties": 1})}
    ),
    ("PUT", f"{SERVER}/tags"): Since({V(2, 26): wrapped("tags", many(TAG, maxItems=MOST_TAGS))}),
    ("PUT", f"{SERVER}/tags/{{tag}}"): Since({V(2, 26): {"type": "null"}}),
    ("POST", f"{SERVER}/remote-consoles"): Since(
        {
            V(2, 6): _console(PROTOCOLS, CONSOLE_TYPES),
            V(2, 8): _console([*PROTOCOLS, "mks"], [*CONSOLE_TYPES, "webmks"]),
            V(2, 99): _console([*PROTOCOLS, "mks"], [*CONSOLE_TYPES, "webmks", "spice-direct"]),
        }
    ),
}
