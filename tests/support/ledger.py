"""A whole embedded ledger without threads: real SQLite stores in a directory, a clock that tests turn, hosts on fake
hypervisors that work inline. Nothing moves unless it is stepped.

Each part may be stepped alone, killed and started again; `Faults` makes the calls through the ports fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from commands.appender import Appender
from commands.assembly import CommandSide, Storage, command_side
from commands.command import Accepted, Ask, Unit
from commands.event_store import Transaction
from commands.flavor import CreateFlavor
from commands.instance.create import CreateInstances
from commands.instance.delete import DeleteInstance
from commands.instance.power import RebootInstance, StartInstance, StopInstance
from commands.log.consumer import Consumer
from commands.log.port import LogRecord, Message, Step
from commands.log.signed import Signer
from commands.log.store_log import StoreLog
from commands.neighbours.standalone.networks import mac_address
from commands.records import Records
from commands.reports import NodeFacts
from commands.snapshots import Snapshots
from commands.sqlite_store import SQLiteEventStore
from commands.states import Folded
from commands.vault import Payload, Vault, read_or_make_master_key
from domain.errors import DomainError
from domain.flavor import FlavorSpec
from domain.identifiers import (
    HostName,
    InstanceId,
    ProjectId,
    RequestId,
    StreamId,
    UserId,
    VaultRef,
    instance_stream,
    provider_stream,
    quota_stream,
)
from domain.instance.events import AttachedInterface, ImageSpec, NetworkMode, NetworkRequest
from domain.instance.state import Instance, PowerState
from domain.quota import DEFAULT_LIMITS, Quota
from domain.recorded import Cause, RecordedEvent
from domain.resource_provider import ProviderTree
from hostagent.agent import Agent, HostSettings
from hostagent.drivers.fake import FakeDriver
from hostagent.drivers.fake_controls import creates, switch_power
from hostagent.drivers.protocol import ObservedGuest
from hostagent.images import ImageCache
from hostagent.journal import Journal
from hostagent.payloads import Files
from projections.catalogue import projections
from projections.views import Views

NAMES = UUID("00000000-0000-0000-0000-00000000feed")
PROJECT, USER = ProjectId("a-project"), UserId("a-user")
SMALL = FlavorSpec(flavor_id="1", name="small", vcpus=1, memory_mib=512, root_gib=1)
LARGE = FlavorSpec(flavor_id="2", name="large", vcpus=4, memory_mib=2048, root_gib=10)
IMAGE = ImageSpec(image_id="an-image", disk_format="qcow2")
COMPONENTS = ("build", "orders", "inbox", "deadlines")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0

    def __call__(self) -> datetime:
        return self.now

    def elapsed(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def set_by(self, seconds: float) -> None:
        """Somebody sets the clock; no time passes."""
        self.now += timedelta(seconds=seconds)


class Crash(BaseException):
    """The process that was stepped is dead: whatever it had in memory is gone. Nothing may catch it."""


class Faults:
    """What goes wrong at the ports, by the call's name: "transaction", "publish", "settle", …"""

    def __init__(self) -> None:
        self._armed: dict[tuple[str, str], tuple[int, BaseException]] = {}

    def crash(self, call: str, when: str = "before", *, skip: int = 0, error: BaseException | None = None) -> None:
        """Raise `before` or `after` the call is made, once; the first `skip` calls are left alone."""
        self._armed[call, when] = (skip, error or Crash(f"{when} {call}"))

    def heal(self) -> None:
        self._armed.clear()

    def strike(self, call: str, when: str) -> None:
        if (armed := self._armed.pop((call, when), None)) is None:
            return
        skip, error = armed
        if skip:
            self._armed[call, when] = (skip - 1, error)
            return
        raise error

    @contextmanager
    def around(self, call: str) -> Iterator[None]:
        self.strike(call, "before")
        yield
        self.strike(call, "after")


