"""What can have happened to an instance, together with `attributes.py`, `suspension.py` and `password.py`. `state.py` folds
these; `docs/events.md` says who records each, and when.

The create event holds what every later move reads, whether that move is built yet or not: the whole flavor, image,
block devices and networks as they were asked for. What was chosen and assigned is in the claim and in later events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from domain.flavor import FlavorSpec
from domain.identifiers import HostName, InstanceId, NodeId, ProjectId, ServiceId, UserId, VaultRef
from domain.instance.attributes import ATTRIBUTE_EVENTS, AttributeEvent
from domain.instance.password import PASSWORD_EVENTS, PasswordEvent
from domain.instance.suspension import SUSPENSION_EVENTS, SuspensionEvent
from domain.marks import PERSONAL, SEALED

NetworkMode = Literal["auto", "none", "list"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """The image as it was when the instance was created (Glance v2 names)."""

    image_id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    min_disk_gib: int = 0
    min_ram_mib: int = 0
    disk_format: str | None = None
    container_format: str | None = None
    size_bytes: int | None = None
    checksum_algorithm: str | None = None  # "sha512", Glance's os_hash_algo
    checksum: str | None = None
    kernel: BootFile | None = None  # Nova's kernel_id and ramdisk_id properties
    ramdisk: BootFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFile:
    """A kernel or a ramdisk that an image names: an image of its own."""

    image_id: str
    checksum_algorithm: str | None = None
    checksum: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One disk as asked for (Nova's block_device_mapping_v2); the image's root disk is one of them."""

    device_id: str  # a UUID of our own: names the disk for ever
    source_type: str  # "image", "blank", "volume", "snapshot"
    destination_type: str  # "local" or "volume"
    source_id: str | None = None
    boot_index: int | None = None
    size_gib: int | None = None
    bus: str | None = None
    device_type: str | None = None  # "disk", "cdrom", "lun"
    device_name: str | None = None
    guest_format: str | None = None
    volume_type: str | None = None
    tag: str | None = None
    delete_on_termination: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRequest:
    """One network interface as asked for, in order."""

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None
    created_by_us: bool = True  # whether the port is ours to delete


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypairUsed:
    name: str
    type: str
    public_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCreateRequested:
    instance_id: InstanceId
    user_id: UserId
    project_id: ProjectId
    roles: tuple[str, ...] = ()
    reservation_id: str
    launch_index: int = 0
    name: Annotated[str, PERSONAL]
    hostname: Annotated[str, PERSONAL]
    description: Annotated[str | None, PERSONAL] = None
    flavor: FlavorSpec
    image: ImageSpec | None = None  # none when it boots from a volume
    block_devices: tuple[BlockDevice, ...] = ()
    network_mode: NetworkMode = "list"  # Nova API 2.37
    networks: Annotated[tuple[NetworkRequest, ...], PERSONAL] = ()
    security_groups: tuple[str, ...] = ()
    keypair: Annotated[KeypairUsed | None, PERSONAL] = None
    availability_zone: str | None = None  # as asked for
    pinned_availability_zone: str | None = None
    forced_host: str | None = None  # "zone:host:node": past the filters
    forced_node: str | None = None
    requested_host: str | None = None  # Nova API 2.74: through the filters
    requested_node: str | None = None
    scheduler_hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    server_group_id: str | None = None
    config_drive: bool = False
    disk_config: str = "MANUAL"
    access_ipv4: Annotated[str | None, PERSONAL] = None
    access_ipv6: Annotated[str | None, PERSONAL] = None
    metadata: Annotated[Mapping[str, str], PERSONAL] = field(default_factory=dict)
    tags: Annotated[tuple[str, ...], PERSONAL] = ()
    trusted_certificates: tuple[str, ...] | None = None
    numa_topology: str | None = None  # JSON, as asked for by flavor and image
    pci_requests: tuple[str, ...] = ()  # "alias:count"
    accelerator_profile: str | None = None
    user_data: Annotated[VaultRef | None, SEALED] = None
    admin_password: Annotated[VaultRef | None, SEALED] = None
    injected_files: Annotated[VaultRef | None, SEALED] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """How many hosts were left after one filter."""

    filter: str
    hosts_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    host: HostName
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingReason:
    """Why this host, or why none: what each filter left, and the best candidates (bounded)."""

    hosts_considered: int
    filters: tuple[FilterResult, ...] = ()
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedInterface:
    """A network interface as the guest has it. Addresses are empty when nobody here assigned any."""

    network_id: str
    network_name: str
    mac_address: str
    addresses: tuple[str, ...] = ()
    port_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceScheduled:
    """A host was chosen; the claim on it is in the same append."""

    instance_id: InstanceId
    user_id: UserId
    host: HostName
    node_id: NodeId
    service_id: ServiceId
    availability_zone: str
    attempt: int
    reason: SchedulingReason
    interfaces: Annotated[tuple[AttachedInterface, ...], PERSONAL] = ()  # what the guest gets; addresses if known


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceScheduleFailed:
    instance_id: InstanceId
    message: str  # the fault the user sees
    reason: SchedulingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpawned:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpawnFailed:
    """The host could not start the guest, and holds nothing of it. The claim is released in the same append."""

    instance_id: InstanceId
    host: HostName
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStartRequested:
    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStarted:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStartFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStopRequested:
    instance_id: InstanceId
    grace_s: int  # how long the guest may take to shut down before its power is cut


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStopped:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStopFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRebootRequested:
    instance_id: InstanceId
    hard: bool
    grace_s: int  # of a soft reboot, before the power is cut


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRebooted:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRebootFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDeleteRequested:
    """The guest has to go; its host was asked. What it holds is held until the host denies it."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDeleteFailed:
    instance_id: InstanceId
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDeleted:
    """Gone for its user, and its quota with it. `purge_pending`: its host is away and still holds the claim."""

    instance_id: InstanceId
    purge_pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePurged:
    """A host that was away when the instance was deleted has come back and holds nothing of it any more."""

    instance_id: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePowerStateObserved:
    """The guest's power changed without a request: it shut itself down, crashed, or was switched from outside."""

    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOutcomeUnknown:
    """A request missed its deadline. Nothing is assumed: the host's next report settles it."""

    instance_id: InstanceId
    task_state: str
    waited_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStateReset:
    """An administrator says what state it is in; a request that waited for its outcome waits no more."""

    instance_id: InstanceId
    vm_state: Literal["active", "error"]


