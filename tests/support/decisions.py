"""Given what happened, when this is asked, then that is decided: a decision under test, with no store around it.

The events below are one instance's life on one host; a test gives as many of them as it needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from commands.decisions import decisions
from commands.states import STREAM_KINDS, States, kind_of
from domain.compute_service import SERVICE_EVENTS, ServiceCameUp, ServiceRegistered, ServiceWentDown
from domain.errors import DomainError
from domain.flavor import FLAVOR_EVENTS, FlavorCreated, FlavorSpec
from domain.host_aggregate import HOST_AGGREGATE_EVENTS
from domain.host_key import HOST_KEY_EVENTS
from domain.identifiers import (
    FLAVOR_CATALOG,
    HOST_AGGREGATES,
    HostName,
    InstanceId,
    NodeId,
    ProjectId,
    ServiceId,
    StreamId,
    UserId,
    host_key_stream,
    instance_stream,
    keypair_stream,
    provider_stream,
    quota_class_stream,
    quota_stream,
    server_group_stream,
    service_stream,
)
from domain.instance.events import (
    INSTANCE_EVENTS,
    AttachedInterface,
    ImageSpec,
    InstanceCreateRequested,
    InstanceDeleted,
    InstanceDeleteRequested,
    InstanceEvent,
    InstanceRebootRequested,
    InstanceScheduled,
    InstanceSpawned,
    InstanceStartRequested,
    InstanceStopped,
    InstanceStopRequested,
    SchedulingReason,
)
from domain.instance.state import Instance, PowerState, evolve
from domain.keypair import KEYPAIR_EVENTS
from domain.quota import DEFAULT_LIMITS, QUOTA_CLASS_EVENTS, QUOTA_EVENTS, QuotaConsumed, QuotaReleased
from domain.resource_provider import PROVIDER_EVENTS, ProviderClaimed, ProviderCreated, ProviderInventorySet
from domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from domain.server_group import SERVER_GROUP_EVENTS

PROJECT, USER = ProjectId("a-project"), UserId("a-user")
OTHER_PROJECT = ProjectId("another-project")
INSTANCE, OTHER = InstanceId(UUID(int=1)), InstanceId(UUID(int=2))
HOST, NODE, SERVICE = HostName("alpha"), NodeId(UUID(int=10)), ServiceId(UUID(int=11))
BETA, BETA_NODE, BETA_SERVICE = HostName("beta"), NodeId(UUID(int=20)), ServiceId(UUID(int=21))
REASON = SchedulingReason(hosts_considered=1)

FLAVOR = FlavorSpec(flavor_id="1", name="small", vcpus=2, memory_mib=512, root_gib=1)
IMAGE = ImageSpec(image_id="an-image", min_disk_gib=1, min_ram_mib=64, disk_format="qcow2", size_bytes=1000)
INTERFACE = AttachedInterface(
    network_id="net", network_name="private", mac_address="fa:16:3e:00:00:01", addresses=("10.0.0.5",)
)

create_requested = InstanceCreateRequested(
    instance_id=INSTANCE,
    user_id=USER,
    project_id=PROJECT,
    reservation_id="r-1",
    name="a server",
    hostname="a-server",
    flavor=FLAVOR,
    image=IMAGE,
)
consumed = QuotaConsumed(
    project_id=PROJECT,
    user_id=USER,
    instance_id=INSTANCE,
    amounts={"instances": 1, "cores": FLAVOR.vcpus, "ram": FLAVOR.memory_mib},
)
released_quota = QuotaReleased(project_id=PROJECT, user_id=USER, instance_id=INSTANCE, amounts=consumed.amounts)
claimed = ProviderClaimed(
    node_id=NODE,
    consumer_id=INSTANCE,
    project_id=PROJECT,
    user_id=USER,
    amounts={NODE: {VCPU: 2, MEMORY_MB: 512, DISK_GB: 1}},
)
scheduled = InstanceScheduled(
    instance_id=INSTANCE,
    user_id=USER,
    host=HOST,
    node_id=NODE,
    service_id=SERVICE,
    availability_zone="nova",
    attempt=1,
    reason=REASON,
    interfaces=(INTERFACE,),
)
spawned = InstanceSpawned(instance_id=INSTANCE, power_state=PowerState.RUNNING)
stop_requested = InstanceStopRequested(instance_id=INSTANCE, grace_s=60)
stopped = InstanceStopped(instance_id=INSTANCE, power_state=PowerState.SHUTDOWN)
start_requested = InstanceStartRequested(instance_id=INSTANCE)
reboot_requested = InstanceRebootRequested(instance_id=INSTANCE, hard=False, grace_s=60)
hard_reboot_requested = InstanceRebootRequested(instance_id=INSTANCE, hard=True, grace_s=60)
delete_requested = InstanceDeleteRequested(instance_id=INSTANCE)
deleted = InstanceDeleted(instance_id=INSTANCE)
deleted_with_host_away = InstanceDeleted(instance_id=INSTANCE, purge_pending=True)

flavor_created = FlavorCreated(flavor=FLAVOR)


def host_events(
    host: HostName = HOST,
    node_id: NodeId = NODE,
    service_id: ServiceId = SERVICE,
    *,
    vcpus: int = 8,
    memory_mib: int = 4096,
    disk_gib: int = 100,
    ratio: float = 1.0,
    zone: str = "nova",
    epoch: int = 1,
) -> tuple[Any, ...]:
    """A host that registered, and is up."""
    registered = ServiceRegistered(
        service_id=service_id,
        host=host,
        node_id=node_id,
        hypervisor_type="fake",
        hypervisor_version=1000,
        hypervisor_hostname=host,
        host_ip="127.0.0.1",
        cpu_info="{}",
        availability_zone=zone,
    )
    inventories = {
        VCPU: Inventory(total=vcpus, max_unit=vcpus, allocation_ratio=ratio),
        MEMORY_MB: Inventory(total=memory_mib, max_unit=memory_mib),
        DISK_GB: Inventory(total=disk_gib, max_unit=disk_gib),
    }
    return (
        registered,
        ProviderCreated(node_id=node_id, provider_id=node_id, parent_id=None, name=host),
        ProviderInventorySet(node_id=node_id, provider_id=node_id, inventories=inventories),
        ServiceCameUp(service_id=service_id, epoch=epoch),
    )


host_up = host_events()
host_went_down = ServiceWentDown(service_id=SERVICE, reason="no heartbeat")
building = (*host_up, create_requested, consumed)
spawning = (*building, claimed, scheduled)
active = (*spawning, spawned)
off = (*active, stop_requested, stopped)


def instance_after(*events: InstanceEvent) -> Instance:
    state: Instance | None = None
    for event in events:
        state = evolve(state, event)
    assert state is not None
    return state


def stream_of(event: Any) -> StreamId:
    """The stream that an event belongs to, by what it is about."""
    cls = type(event)
    if cls in INSTANCE_EVENTS.values():
        return instance_stream(event.instance_id)
    if cls in PROVIDER_EVENTS.values():
        return provider_stream(event.node_id)
    if cls in SERVICE_EVENTS.values():
        return service_stream(event.service_id)
    if cls in HOST_KEY_EVENTS.values():
        return host_key_stream(event.service_id)
    if cls in QUOTA_EVENTS.values():
        return quota_stream(event.project_id)
    if cls in QUOTA_CLASS_EVENTS.values():
        return quota_class_stream(event.class_name)
    if cls in KEYPAIR_EVENTS.values():
        return keypair_stream(event.user_id)
    if cls in SERVER_GROUP_EVENTS.values():
        return server_group_stream(event.server_group_id)
    if cls in HOST_AGGREGATE_EVENTS.values():
        return HOST_AGGREGATES
    assert cls in FLAVOR_EVENTS.values()
    return FLAVOR_CATALOG


def fold_streams(events: Sequence[Any]) -> dict[StreamId, Any]:
    states: dict[StreamId, Any] = {}
    for event in events:
        stream = stream_of(event)
        states[stream] = kind_of(stream).evolve(states.get(stream), event)
    return states


class Given:
    def __init__(self, events: Sequence[Any], quota_defaults: Mapping[str, int]) -> None:
        self.events = tuple(events)
        self._defaults = quota_defaults

    def when(self, command: Any) -> Decided:
        states = fold_streams(self.events)
        try:
            decided = decisions(self._defaults)[type(command)](command, States(states.get))
        except DomainError as refusal:
            return Decided(self, None, refusal)
        for stream, event in decided:
            assert stream == stream_of(event), "an event belongs to the stream of what it is about"
            states[stream] = kind_of(stream).evolve(states.get(stream), event)
        return Decided(self, tuple(event for _, event in decided), None)


class Decided:
    def __init__(self, given: Given, events: tuple[Any, ...] | None, refusal: DomainError | None) -> None:
        self._given = given
        self._events = events
        self._refusal = refusal

    @property
    def events(self) -> tuple[Any, ...]:
        if self._refusal is not None:
            raise AssertionError(f"refused: {self._refusal!r}") from self._refusal
        assert self._events is not None
        return self._events

    def then(self, *expected: Any) -> None:
        assert self.events == expected

    def then_nothing(self) -> None:
        assert self.events == ()

    def then_refused(self, error: type[DomainError], match: str = "") -> None:
        assert self._refusal is not None, f"accepted: {self._events}"
        assert type(self._refusal) is error
        assert re.search(match, str(self._refusal)), str(self._refusal)

    def and_then(self) -> Given:
        """What was decided has happened too."""
        return Given((*self._given.events, *self.events), self._given._defaults)


def given(*events: Any, quota_defaults: Mapping[str, int] = DEFAULT_LIMITS) -> Given:
    return Given(events, quota_defaults)


def of_instance(event: Any, instance_id: InstanceId) -> Any:
    """The same event, of another instance."""
    return replace(event, instance_id=instance_id)


KINDS = {"instance", "provider", "service", "host_key", "host_aggregate", "quota", "quota_class", "flavor", "keypair"}
assert set(STREAM_KINDS) == KINDS | {"server_group"}, "teach `stream_of` it"
