"""What each host is wanted to hold: from instance events to the newest order of each residency.

Orders are complete, so the newest is enough; the same order may be published twice. When a host opens a new session, all
its residencies are ordered again under the new epoch, since the agent refuses older ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

import orjson

from commands.event_store import EventStore
from commands.log.consumer import Handled
from commands.log.port import Log, Message, Step, orders_topic
from commands.metrics import ORDERS_PUBLISHED, STEP_CONFLICTS
from commands.orders import Act, GuestSpec, Order, WantedPower
from commands.records import Records
from commands.snapshots import Snapshots
from commands.states import Folded
from commands.vault import Vault
from domain.compute_service import ServiceCameUp
from domain.host_key import HostEnrolled, HostKey, HostKeyRevoked
from domain.identifiers import (
    HostName,
    ServiceId,
    StreamId,
    category_of,
    host_key_stream,
    instance_stream,
    provider_stream,
    service_stream,
)
from domain.instance.events import (
    InstanceCreateRequested,
    InstanceDeleted,
    InstanceOutcomeUnknown,
    InstancePurged,
    InstanceScheduleFailed,
    InstanceSpawnFailed,
)
from domain.instance.state import Instance, Residence, TaskState, VmState, evolve
from domain.recorded import RecordedEvent
from domain.resource_provider import ProviderTree
from domain.serialization import to_plain

BATCH = 500
PERSIST_EVERY = 1000
CACHED_INSTANCES = 2048

_PENDING: dict[TaskState, Act] = {
    TaskState.SPAWNING: Act.SPAWN,
    TaskState.POWERING_ON: Act.POWER_ON,
    TaskState.POWERING_OFF: Act.POWER_OFF,
    TaskState.REBOOTING: Act.REBOOT,
    TaskState.REBOOTING_HARD: Act.REBOOT,
    TaskState.PAUSING: Act.PAUSE,
    TaskState.UNPAUSING: Act.UNPAUSE,
    TaskState.SUSPENDING: Act.SUSPEND,
    TaskState.RESUMING: Act.RESUME,
    TaskState.UPDATING_PASSWORD: Act.SET_PASSWORD,
    TaskState.DELETING: Act.PURGE,
}

# What a guest is to be once an act is done, and what it stays where none is asked; running, if nothing is said.
_WANTED_AFTER = {
    Act.POWER_OFF: WantedPower.OFF,
    Act.PAUSE: WantedPower.PAUSED,
    Act.SUSPEND: WantedPower.SUSPENDED,
    Act.PURGE: WantedPower.PURGED,
}
_WANTED_IN = {
    VmState.STOPPED: WantedPower.OFF,
    VmState.PAUSED: WantedPower.PAUSED,
    VmState.SUSPENDED: WantedPower.SUSPENDED,
}


class OrdersManager:
    name = "orders"

    def __init__(
        self,
        the_log: Log,
        store: EventStore,
        records: Records,
        snapshots: Snapshots,
        vault: Vault,
    ) -> None:
        self._log = the_log
        self._store = store
        self._records = records
        self._snapshots = snapshots
        self._vault = vault
        self.position = -1
        self.handled: Handled | None = None
        self._persisted = 0
        self._instances: OrderedDict[StreamId, Folded] = OrderedDict()
        self._epochs: dict[ServiceId, tuple[int, str]] = {}  # and the session that opened it
        self._hosts: set[ServiceId] = set()
        self._revoked: dict[ServiceId, bool] = {}  # hosts that no key speaks for: nothing is ordered of them

    def wait(self, timeout_s: float) -> None:
        self._log.wait_for_events(self.position, timeout_s)

    def step(self) -> bool:
        if self.position < 0:
            self._persisted = self.position = self._log.position(self.name)
            self._epochs.clear()  # another process may have passed hosts' new sessions
            self._revoked.clear()
            self._hosts = {
                _service_of(stream) for kind in ("host_key", "service") for stream in self._store.streams(kind)
            }
        self._fill_new_topics()
        records = self._log.events(self.position, BATCH)
        if not records:
            return False
        newest: dict[tuple[str, str], Message] = {}
        for record in records:
            for message in self._messages(record):
                newest[message.topic, message.key] = message
        new = records[-1].position
        if newest or new - self._persisted >= PERSIST_EVERY:
            step = Step(self.name, self._persisted, new)
            if not self._log.publish(list(newest.values()), step):
                self.position = -1  # another process has taken this step: go on from where it is
                STEP_CONFLICTS.labels(self.name).inc()
                return True
            self._persisted = new
            ORDERS_PUBLISHED.inc(len(newest))
        self.position = new
        self.handled = Handled(len(records), records[-1].time)
        return True

    def _fill_new_topics(self) -> None:
        """An order topic that is new, or was lost, gets every order of its host."""
        for service_id in self._log.hosts(self._hosts):
            orders = list(self._all_of_host(service_id))
            self._log.publish(orders)
            self._log.filled(service_id)
            ORDERS_PUBLISHED.inc(len(orders))

    def _messages(self, record: RecordedEvent) -> Iterable[Message]:
        event = record.event
        if category_of(record.stream) in ("host_key", "service"):
            self._hosts.add(_service_of(record.stream))
        if isinstance(event, HostEnrolled | HostKeyRevoked):
            self._revoked[event.service_id] = isinstance(event, HostKeyRevoked)
        if isinstance(event, ServiceCameUp):
            self._epochs[event.service_id] = event.epoch, event.session
            return self._all_of_host(event.service_id)
        if category_of(record.stream) != "instance":
            return ()
        before, instance = self._fold(record)
        messages = []
        match event:
            case InstanceCreateRequested() | InstanceScheduleFailed() | InstanceOutcomeUnknown():
                pass
            case InstanceSpawnFailed():
                # The host said that it holds nothing; its order ends there.
                if before is not None and before.residence is not None:
                    messages.append(_ended(before, before.residence))
            case InstanceDeleted() | InstancePurged():
                self._drop_payloads(instance)
                if instance.residence is not None:
                    if instance.purge_pending:
                        messages += self._ordered(instance, instance.residence)
                    else:
                        messages.append(_ended(instance, instance.residence))
            case _:
                if instance.residence is not None:
                    messages += self._ordered(instance, instance.residence)
        return messages

    def _fold(self, record: RecordedEvent) -> tuple[Instance | None, Instance]:
        """The instance before and after this event; read from the store where it is not at hand."""
        known = self._instances.get(record.stream)
        if known is None or known.version != record.version - 1:  # not at hand, or read again
            known = self._before(record)
        state: Instance | None = known.state
        after = evolve(state, record.event)
        self._instances[record.stream] = Folded(record.version, after)
        self._instances.move_to_end(record.stream)
        if len(self._instances) > CACHED_INSTANCES:
            self._instances.popitem(last=False)
        return state, after

    def _before(self, record: RecordedEvent) -> Folded:
        state: Instance | None = None
        for stored in self._store.read_stream(record.stream) if record.version > 1 else ():
            if stored.version >= record.version:
                break
            state = evolve(state, self._records.decode(stored).event)
        return Folded(record.version - 1, state)

    def _all_of_host(self, service_id: ServiceId) -> Iterable[Message]:
        service = self._folded(service_stream(service_id)).state
        if service is None:  # its agent has yet to say what it is
            return
        tree: ProviderTree | None = self._folded(provider_stream(service.registration.node_id)).state
        for consumer_id in () if tree is None else tree.claims:
            instance = self._folded(StreamId(f"instance:{consumer_id}")).state
            if instance is not None and instance.residence is not None:
                yield from self._ordered(instance, instance.residence)

    def _folded(self, stream: StreamId) -> Folded:
        return self._snapshots.load(self._store, stream, self._records)

    def _epoch(self, service_id: ServiceId) -> tuple[int, str]:
        if service_id not in self._epochs:
            service = self._folded(service_stream(service_id)).state
            self._epochs[service_id] = service.epoch, service.session
        return self._epochs[service_id]

    def _is_revoked(self, service_id: ServiceId) -> bool:
        if service_id not in self._revoked:
            key: HostKey | None = self._folded(host_key_stream(service_id)).state
            self._revoked[service_id] = key is not None and key.revoked
        return self._revoked[service_id]

    def _ordered(self, instance: Instance, residence: Residence) -> Iterable[Message]:
        """Nothing of a host whose key is revoked: it gets all orders once it is enrolled again and opens a session."""
        if self._is_revoked(residence.service_id):
            return
        order = order_of(instance, residence.host, self._store.incarnation, *self._epoch(residence.service_id))
        yield Message(orders_topic(residence.service_id), _key(instance, residence), orjson.dumps(to_plain(order)))

    def _drop_payloads(self, instance: Instance) -> None:
        request = instance.request
        if request.user_data or request.admin_password or request.injected_files:
            self._vault.drop_payloads(instance_stream(instance.id))


def order_of(instance: Instance, host: HostName, incarnation: str, epoch: int, session: str = "") -> Order:
    """The whole wanted state of a residency, as the instance is now."""
    act = None if instance.task_state is None else _PENDING.get(instance.task_state)
    if instance.purge_pending:
        act = Act.PURGE
    wanted = _WANTED_IN.get(instance.vm_state) if act is None else _WANTED_AFTER.get(act)
    assert instance.residence is not None
    return Order(
        incarnation=incarnation,
        order_id=f"{instance.id}/{instance.revision}",
        host=host,
        epoch=epoch,
        session=session,
        generation=instance.revision,
        task_revision=instance.task_revision,
        act=act,
        wanted=wanted or WantedPower.RUNNING,
        power_state=instance.power_state,
        grace_s=instance.grace_s,
        reboot_hard=instance.reboot_hard,
        guest=guest_of(instance, instance.residence),
    )


def guest_of(instance: Instance, residence: Residence) -> GuestSpec:
    request, flavor = instance.request, instance.request.flavor
    return GuestSpec(
        instance_id=instance.id,
        project_id=request.project_id,
        user_id=request.user_id,
        name=request.name,
        hostname=request.hostname,
        flavor_name=flavor.name,
        vcpus=flavor.vcpus,
        memory_mib=flavor.memory_mib,
        root_gib=flavor.root_gib,
        ephemeral_gib=flavor.ephemeral_gib,
        swap_mib=flavor.swap_mib,
        extra_specs=flavor.extra_specs,
        image=request.image,
        block_devices=request.block_devices,
        interfaces=instance.interfaces,
        config_drive=request.config_drive,
        metadata=request.metadata,
        keypair=request.keypair,
        availability_zone=residence.availability_zone,
        launch_index=request.launch_index,
        reservation_id=request.reservation_id,
        security_groups=request.security_groups,
        user_data=request.user_data,
        admin_password=request.admin_password,
        injected_files=request.injected_files,
    )


def _service_of(stream: StreamId) -> ServiceId:
    return ServiceId(UUID(stream.partition(":")[2]))


def _key(instance: Instance, residence: Residence) -> str:
    return f"{instance.id}/{residence.host}"


def _ended(instance: Instance, residence: Residence) -> Message:
    return Message(orders_topic(residence.service_id), _key(instance, residence), None)
