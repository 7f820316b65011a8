"""Bodies of PUT /os-quota-sets/{project_id} and /os-quota-class-sets/{class_name}, and the names of each version. -1 means
no limit.
"""

from __future__ import annotations

from gateway.microversions import OLDEST, Since, V
from gateway.schemas.values import BOOLEAN, Forms, Schema, thing, whole_number, wrapped

COMPUTE = ("instances", "cores", "ram", "metadata_items", "key_pairs")
SERVER_GROUPS = ("server_groups", "server_group_members")  # of a class from 2.50 on
NETWORK = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")  # until 2.35, of a class 2.49
INJECTED_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")  # until 2.56

OF_A_PROJECT: Since[tuple[str, ...]] = Since(
    {
        OLDEST: COMPUTE + SERVER_GROUPS + NETWORK + INJECTED_FILES,
        V(2, 36): COMPUTE + SERVER_GROUPS + INJECTED_FILES,
        V(2, 57): COMPUTE + SERVER_GROUPS,
    }
)
OF_A_CLASS: Since[tuple[str, ...]] = Since(  # as it is shown
    {
        OLDEST: COMPUTE + NETWORK + INJECTED_FILES,
        V(2, 50): COMPUTE + SERVER_GROUPS + INJECTED_FILES,
        V(2, 57): COMPUTE + SERVER_GROUPS,
    }
)
LIMIT = whole_number(-1)


def _bodies(key: str, names: Since[tuple[str, ...]], *more: str, **fields: Schema) -> Since[Schema]:
    return Since(
        {
            version: wrapped(key, thing(dict.fromkeys((*form, *more), LIMIT) | fields))
            for version, form in zip(names.versions, names.forms, strict=True)
        }
    )


BODIES: Forms = {
    ("PUT", "/os-quota-sets/{project_id}"): _bodies("quota_set", OF_A_PROJECT, force=BOOLEAN),
    ("PUT", "/os-quota-class-sets/{class_name}"): _bodies("quota_class_set", OF_A_CLASS, *SERVER_GROUPS),
}
