"""What a host is wanted to hold: the value of one record on its `orders.<service>` topic. Sent by
`process_managers/orders.py`, acted on by `hostagent/reconcile.py`.

The topic is compacted and keyed by residency (instance, host), so the newest value is the whole truth: a restart, a lost
message and a host's reboot are the same case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from domain.identifiers import HostName, InstanceId, ProjectId, UserId, VaultRef
from domain.instance.events import AttachedInterface, BlockDevice, ImageSpec, KeypairUsed


class WantedPower(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"  # its memory on the host's disk
    OFF = "off"
    PURGED = "purged"  # a wanted state, kept until the host confirms that it holds nothing


class Act(StrEnum):
    """What an outcome report is about."""

    SPAWN = "spawn"
    POWER_ON = "power_on"
    POWER_OFF = "power_off"
    REBOOT = "reboot"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"
    SET_PASSWORD = "set_password"
    PURGE = "purge"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSpec:
    """The complete guest, enough to build it from nothing. Personal data is confined to the host's own topic."""

    instance_id: InstanceId
    project_id: ProjectId
    user_id: UserId
    name: str  # the display name
    hostname: str
    flavor_name: str
    vcpus: int
    memory_mib: int
    root_gib: int
    ephemeral_gib: int
    swap_mib: int
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    image: ImageSpec | None
    block_devices: tuple[BlockDevice, ...] = ()
    interfaces: tuple[AttachedInterface, ...] = ()
    config_drive: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    keypair: KeypairUsed | None = None
    availability_zone: str = ""
    launch_index: int = 0
    reservation_id: str = ""
    security_groups: tuple[str, ...] = ()
    user_data: VaultRef | None = None
    admin_password: VaultRef | None = None
    injected_files: VaultRef | None = None

    @property
    def domain_name(self) -> str:
        return f"instance-{self.instance_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    incarnation: str  # of the ledger that gave it
    order_id: str  # names this order in reports
    host: HostName
    epoch: int  # the host session it was given to; an agent refuses older ones
    session: str = ""  # the agent's start that opened it; another agent refuses
    generation: int  # the instance stream's version; an agent refuses lower ones
    task_revision: int  # the version that made the pending request; outcomes are for it
    act: Act | None  # the request waiting for an outcome, if one is
    wanted: WantedPower
    power_state: int  # as the ledger knows it; another one that is seen is told
    grace_s: int = 60  # before the power of a guest that will not shut down is cut
    reboot_hard: bool = False
    guest: GuestSpec