InstanceEvent = (
    InstanceCreateRequested
    | InstanceScheduled
    | InstanceScheduleFailed
    | InstanceSpawned
    | InstanceSpawnFailed
    | InstanceStartRequested
    | InstanceStarted
    | InstanceStartFailed
    | InstanceStopRequested
    | InstanceStopped
    | InstanceStopFailed
    | InstanceRebootRequested
    | InstanceRebooted
    | InstanceRebootFailed
    | InstanceDeleteRequested
    | InstanceDeleteFailed
    | InstanceDeleted
    | InstancePurged
    | InstancePowerStateObserved
    | InstanceOutcomeUnknown
    | InstanceStateReset
    | AttributeEvent
    | SuspensionEvent
    | PasswordEvent
)

INSTANCE_EVENTS = {
    "instance.create_requested": InstanceCreateRequested,
    "instance.scheduled": InstanceScheduled,
    "instance.schedule_failed": InstanceScheduleFailed,
    "instance.spawned": InstanceSpawned,
    "instance.spawn_failed": InstanceSpawnFailed,
    "instance.start_requested": InstanceStartRequested,
    "instance.started": InstanceStarted,
    "instance.start_failed": InstanceStartFailed,
    "instance.stop_requested": InstanceStopRequested,
    "instance.stopped": InstanceStopped,
    "instance.stop_failed": InstanceStopFailed,
    "instance.reboot_requested": InstanceRebootRequested,
    "instance.rebooted": InstanceRebooted,
    "instance.reboot_failed": InstanceRebootFailed,
    "instance.delete_requested": InstanceDeleteRequested,
    "instance.delete_failed": InstanceDeleteFailed,
    "instance.deleted": InstanceDeleted,
    "instance.purged": InstancePurged,
    "instance.power_state_observed": InstancePowerStateObserved,
    "instance.outcome_unknown": InstanceOutcomeUnknown,
    "instance.state_reset": InstanceStateReset,
    **ATTRIBUTE_EVENTS,
    **SUSPENSION_EVENTS,
    **PASSWORD_EVENTS,
}

# What happens beside a request: one that waits for its outcome waits on.
BESIDE: tuple[type, ...] = (InstancePowerStateObserved, InstanceOutcomeUnknown, *ATTRIBUTE_EVENTS.values())