class FaultyStore(SQLiteEventStore):
    """The embedded store; its commits may be lost, before or after they happened. It counts the events it is asked for."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path)
        self._faults = faults
        self.read_of_streams = 0

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._faults.around("transaction"), super().transaction() as transaction:
            yield _Counting(transaction, self)  # type: ignore[misc]
            self._faults.strike("commit", "before")

    def read_stream(self, stream: StreamId, after_version: int = 0) -> list[Any]:
        records = super().read_stream(stream, after_version)
        self.read_of_streams += len(records)
        return records


class _Counting:
    def __init__(self, transaction: Transaction, store: FaultyStore) -> None:
        self._transaction = transaction
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def read_stream(self, stream: StreamId, after_version: int) -> list[Any]:
        records = self._transaction.read_stream(stream, after_version)
        self._store.read_of_streams += len(records)
        return records


class FaultyLog(StoreLog):
    """The embedded log; its calls may fail, and it gives no more events at once than `at_most`."""

    def __init__(self, store: SQLiteEventStore, vault: Vault, path: Path, faults: Faults) -> None:
        super().__init__(store, vault, path)
        self._faults = faults
        self.at_most = 10_000

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        return super().events(after, min(limit, self.at_most))

    def publish(self, messages: Sequence[Message], step: Step | None = None) -> bool:
        with self._faults.around("publish"):
            return super().publish(messages, step)


class InlineExecutor(Executor):
    """Works at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class FakeNetworks:
    """One flat network with an address for every guest."""

    def plan(
        self,
        mode: NetworkMode,
        requests: tuple[NetworkRequest, ...],
        security_groups: tuple[str, ...],
        instance_id: InstanceId,
        project_id: ProjectId,
    ) -> tuple[AttachedInterface, ...]:
        if mode == "none":
            return ()
        address = f"10.1.{instance_id.bytes[-2]}.{instance_id.bytes[-1]}"
        mac = mac_address(instance_id, 0)
        return (AttachedInterface(network_id="net", network_name="private", mac_address=mac, addresses=(address,)),)


class HandWatchedDriver(FakeDriver):
    """The fake hypervisor without its watcher's thread: a test tells the agent what it would have heard."""

    changed: Callable[[InstanceId], None] | None = None

    def watch(self, changed: Callable[[InstanceId], None]) -> None:
        self.changed = changed


class FaultyDriver(HandWatchedDriver):
    """Each call may fail, or its caller die, before or after it was done."""

    def __init__(self, directory: Path, faults: Faults, **amounts: Any) -> None:
        super().__init__(directory, **amounts)
        self._faults = faults
        self.passwords: list[str] = []  # that guests were given

    def create(self, guest: Any, files: Any) -> None:
        with self._faults.around("create"):
            super().create(guest, files)

    def power_on(self, guest: Any) -> None:
        with self._faults.around("power_on"):
            super().power_on(guest)

    def power_off(self, instance_id: InstanceId, grace_s: int) -> None:
        with self._faults.around("power_off"):
            super().power_off(instance_id, grace_s)

    def reboot(self, instance_id: InstanceId, *, hard: bool, grace_s: int) -> None:
        with self._faults.around("reboot"):
            super().reboot(instance_id, hard=hard, grace_s=grace_s)

    def pause(self, instance_id: InstanceId) -> None:
        with self._faults.around("pause"):
            super().pause(instance_id)

    def unpause(self, instance_id: InstanceId) -> None:
        with self._faults.around("unpause"):
            super().unpause(instance_id)

    def suspend(self, instance_id: InstanceId) -> None:
        with self._faults.around("suspend"):
            super().suspend(instance_id)

    def resume(self, instance_id: InstanceId) -> None:
        with self._faults.around("resume"):
            super().resume(instance_id)

    def set_password(self, guest: Any, password: str) -> None:
        with self._faults.around("set_password"):
            super().set_password(guest, password)
            self.passwords.append(password)

    def destroy(self, instance_id: InstanceId) -> None:
        with self._faults.around("destroy"):
            super().destroy(instance_id)

    def observe_guest(self, instance_id: InstanceId) -> ObservedGuest | None:
        with self._faults.around("observe_guest"):
            return super().observe_guest(instance_id)


