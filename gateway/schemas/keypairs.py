"""Body of POST /os-keypairs."""

from __future__ import annotations

from gateway.microversions import Since, V, Version
from gateway.schemas.values import NAME, Forms, Schema, text, thing, wrapped

STEPS = (V(2, 1), V(2, 2), V(2, 10), V(2, 92))


def _create(version: Version) -> Schema:
    name = "keypair_name" if version < V(2, 92) else "keypair_name_292"
    keypair: dict[str, Schema] = {
        "name": {"allOf": [NAME, {"format": name}]},
        "public_key": {"type": "string"},
    }
    if version >= V(2, 2):
        keypair["type"] = {"type": "string", "enum": ["ssh", "x509"]}
    if version >= V(2, 10):
        keypair["user_id"] = text(255, shortest=0)
    return wrapped("keypair", thing(keypair, ["name"] if version < V(2, 92) else ["public_key", "name"]))


BODIES: Forms = {("POST", "/os-keypairs"): Since({version: _create(version) for version in STEPS})}
