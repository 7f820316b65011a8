"""Body of POST /os-server-external-events: what may be told grows."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import UUID, Forms, Schema, many, thing, wrapped

NETWORK = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
SINCE = {
    OLDEST: NETWORK,
    V(2, 51): (*NETWORK, "volume-extended"),
    V(2, 76): (*NETWORK, "volume-extended", "power-update"),
    V(2, 82): (*NETWORK, "volume-extended", "power-update", "accelerator-request-bound"),
    V(2, 93): (*NETWORK, "volume-extended", "power-update", "accelerator-request-bound", "volume-reimaged"),
}


def _events(names: tuple[str, ...]) -> Schema:
    event = thing(
        {
            "name": {"type": "string", "enum": list(names)},
            "server_uuid": UUID,
            "status": {"type": "string", "enum": ["failed", "completed", "in-progress"]},
            "tag": {"type": "string", "maxLength": 255},
        },
        ["name", "server_uuid"],
    )
    return wrapped("events", many(event, minItems=1))


BODIES: Forms = {
    ("POST", "/os-server-external-events"): Since({version: _events(names) for version, names in SINCE.items()})
}