class FaultyJournal(Journal):
    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path)
        self._faults = faults

    def begin(self, *args: Any) -> None:
        with self._faults.around("begin"):
            super().begin(*args)

    def settle(self, *args: Any) -> None:
        with self._faults.around("settle"):
            super().settle(*args)


class Payloads:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def payload(self, instance_id: InstanceId, ref: VaultRef) -> bytes | None:
        return self._vault.payload(ref)

    def fetch_image(self, instance_id: InstanceId, image_id: str, to: Path) -> None:
        to.write_bytes(b"an image")


@dataclass(frozen=True, slots=True)
class HostSize:
    vcpus: int = 8
    memory_mib: int = 8192
    disk_gib: int = 100


class TestHost:
    """A host of a ledger: its directory and hypervisor outlive its agent."""

    __test__ = False

    def __init__(self, ledger: Ledger, name: str, size: HostSize) -> None:
        self.name = HostName(name)
        self.directory = ledger.directory / "hosts" / name
        self.directory.mkdir(parents=True)
        self.faults = Faults()
        self.paused = False  # frozen: neither works nor beats
        self.signer: Signer | None = None  # used from its next start on, as is the ledger that it belongs to
        self.incarnation = ""
        self._ledger = ledger
        self._size = size
        self.agent = self._start()

    @property
    def hypervisor(self) -> Path:
        return self.directory / "hypervisor"

    def kill(self) -> None:
        """The agent's process dies; its guests do not."""
        self.driver.close()
        self._journal.close()

    def restart(self) -> None:
        self.kill()
        self.faults.heal()
        self.agent = self._start()

    def guests(self) -> dict[InstanceId, int]:
        return {instance_id: guest.power_state for instance_id, guest in self.driver.observe().items()}

    def creates(self) -> dict[InstanceId, int]:
        return creates(self.hypervisor)

    def switch_power(self, instance_id: InstanceId, power: PowerState) -> None:
        """From outside; the agent hears of it."""
        switch_power(self.hypervisor, instance_id, power)
        if self.driver.changed is not None and not self.paused:
            self.driver.changed(instance_id)

    def step(self) -> bool:
        return False if self.paused else self.agent.step()

    def _start(self) -> Agent:
        ledger = self._ledger
        self.driver = FaultyDriver(
            self.hypervisor,
            self.faults,
            hostname=self.name,
            vcpus=self._size.vcpus,
            memory_mib=self._size.memory_mib,
            disk_gib=self._size.disk_gib,
        )
        self.driver.open()
        self._journal = FaultyJournal(self.directory / "journal.db", self.faults)
        self._journal.fact("service_id", str(uuid5(NAMES, f"service/{self.name}")))
        self._journal.fact("compute_id", str(uuid5(NAMES, f"node/{self.name}")))
        images = ImageCache(self.directory / "images", max_bytes=1 << 30)
        return Agent(
            HostSettings(host=self.name, incarnation=self.incarnation),
            ledger.log,
            self.driver,
            self._journal,
            Files(Payloads(ledger.vault), images, self.directory, ledger.clock),
            _no_overcommit,
            InlineExecutor(),
            ledger.clock,
            self.signer,
            ledger.clock.elapsed,
        )


def _no_overcommit(facts: NodeFacts) -> NodeFacts:
    return replace(facts, inventories={name: replace(i, allocation_ratio=1.0) for name, i in facts.inventories.items()})


