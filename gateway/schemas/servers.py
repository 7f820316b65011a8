"""Bodies of POST /servers and PUT /servers/{id}, in every shape they have had."""

from __future__ import annotations

from typing import Any

from gateway.microversions import Since, V, Version
from gateway.schemas.values import (
    ADDRESS,
    BOOLEAN,
    DESCRIPTION,
    HOST,
    METADATA,
    NAME,
    POSITIVE,
    TAG,
    UUID,
    Forms,
    Schema,
    many,
    text,
    thing,
    whole_number,
)

CREATE_STEPS = tuple(V(2, minor) for minor in (1, 19, 32, 33, 37, 42, 52, 57, 63, 67, 74, 90, 94))
UPDATE_STEPS = tuple(V(2, minor) for minor in (1, 19, 90, 94, 104))

DISK_CONFIG: Schema = {"type": "string", "enum": ["AUTO", "MANUAL"]}
HOSTNAME = text(63, shortest=2, pattern="^[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]$")
DOMAIN_NAME = text(255, shortest=2, pattern="^[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]$")
USER_DATA: Schema = {"type": "string", "maxLength": 65535, "format": "base64"}
VOLUME_SIZE_GIB = whole_number(1)
SEVERAL_UUIDS: Schema = {"oneOf": [UUID, many(UUID)]}

FLAVOR_REFERENCE: Schema = {"type": ["string", "integer"], "minLength": 1}
IMAGE_REFERENCE: Schema = {"oneOf": [UUID, {"type": "string", "maxLength": 0}]}  # empty: boot from a volume
PERSONALITY = many(
    thing({"path": {"type": "string"}, "contents": {"type": "string", "format": "base64"}}, ["path", "contents"])
)
SECURITY_GROUPS = many(thing({"name": text(255)}))
CERTIFICATES: Schema = {
    "type": ["array", "null"],
    "minItems": 1,
    "maxItems": 50,
    "uniqueItems": True,
    "items": text(1024),
}

HINTS: Schema = thing(
    {
        "group": UUID,
        "different_host": SEVERAL_UUIDS,
        "same_host": SEVERAL_UUIDS,
        "query": {"type": ["string", "object"]},
        "target_cell": {"type": ["string", "object"]},
        "different_cell": {"oneOf": [{"type": "string"}, many({"type": "string"})]},
        "build_near_host_ip": ADDRESS,
        "cidr": text(50, pattern="^/[0-9a-f.:]+$"),
    },
    closed=False,
)

LEGACY_DEVICE: dict[str, Schema] = {
    "virtual_name": text(255, shortest=0),
    "volume_id": UUID,
    "snapshot_id": UUID,
    "volume_size": VOLUME_SIZE_GIB,
    "device_name": text(255, pattern="^[a-zA-Z0-9._/-]*$"),
    "delete_on_termination": BOOLEAN,
    "no_device": {},
    "connection_info": {"type": "string"},
}
DEVICE: dict[str, Schema] = LEGACY_DEVICE | {
    "uuid": text(255, pattern="^[a-zA-Z0-9._-]*$"),
    "source_type": {"type": "string", "enum": ["volume", "image", "snapshot", "blank"]},
    "destination_type": {"type": "string", "enum": ["local", "volume"]},
    "guest_format": text(255, shortest=0),
    "device_type": text(255, shortest=0),
    "disk_bus": text(255, shortest=0),
    "boot_index": {"type": ["integer", "string", "null"], "maxLength": 20, "pattern": "^-?[0-9]+$"},
}


def _networks(version: Version) -> Schema:
    network: dict[str, Schema] = {
        "fixed_ip": ADDRESS,
        "port": {"oneOf": [UUID, {"type": "null"}]},
        "uuid": {"type": "string"} if version < V(2, 37) else UUID,
    }
    if V(2, 32) <= version < V(2, 37) or version >= V(2, 42):
        network["tag"] = TAG
    listed = many(thing(network))
    if version < V(2, 37):
        return listed
    return {"oneOf": [listed, {"type": "string", "enum": ["none", "auto"]}]}


def _devices(version: Version) -> Schema:
    device = dict(DEVICE)
    if version == V(2, 32) or version >= V(2, 42):  # 2.33 to 2.41 refuse it again: a slip that became the contract
        device["tag"] = TAG
    if version >= V(2, 67):
        device["volume_type"] = {"type": ["string", "null"], "minLength": 0, "maxLength": 255}
    return many(thing(device))


def _create(version: Version) -> Schema:
    server: dict[str, Any] = {
        "name": NAME,
        "imageRef": IMAGE_REFERENCE,
        "flavorRef": FLAVOR_REFERENCE,
        "adminPass": {"type": "string"},
        "metadata": METADATA,
        "networks": _networks(version),
        "OS-DCF:diskConfig": DISK_CONFIG,
        "accessIPv4": {"type": "string", "format": "ipv4"},
        "accessIPv6": {"type": "string", "format": "ipv6"},
        "availability_zone": NAME,
        "block_device_mapping": many(thing(LEGACY_DEVICE)),
        "block_device_mapping_v2": _devices(version),
        "config_drive": BOOLEAN,
        "key_name": NAME,
        "min_count": POSITIVE,
        "max_count": POSITIVE,
        "return_reservation_id": BOOLEAN,
        "security_groups": SECURITY_GROUPS,
        "user_data": USER_DATA,
    }
    if version < V(2, 57):
        server["personality"] = PERSONALITY
    if version >= V(2, 19):
        server["description"] = DESCRIPTION
    if version >= V(2, 52):
        server["tags"] = many(TAG, maxItems=50)
    if version >= V(2, 63):
        server["trusted_image_certificates"] = CERTIFICATES
    if version >= V(2, 74):
        server["host"] = server["hypervisor_hostname"] = HOST
    if version >= V(2, 90):
        server["hostname"] = HOSTNAME if version < V(2, 94) else DOMAIN_NAME
    required = ["name", "flavorRef"] if version < V(2, 37) else ["name", "flavorRef", "networks"]
    return thing(
        {"server": thing(server, required), "os:scheduler_hints": HINTS, "OS-SCH-HNT:scheduler_hints": HINTS},
        ["server"],
    )


def _update(version: Version) -> Schema:
    server: dict[str, Schema] = {
        "name": NAME,
        "OS-DCF:diskConfig": DISK_CONFIG,
        "accessIPv4": {"type": "string", "format": "ipv4"},
        "accessIPv6": {"type": "string", "format": "ipv6"},
    }
    if version >= V(2, 19):
        server["description"] = DESCRIPTION
    if version >= V(2, 90):
        server["hostname"] = HOSTNAME if version < V(2, 94) else DOMAIN_NAME
    if version >= V(2, 104):
        server["pinned_availability_zone"] = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
    return thing({"server": thing(server)}, ["server"])


BODIES: Forms = {
    ("POST", "/servers"): Since({version: _create(version) for version in CREATE_STEPS}),
    ("PUT", "/servers/{server_id}"): Since({version: _update(version) for version in UPDATE_STEPS}),
}
