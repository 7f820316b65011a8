"""Body of PUT /os-quota-sets/{project_id}. -1 means no limit."""

from __future__ import annotations

from gateway.microversions import Since, V, Version
from gateway.schemas.values import BOOLEAN, Forms, Schema, thing, whole_number, wrapped

STEPS = (V(2, 1), V(2, 36), V(2, 57))

COMPUTE = ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members")
NETWORK = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")  # until 2.35
INJECTED_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")  # until 2.56

LIMIT = whole_number(-1)


def _update(version: Version) -> Schema:
    names: tuple[str, ...] = COMPUTE
    if version < V(2, 36):
        names += NETWORK
    if version < V(2, 57):
        names += INJECTED_FILES
    return wrapped("quota_set", thing(dict.fromkeys(names, LIMIT) | {"force": BOOLEAN}))


BODIES: Forms = {("PUT", "/os-quota-sets/{project_id}"): Since({version: _update(version) for version in STEPS})}