class Ledger:
    def __init__(
        self,
        directory: Path,
        hosts: Sequence[str] = ("alpha",),
        *,
        size: HostSize = HostSize(),
        views: bool = False,
        quota_defaults: Mapping[str, int] = DEFAULT_LIMITS,
    ) -> None:
        self.directory = directory
        self.clock = Clock()
        self.faults = Faults()
        self._quota_defaults = quota_defaults
        self._commands = 0
        self._open()
        self.hosts = {name: TestHost(self, name, size) for name in hosts}
        self.views: Views | None = self.open_views() if views else None

    def _open(self) -> None:
        self.store = FaultyStore(self.directory / "ledger.db", self.faults)
        self.vault = Vault(self.store, read_or_make_master_key(self.directory / "vault.key"))
        self.log = FaultyLog(self.store, self.vault, self.directory / "messages.db", self.faults)
        self.records = Records(self.vault, self.store.incarnation)
        self.storage = Storage(self.store, self.vault, self.log, self.records)
        self._start_all()

    def _start_all(self) -> None:
        side = self.command_side()
        self.appender: Appender = side.appender
        self.parts: dict[str, Consumer] = {name: make() for name, make in side.consumers.items()}
        assert tuple(self.parts) == COMPONENTS

    def command_side(self) -> CommandSide:
        """Another set of everything on the command side, on the same store and log."""
        return command_side(
            self.storage,
            self.storage.log,
            FakeNetworks(),
            self.clock,
            self._quota_defaults,
            elapsed=self.clock.elapsed,
        )

    def open_views(self) -> Views:
        return Views(self.directory / "views.db", self.log, projections())

    def close(self) -> None:
        if self.views is not None:
            self.views.close()
        for host in self.hosts.values():
            host.kill()
        self.storage.close()

    # time and steps

    def restart(self, *names: str) -> None:
        """Start these parts anew (all, if none is named): they know nothing but what is stored."""
        self.faults.heal()
        if not names:
            self._start_all()
            return
        fresh = {name: make() for name, make in self.command_side().consumers.items()}
        for name in names:
            self.parts[name] = fresh[name]

    def step(self, name: str) -> bool:
        if name in self.hosts:
            return self.hosts[name].step()
        if name == "views":
            return self.views is not None and self.views.step()
        return self.parts[name].step()

    def settle(self) -> None:
        """Step everything in turn until nothing moves."""
        names = [*self.parts, *self.hosts, "views"]
        for _ in range(200):
            if not any([self.step(name) for name in names]):  # noqa: C419 (all of them)
                return
        raise AssertionError("the ledger does not come to rest")

    def settle_without(self, *left_out: str) -> None:
        names = [name for name in (*self.parts, *self.hosts, "views") if name not in left_out]
        for _ in range(200):
            if not any([self.step(name) for name in names]):  # noqa: C419 (all of them)
                return
        raise AssertionError("the ledger does not come to rest")

    def pass_time(self, seconds: float, step_s: float = 5) -> None:
        """Let time go by, with everything at work."""
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            self.settle()

    # commands

    def command_id(self) -> UUID:
        self._commands += 1
        return uuid5(NAMES, f"command/{self._commands}")

    def ask(
        self,
        command: Any,
        command_id: UUID | None = None,
        payloads: Mapping[VaultRef, Payload] | None = None,
        appender: Appender | None = None,
    ) -> Accepted:
        """Have a command decided; a refusal is raised."""
        asked = self.as_ask(command, command_id, payloads)
        outcome = (appender or self.appender).execute(Unit(asks=(asked,))).outcomes[0]
        if isinstance(outcome, DomainError):
            raise outcome
        return outcome

    def as_ask(
        self, command: Any, command_id: UUID | None = None, payloads: Mapping[VaultRef, Payload] | None = None
    ) -> Ask:
        command_id = command_id or self.command_id()
        cause = Cause(
            command_id=command_id, request_id=RequestId(f"req-{command_id}"), user_id=USER, project_id=PROJECT
        )
        return Ask(command=command, cause=cause, payloads=payloads or {})

    def with_flavors(self) -> Ledger:
        for flavor in (SMALL, LARGE):
            self.ask(CreateFlavor(flavor=flavor))
        return self

    def create(self, count: int = 1, *, flavor: FlavorSpec = SMALL, **changes: Any) -> list[InstanceId]:
        """Ask for servers; their ids follow from how many commands there were."""
        ids = tuple(InstanceId(uuid5(NAMES, f"instance/{self._commands}/{n}")) for n in range(count))
        accepted = self.ask(create_command(ids, flavor=flavor, **changes))
        made = {e.event.instance_id for e in accepted.events if e.type == "instance.create_requested"}
        return [instance_id for instance_id in ids if instance_id in made]

    def running(self, count: int = 1, **changes: Any) -> list[InstanceId]:
        ids = self.create(count, **changes)
        self.settle()
        return ids

    def start(self, instance_id: InstanceId) -> Accepted:
        return self.ask(StartInstance(instance_id=instance_id, project_id=PROJECT))

    def stop(self, instance_id: InstanceId) -> Accepted:
        return self.ask(StopInstance(instance_id=instance_id, project_id=PROJECT))

    def reboot(self, instance_id: InstanceId, *, hard: bool = False) -> Accepted:
        return self.ask(RebootInstance(instance_id=instance_id, project_id=PROJECT, hard=hard))

    def delete(self, instance_id: InstanceId) -> Accepted:
        return self.ask(DeleteInstance(instance_id=instance_id, project_id=PROJECT))

    # what is so

    def folded(self, stream: StreamId) -> Folded:
        return Snapshots(self.vault).load(self.store, stream, self.records)

    def instance(self, instance_id: InstanceId) -> Instance:
        state: Instance | None = self.folded(instance_stream(instance_id)).state
        assert state is not None
        return state

    def instances(self) -> dict[InstanceId, Instance]:
        found = [self.folded(stream).state for stream in self.store.streams("instance")]
        return {instance.id: instance for instance in found}

    def provider(self, host: str) -> ProviderTree:
        state: ProviderTree | None = self.folded(provider_stream(self.hosts[host].agent.node_id)).state
        assert state is not None
        return state

    def quota(self, project_id: ProjectId = PROJECT) -> Quota:
        return self.folded(quota_stream(project_id)).state or Quota(project_id=project_id)

    def history(self, after: int = 0) -> list[RecordedEvent]:
        return [self.records.decode(stored) for stored in self.store.read(after, 1_000_000)]

    def history_of(self, instance_id: InstanceId) -> list[str]:
        """What happened to an instance, in the words of the record."""
        stored = self.store.read_stream(instance_stream(instance_id))
        return [record.wire_name.removeprefix("instance.") for record in stored]

    def messages(self, topic: str) -> Sequence[LogRecord]:
        return self.log.read(topic, 0, 100_000)


