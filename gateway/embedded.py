"""The embedded deployment: everything in one process, under one directory. `compute-ledger up` starts it.

The distributed one differs in two adapters (store, log) and in which of these objects a process runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from commands.assembly import Storage, command_side, open_storage, utc_now
from commands.inbox import Inbox
from commands.log.consumer import Consumer
from commands.log.port import REPORTS
from commands.log.runner import Runner
from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from commands.reports import NodeFacts
from commands.snapshots import Snapshots
from commands.vault import Vault
from domain.identifiers import HostName, VaultRef
from domain.quota import DEFAULT_LIMITS
from domain.resources import DISK_GB, MEMORY_MB, VCPU
from gateway.backend import Backend, ViewReader
from gateway.server_filters import install
from hostagent.agent import Agent, HostSettings
from hostagent.drivers.protocol import Driver
from hostagent.images import ImageCache
from hostagent.journal import Journal
from hostagent.payloads import Files
from hostagent.queries import Queries
from projections.catalogue import projections
from projections.views import Views

log = logging.getLogger(__name__)

WORKERS_A_HOST = 8
STOP_S = 5.0
DIRECTORIES = 0o700


class DriverChanged(Exception):
    """The directory holds guests of another driver; they would be lost from sight."""


class DirectoryInUse(Exception):
    """Another process has this ledger open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedOptions:
    """What an operator chooses; names and defaults as in `gateway/settings.py`."""

    directory: Path
    url: str  # where clients reach the site
    driver: str = "fake"  # "fake", "test" or "libvirt"
    hosts: int = 1
    libvirt_uri: str | None = None
    virt_type: str = "auto"
    bridge: str | None = None
    network_name: str = "private"
    zone: str = "nova"
    force_config_drive: bool = True
    fake_vcpus: int = 64
    fake_memory_mib: int = 262_144
    fake_disk_gib: int = 4096
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_cpus: int = 0
    reserved_host_memory_mib: int = 512
    reserved_host_disk_gib: int = 0
    image_cache_bytes: int = 100 * 1024**3
    image_size_bytes: int = 1 << 40
    token_lifetime_s: int = 3600
    default_schedule_zone: str | None = None
    service_down_after_s: int = 60
    shutdown_timeout_s: int = 60
    max_limit: int = 1000
    max_body_bytes: int = 114_688
    trust_proxy: bool = False
    quota_defaults: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)


class LocalPayloads:
    """Payloads and images for hosts of this very process: straight from the vault and the image service."""

    def __init__(self, vault: Vault, images: StandaloneImages) -> None:
        self._vault = vault
        self._images = images

    def payload(self, ref: VaultRef) -> bytes | None:
        return self._vault.payload(ref)

    def fetch_image(self, image_id: str, to: Path) -> None:
        self._images.fetch(image_id, to)


