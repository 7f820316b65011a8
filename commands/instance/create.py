"""CreateInstances: one request, one or many instances, counted against the quota in the same append."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.quota import consumed, headroom, in_force, require_quota
from commands.server_group import joined
from commands.states import Decision, States
from domain.errors import BadFlavor, BadKeypair, FlavorUnusable, InstanceExists
from domain.flavor import FlavorSpec
from domain.identifiers import InstanceId, ProjectId, UserId, VaultRef, instance_stream, quota_stream
from domain.instance.events import (
    BlockDevice,
    ImageSpec,
    InstanceCreateRequested,
    KeypairUsed,
    NetworkMode,
    NetworkRequest,
)
from domain.quota import DEFAULT_LIMITS

GIB = 1024**3
NAME_LENGTH, LABEL_LENGTH = 255, 63  # characters, of a name and of a host name made from one

# Extra specs that change what a guest is; until they are honoured they are refused, never ignored.
_UNSUPPORTED_SPECS = ("accel:", "pci_passthrough:", "trait", "resources", "group_policy", "os:secure_boot")
_UNSUPPORTED_HW = (
    "cpu_policy",
    "cpu_dedicated_mask",
    "cpu_realtime",
    "emulator_threads_policy",
    "numa_",
    "mem_page_size",
    "mem_encryption",
    "pmem",
    "tpm_",
    "pci_numa_affinity_policy",
    "ephemeral_encryption",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstances:
    """Ids are made by whoever asks, so that a retry is the same command. Between `min_count` and all of
    `instance_ids` are made, as the quota allows (Nova API 2.1, min_count and max_count)."""

    instance_ids: tuple[InstanceId, ...]
    min_count: int = 1
    user_id: UserId
    project_id: ProjectId
    roles: tuple[str, ...] = ()
    all_flavors: bool = False  # may use any private flavor
    reservation_id: str
    name: str
    hostname: str  # empty: made of the id
    description: str | None = None
    flavor_id: str
    image: ImageSpec | None
    block_devices: tuple[BlockDevice, ...] = ()
    network_mode: NetworkMode = "list"
    networks: tuple[NetworkRequest, ...] = ()
    security_groups: tuple[str, ...] = ()
    key_name: str | None = None
    availability_zone: str | None = None
    pinned_availability_zone: str | None = None
    forced_host: str | None = None
    forced_node: str | None = None
    requested_host: str | None = None
    requested_node: str | None = None
    scheduler_hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    config_drive: bool = False
    disk_config: str = "MANUAL"
    access_ipv4: str | None = None
    access_ipv6: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    trusted_certificates: tuple[str, ...] | None = None
    has_user_data: bool = False
    has_admin_password: bool = False
    has_injected_files: bool = False


def payload_ref(instance_id: InstanceId, what: str) -> VaultRef:
    """Where an instance's sealed payload lies in the vault: "user_data", "admin_password", "injected_files"."""
    return VaultRef(f"{instance_id}/{what}")