def create_command(
    instance_ids: Sequence[InstanceId], *, flavor: FlavorSpec = SMALL, **changes: Any
) -> CreateInstances:
    values: dict[str, Any] = {
        "instance_ids": tuple(instance_ids),
        "user_id": USER,
        "project_id": PROJECT,
        "reservation_id": "r-1",
        "name": "a server",
        "hostname": "a-server",
        "flavor_id": flavor.flavor_id,
        "image": IMAGE,
    }
    return CreateInstances(**{**values, **changes})


def require_nothing_leaked(ledger: Ledger) -> None:
    """Each claim has one live owner that is placed there, and the quota counts exactly the instances that live."""
    instances = ledger.instances()
    live = {i.id: i for i in instances.values() if not i.deleted}
    for host in ledger.hosts.values():
        stream = provider_stream(host.agent.node_id)
        tree: ProviderTree | None = ledger.folded(stream).state
        claims = set() if tree is None else set(tree.claims)
        placed = {
            i.id
            for i in instances.values()
            if i.residence is not None and i.residence.host == host.name and (not i.deleted or i.purge_pending)
        }
        assert claims == placed, f"claims on {host.name}"
        if tree is not None:
            require_within_capacity(tree)
    quota = ledger.quota()
    assert quota.used.get("instances", 0) == len(live)
    assert quota.used.get("cores", 0) == sum(i.request.flavor.vcpus for i in live.values())
    assert quota.used.get("ram", 0) == sum(i.request.flavor.memory_mib for i in live.values())


def require_within_capacity(tree: ProviderTree) -> None:
    for provider in tree.providers.values():
        claimed: dict[str, int] = {}
        for amounts in tree.claims.values():
            for name, amount in amounts.get(provider.provider_id, {}).items():
                claimed[name] = claimed.get(name, 0) + amount
        for name, used in provider.used.items():
            assert used == claimed.get(name, 0), f"{name}: used is the sum of the claims"
            assert used <= provider.inventories[name].capacity, f"{name}: beyond capacity"