class Embedded:
    """Builds all, starts all, stops all. Nothing runs before `start`."""

    def __init__(self, options: EmbeddedOptions) -> None:
        """Raises:
        DirectoryInUse, StoreUnavailable, VaultDamaged, AccountsInvalid, TokenKeyInvalid, HostIdentityChanged.
        """
        self.options = options
        directory = options.directory
        directory.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        self._lock = lock(directory)
        self.identity = StandaloneIdentity(
            directory, auth_url=f"{options.url}/identity/v3", token_lifetime_s=options.token_lifetime_s
        )
        self.images = StandaloneImages(directory / "images", max_bytes=options.image_size_bytes)
        self.networks = StandaloneNetworks(name=options.network_name, bridge=options.bridge)
        self.storage: Storage = open_storage(directory)
        side = command_side(
            self.storage,
            self.networks,
            quota_defaults=options.quota_defaults,
            service_down_after_s=options.service_down_after_s,
        )
        self._appender = side.appender
        views_path = directory / "views.db"
        self._views = Views(views_path, self.storage.log, projections())
        reader = ViewReader(views_path, self.storage.log, self._views)
        install(reader.database)
        self.backend = Backend(side.appender, self.storage.log, reader, self.storage.vault)
        self._agents: list[Agent] = []
        self._drivers: list[Driver] = []
        self._executors: list[ThreadPoolExecutor] = []
        self._journals: list[Journal] = []
        hosts = [consumer for number in range(options.hosts) for consumer in self._host(number)]
        self.runner = Runner(self.storage.log, [*side.consumers, self._views, *hosts])

    def start(self) -> None:
        self._appender.start()
        self.runner.start()

    def stop(self) -> bool:
        """Stop all. A call to a hypervisor that takes longer than a few seconds is left: its act is journalled as begun,
        and the next start goes on from there. Whether none was left."""
        self.runner.stop()
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + STOP_S
        while not (idle := all(agent.idle() for agent in self._agents)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self._appender.stop()
        for driver in self._drivers:
            driver.close()
        for journal in self._journals:
            journal.close()
        self.backend.views.close()
        self._views.close()
        self.storage.close()
        os.close(self._lock)
        return idle

    def hosts_up(self) -> bool:
        """Whether every local host has opened its session, and the views show it."""
        the_log = self.storage.log
        return (
            all(agent.in_session for agent in self._agents)
            and self.storage.store.position(Inbox.name) >= the_log.end(REPORTS)
            and self._views.position >= the_log.head()
        )

    def _host(self, number: int) -> list[Consumer]:
        options = self.options
        name = socket.gethostname() if options.hosts == 1 else f"{socket.gethostname()}-{number + 1}"
        directory = options.directory / "hosts" / str(number + 1)
        directory.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        journal = Journal(directory / "journal.db")
        kept = journal.fact("driver", options.driver)
        if kept != options.driver:
            raise DriverChanged(
                f"the guests in {options.directory} are the {kept} driver's; "
                f"start with --driver {kept}, or with another directory"
            )
        self._take_up(journal, name)
        driver = make_driver(options, directory, name)
        driver.open()  # a hypervisor that cannot be reached is said at once, in one line
        executor = ThreadPoolExecutor(WORKERS_A_HOST, thread_name_prefix=f"host-{number + 1}")
        files = Files(
            LocalPayloads(self.storage.vault, self.images),
            ImageCache(directory / "images", max_bytes=options.image_cache_bytes),
            directory,
            utc_now,
        )
        settings = HostSettings(host=HostName(journal.fact("host", name)), availability_zone=options.zone)
        facts = partial(self._facts, settings.host)
        agent = Agent(settings, self.storage.log, driver, journal, files, facts, executor, utc_now)
        self._agents.append(agent)
        self._drivers.append(driver)
        self._executors.append(executor)
        self._journals.append(journal)
        return [agent, Queries(self.storage.log, driver, agent.service_id)]

    def _take_up(self, journal: Journal, name: str) -> None:
        """A journal that is new, or was put back from an older copy, takes the host's identity and epoch from the ledger:
        a second identity would give the host's room away twice, and an old epoch would never be heard."""
        store, vault = self.storage.store, self.storage.vault
        snapshots = Snapshots(vault)
        host = journal.fact("host", name)
        for stream in store.streams("service"):
            service = snapshots.load(store, stream, self.storage.records).state
            if service.registration.host == host and not service.deleted:
                journal.fact("service_id", str(service.service_id))
                journal.fact("compute_id", str(service.registration.node_id))
                journal.set_fact("epoch", str(max(int(journal.fact("epoch", "0")), service.epoch)))

    def _facts(self, host: str, facts: NodeFacts) -> NodeFacts:
        """What the hypervisor says of itself, with the operator's ratios and reserves; one node a host, of its name."""
        options = self.options
        ours = {
            VCPU: (options.cpu_allocation_ratio, options.reserved_host_cpus),
            MEMORY_MB: (options.ram_allocation_ratio, options.reserved_host_memory_mib),
            DISK_GB: (options.disk_allocation_ratio, options.reserved_host_disk_gib),
        }
        inventories = {
            name: replace(inventory, allocation_ratio=ours[name][0], reserved=min(ours[name][1], inventory.total))
            for name, inventory in facts.inventories.items()
        }
        return replace(facts, hypervisor_hostname=host, inventories=inventories)


def make_driver(options: EmbeddedOptions, directory: Path, hostname: str) -> Driver:
    if options.driver == "fake":
        from hostagent.drivers.fake import FakeDriver

        return FakeDriver(
            directory / "fake",
            hostname=hostname,
            vcpus=options.fake_vcpus,
            memory_mib=options.fake_memory_mib,
            disk_gib=options.fake_disk_gib,
        )
    from hostagent.drivers.libvirt.driver import LibvirtDriver, LibvirtSettings

    default_uri = "test:///default" if options.driver == "test" else "qemu:///system"
    declared = options.driver == "test"
    return LibvirtDriver(
        LibvirtSettings(
            connection_uri=options.libvirt_uri or default_uri,
            instances_path=directory / "instances",
            virt_type=options.virt_type,
            bridge=options.bridge,
            vcpus=options.fake_vcpus if declared else None,
            memory_mib=options.fake_memory_mib if declared else None,
            disk_gib=options.fake_disk_gib if declared else None,
        )
    )


def lock(directory: Path) -> int:
    """Hold the directory for this process, until the returned descriptor is closed.

    Raises:
        DirectoryInUse: another process holds it.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DirectoryInUse(f"{directory} is in use by another compute-ledger process") from None
    return descriptor


def tune() -> None:
    """Many short steps on many threads in one interpreter: let them take turns more often than every 5 ms."""
    sys.setswitchinterval(0.0005)
