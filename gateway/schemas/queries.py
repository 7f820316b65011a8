"""Queries: which fields each operation knows. A closed one refuses others; an open one drops them (Nova)."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.microversions import OLDEST, Since, V, Version
from gateway.schemas.values import (
    ANY_PATTERN,
    ANY_TEXT,
    ANY_TIME,
    BOOLEAN,
    NOT_NEGATIVE,
    Forms,
    Schema,
    any_times,
    once,
    thing,
)

ALL_CLOSED = V(2, 102)  # from it, what has no schema here takes no query at all
STRICT = V(2, 75)

PAGED: dict[str, Schema] = {"limit": once(NOT_NEGATIVE), "marker": once({"type": "string"})}
USER: dict[str, Schema] = {"user_id": ANY_TEXT}
PERIOD: dict[str, Schema] = {"start": ANY_TEXT, "end": ANY_TEXT}

# Sorting by one of these changes nothing, as in Nova: they are columns of its tables that say nothing of order.
IGNORED_SORT_KEYS = (
    "architecture", "cell_name", "cleaned", "default_ephemeral_device", "default_swap_device", "deleted", "deleted_at",
    "disable_terminate", "ephemeral_gb", "ephemeral_key_uuid", "id", "key_data", "launched_on", "memory_mb", "os_type",
    "reservation_id", "root_gb", "shutdown_terminate", "user_data", "vcpus", "vm_mode",
)  # fmt: skip
SORT_KEYS = (
    "access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at",
    "display_description", "display_name", "host", "hostname", "image_ref", "instance_type_id", "kernel_id", "key_name",
    "launch_index", "launched_at", "locked", "locked_by", "node", "power_state", "progress", "project_id", "ramdisk_id",
    "root_device_name", "task_state", "terminated_at", "updated_at", "user_id", "uuid", "vm_state",
)  # fmt: skip
SERVER_TEXTS = (
    "all_tenants", "block_device_mapping", "deleted", "host", "image", "image_ref", "info_cache", "launch_index",
    "metadata", "pci_devices", "project_id", "security_groups", "services", "soft_deleted", "sort_dir", "status",
    "system_metadata", "task_state", "tenant_id", "user_id", "uuid", "vm_state",
)  # fmt: skip
SERVER_PATTERNS = (
    "access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at",
    "description", "display_description", "display_name", "flavor", "hostname", "ip", "ip6", "kernel_id", "key_name",
    "launched_at", "locked_by", "name", "node", "power_state", "progress", "ramdisk_id", "reservation_id",
    "root_device_name", "terminated_at",
)  # fmt: skip
FLAVOR_SORT_KEYS = (
    "created_at", "description", "disabled", "ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name",
    "root_gb", "rxtx_factor", "swap", "updated_at", "vcpu_weight", "vcpus",
)  # fmt: skip


def _servers(version: Version) -> Schema:
    fields: dict[str, Schema] = dict.fromkeys(SERVER_TEXTS, ANY_TEXT)
    fields |= dict.fromkeys(SERVER_PATTERNS, ANY_PATTERN)
    fields |= {"limit": any_times(NOT_NEGATIVE), "marker": ANY_TEXT, "changes-since": ANY_TIME}
    sort_keys = SORT_KEYS if version >= STRICT else (*SORT_KEYS, *IGNORED_SORT_KEYS)
    fields["sort_key"] = any_times({"type": "string", "enum": list(sort_keys)})
    if version >= V(2, 26):
        fields |= dict.fromkeys(("tags", "tags-any", "not-tags", "not-tags-any"), ANY_PATTERN)
    if version >= V(2, 66):
        fields["changes-before"] = ANY_TIME
    if version >= V(2, 73):
        fields["locked"] = ANY_TEXT
    schema = thing(fields, closed=version >= STRICT)
    schema["patternProperties"] = {"^_": ANY_TEXT}
    return schema


def _flavors(version: Version) -> Schema:
    fields = {
        "limit": any_times(NOT_NEGATIVE),
        "marker": ANY_TEXT,
        "is_public": ANY_TEXT,
        "minRam": ANY_TEXT,
        "minDisk": ANY_TEXT,
        "sort_dir": any_times({"type": "string", "enum": ["asc", "desc"]}),
    }
    sort_keys = list(FLAVOR_SORT_KEYS)
    if version >= V(2, 102):
        sort_keys.remove("rxtx_factor")
        fields["name"] = ANY_TEXT
    fields["sort_key"] = any_times({"type": "string", "enum": sort_keys})
    return thing(fields, closed=version >= STRICT)


def _open_then_closed(fields: Mapping[str, Schema]) -> Since[Schema]:
    return Since({OLDEST: thing(fields, closed=False), STRICT: thing(fields)})


def _usage(fields: Mapping[str, Schema]) -> Since[Schema]:
    paged = {"limit": any_times(NOT_NEGATIVE), "marker": ANY_TEXT, **fields}
    return Since({OLDEST: thing(fields, closed=False), V(2, 40): thing(paged, closed=False), STRICT: thing(paged)})


_SERVERS = Since({version: _servers(version) for version in (OLDEST, V(2, 26), V(2, 66), V(2, 73), STRICT)})
_FLAVORS = Since({version: _flavors(version) for version in (OLDEST, STRICT, V(2, 102))})
_ONE_KEYPAIR = Since({OLDEST: thing({}, closed=False), V(2, 10): thing(USER, closed=False), STRICT: thing(USER)})
_HYPERVISORS = Since(
    {
        OLDEST: thing({}, closed=False),
        V(2, 33): thing(PAGED, closed=False),
        V(2, 53): thing(
            PAGED | {"hypervisor_hostname_pattern": once({"type": "string"}), "with_servers": once(BOOLEAN)}
        ),
    }
)
_CHANGES: dict[str, Schema] = PAGED | {"changes-since": once({"type": "string", "format": "date-time"})}

QUERIES: Forms = {
    ("GET", "/servers"): _SERVERS,
    ("GET", "/servers/detail"): _SERVERS,
    ("GET", "/flavors"): _FLAVORS,
    ("GET", "/flavors/detail"): _FLAVORS,
    ("GET", "/os-keypairs"): Since(
        {
            OLDEST: thing({}, closed=False),
            V(2, 10): thing(USER, closed=False),
            V(2, 35): thing(USER | PAGED, closed=False),
            STRICT: thing(USER | PAGED),
        }
    ),
    ("GET", "/os-keypairs/{keypair_name}"): _ONE_KEYPAIR,
    ("DELETE", "/os-keypairs/{keypair_name}"): _ONE_KEYPAIR,
    ("GET", "/os-quota-sets/{project_id}"): _open_then_closed(USER),
    ("GET", "/os-quota-sets/{project_id}/detail"): _open_then_closed(USER),
    ("PUT", "/os-quota-sets/{project_id}"): _open_then_closed(USER),
    ("DELETE", "/os-quota-sets/{project_id}"): _open_then_closed(USER),
    ("GET", "/limits"): _open_then_closed({"tenant_id": ANY_TEXT}),
    ("GET", "/os-hypervisors"): _HYPERVISORS,
    ("GET", "/os-hypervisors/detail"): _HYPERVISORS,
    ("GET", "/os-hypervisors/{hypervisor_id}"): Since(
        {OLDEST: thing({}, closed=False), V(2, 53): thing({"with_servers": once(BOOLEAN)})}
    ),
    ("GET", "/os-hosts"): Since({OLDEST: thing({"zone": ANY_TEXT}, closed=False)}),
    ("GET", "/os-server-groups"): _open_then_closed(
        {"all_projects": ANY_TEXT, "limit": any_times(NOT_NEGATIVE), "offset": any_times(NOT_NEGATIVE)}
    ),
    ("GET", "/os-simple-tenant-usage"): _usage(PERIOD | {"detailed": ANY_TEXT}),
    ("GET", "/os-simple-tenant-usage/{project_id}"): _usage(PERIOD),
    ("GET", "/os-services"): _open_then_closed({"host": ANY_TEXT, "binary": ANY_TEXT}),
    ("GET", "/servers/{server_id}/os-instance-actions"): Since(
        {
            OLDEST: thing({}, closed=False),
            V(2, 58): thing(_CHANGES),
            V(2, 66): thing(_CHANGES | {"changes-before": once({"type": "string", "format": "date-time"})}),
        }
    ),
}