def decide_create(command: CreateInstances, states: States, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> Decision:
    """Create instances (Nova API 2.1, POST /servers).

    Raises:
        BadFlavor, FlavorUnusable, BadKeypair: HTTP answers 400.
        BadServerGroup: HTTP answers 400.
        QuotaExceeded: not even `min_count` fit; HTTP answers 403. TooManyServersInGroup: likewise.
        InstanceExists: an id is taken.
    """
    flavor = states.flavors().visible_to(command.flavor_id, command.project_id, all_projects=command.all_flavors)
    if flavor is None or flavor.disabled:
        raise BadFlavor(command.flavor_id)
    require_supported(flavor)
    if command.image is not None:
        require_room_for_image(flavor, command.image)
    keypair = _keypair(command, states)
    quota, limits = states.quota(command.project_id), in_force(states, defaults)
    wanted = len(command.instance_ids)
    count = min(wanted, headroom(quota, command.user_id, flavor, limits))
    if count < max(1, command.min_count):
        require_quota(quota, command.user_id, flavor, max(1, command.min_count), limits)
    events: list[tuple[Any, Any]] = []
    hint = next(iter(command.scheduler_hints.get("group", ())), None)
    if hint is not None:
        ids = command.instance_ids[:count]
        events += joined(hint, ids, command.user_id, command.project_id, states, defaults)
    for index, instance_id in enumerate(command.instance_ids[:count]):
        if states.instance(instance_id) is not None:
            raise InstanceExists(f"Instance {instance_id} already exists.")
        requested = _requested(command, instance_id, index, flavor, keypair)
        counted = consumed(command.project_id, command.user_id, instance_id, flavor)
        events.append((quota_stream(command.project_id), counted))
        events.append((instance_stream(instance_id), requested))
    return events


def require_supported(flavor: FlavorSpec) -> None:
    for key in flavor.extra_specs:
        namespace, _, name = key.partition(":")
        if key.startswith(_UNSUPPORTED_SPECS) or (namespace == "hw" and name.startswith(_UNSUPPORTED_HW)):
            raise FlavorUnusable(f"Flavor {flavor.flavor_id} asks for {key}, which is not supported.")


def require_room_for_image(flavor: FlavorSpec, image: ImageSpec) -> None:
    if flavor.memory_mib < image.min_ram_mib:
        raise FlavorUnusable("Flavor's memory is too small for requested image.")
    if flavor.root_gib == 0:  # the disk is as large as the image
        return
    root_bytes = flavor.root_gib * GIB
    if image.size_bytes is not None and image.size_bytes > root_bytes:
        raise FlavorUnusable(
            "Flavor's disk is too small for requested image. "
            f"Flavor disk is {root_bytes} bytes, image is {image.size_bytes} bytes."
        )
    if image.min_disk_gib > flavor.root_gib:
        raise FlavorUnusable(
            "Flavor's disk is smaller than the minimum size specified in image metadata. "
            f"Flavor disk is {root_bytes} bytes, minimum size is {image.min_disk_gib * GIB} bytes."
        )


def _keypair(command: CreateInstances, states: States) -> KeypairUsed | None:
    if command.key_name is None:
        return None
    keypair = states.keypairs(command.user_id).named(command.key_name)
    if keypair is None:
        raise BadKeypair("Invalid key_name provided.")
    return KeypairUsed(name=keypair.name, type=keypair.type, public_key=keypair.public_key)


def _hostname(asked: str, instance_id: InstanceId, suffix: str) -> str:
    if not asked:
        return f"Server-{instance_id}"
    return asked[: LABEL_LENGTH - len(suffix)] + suffix if suffix else asked


def _requested(
    command: CreateInstances,
    instance_id: InstanceId,
    index: int,
    flavor: FlavorSpec,
    keypair: KeypairUsed | None,
) -> InstanceCreateRequested:
    suffix = f"-{index + 1}" if len(command.instance_ids) > 1 else ""
    return InstanceCreateRequested(
        instance_id=instance_id,
        user_id=command.user_id,
        project_id=command.project_id,
        roles=command.roles,
        reservation_id=command.reservation_id,
        launch_index=index,
        name=command.name[: NAME_LENGTH - len(suffix)] + suffix,
        hostname=_hostname(command.hostname, instance_id, suffix),
        description=command.description,
        flavor=flavor,
        image=command.image,
        block_devices=command.block_devices,
        network_mode=command.network_mode,
        networks=command.networks,
        security_groups=command.security_groups,
        keypair=keypair,
        availability_zone=command.availability_zone,
        pinned_availability_zone=command.pinned_availability_zone,
        forced_host=command.forced_host,
        forced_node=command.forced_node,
        requested_host=command.requested_host,
        requested_node=command.requested_node,
        scheduler_hints=command.scheduler_hints,
        server_group_id=next(iter(command.scheduler_hints.get("group", ())), None),
        config_drive=command.config_drive,
        disk_config=command.disk_config,
        access_ipv4=command.access_ipv4,
        access_ipv6=command.access_ipv6,
        metadata=command.metadata,
        tags=command.tags,
        trusted_certificates=command.trusted_certificates,
        user_data=payload_ref(instance_id, "user_data") if command.has_user_data else None,
        admin_password=payload_ref(instance_id, "admin_password") if command.has_admin_password else None,
        injected_files=payload_ref(instance_id, "injected_files") if command.has_injected_files else None,
    )
