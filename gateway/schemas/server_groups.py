"""Body of POST /os-server-groups."""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import MAX_INTEGER, NAME, Forms, Schema, many, thing, whole_number, wrapped

HARD, SOFT = ("anti-affinity", "affinity"), ("soft-anti-affinity", "soft-affinity")


def _policies(names: tuple[str, ...]) -> Schema:
    """A list of one."""
    policies = many({"type": "string", "enum": list(names)}, minItems=1, maxItems=1)
    return wrapped("server_group", thing({"name": NAME, "policies": policies}, ["name", "policies"]))


_POLICY = {
    "name": NAME,
    "policy": {"type": "string", "enum": [*HARD, *SOFT]},
    "rules": thing({"max_server_per_host": whole_number(1, MAX_INTEGER)}),
}

BODIES: Forms = {
    ("POST", "/os-server-groups"): Since(
        {
            OLDEST: _policies(HARD),
            V(2, 15): _policies((*HARD, *SOFT)),
            V(2, 64): wrapped("server_group", thing(_POLICY, ["name", "policy"])),
        }
    )
}
