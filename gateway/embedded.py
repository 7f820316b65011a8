"""The embedded deployment: everything in one process, under one directory. `compute-ledger up` starts it.

The distributed one differs in two adapters (store, log) and in which of these objects a process runs.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from commands.assembly import Storage, command_side, open_storage
from commands.inbox import Inbox
from commands.log.port import LEDGER, REPORTS
from commands.log.runner import Runner
from commands.log.store_log import StoreLog
from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from commands.snapshots import Snapshots
from commands.vault import Vault
from domain.identifiers import InstanceId, VaultRef
from gateway.backend import Backend
from gateway.directory_lock import DirectoryInUse, lock
from gateway.health import Check
from gateway.hosts import DIRECTORIES, LocalHost, name_of_host, wait_until_idle
from gateway.metrics import ProcessMetrics
from gateway.options import Options
from gateway.server_filters import install
from gateway.view_reader import OwnHeads, OwnViews, Reading, ViewReader
from hostagent.journal import Journal
from projections.catalogue import projections
from projections.views import Views

log = logging.getLogger(__name__)


class LocalPayloads:
    """Payloads and images for hosts of this very process: straight from the vault and the image service."""

    def __init__(self, vault: Vault, images: StandaloneImages) -> None:
        self._vault = vault
        self._images = images

    def payload(self, instance_id: InstanceId, ref: VaultRef) -> bytes | None:
        return self._vault.payload(ref)

    def fetch_image(self, instance_id: InstanceId, image_id: str, to: Path) -> None:
        self._images.fetch(image_id, to)


class Embedded:
    """Builds all, starts all, stops all. Nothing runs before `start`."""

    def __init__(self, options: Options) -> None:
        """Raises:
        DirectoryInUse, StoreUnavailable, VaultDamaged, AccountsInvalid, TokenKeyInvalid, HostIdentityChanged.
        """
        self.options = options
        directory = options.directory
        directory.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        if (directory / "views").is_dir():
            raise DirectoryInUse(f"{directory} is of a distributed ledger: say which roles to play there, with --role")
        self._lock = lock(directory)
        self.identity = StandaloneIdentity(
            directory, auth_url=f"{options.url}/identity/v3", token_lifetime_s=options.token_lifetime_s
        )
        self.images = StandaloneImages(directory / "images", max_bytes=options.image_size_bytes)
        self.networks = StandaloneNetworks(name=options.network_name, bridge=options.bridge)
        self.storage: Storage[StoreLog] = open_storage(directory)
        side = command_side(
            self.storage,
            self.storage.log,
            self.networks,
            quota_defaults=options.quota_defaults,
            service_down_after_s=options.service_down_after_s,
        )
        self._appender = side.appender
        views_path = directory / "views.db"
        self._views = Views(views_path, self.storage.log, projections())
        views = OwnViews(views_path, self._views, install)
        reader = ViewReader(OwnHeads(self.storage.log), views)
        self._reading = Reading(self.storage.log.head, views)
        self.backend = Backend(side.appender, self.storage.log, reader, self.storage.vault)
        self._hosts = [self._host(number) for number in range(1, options.hosts + 1)]
        of_hosts = [consumer for host in self._hosts for consumer in host.consumers]
        self.runner = Runner(self.storage.log, [*(make() for make in side.consumers.values()), self._views, *of_hosts])

    def start(self) -> None:
        self._appender.start()
        self.runner.start()
        self._reading.start()

    def stop(self) -> bool:
        """Whether no call to a hypervisor was left unfinished."""
        self._reading.close()
        self.runner.stop()
        idle = wait_until_idle(self._hosts)
        self._appender.stop()
        for host in self._hosts:
            host.close()
        self.backend.views.close()
        self._views.close()
        self.storage.close()
        os.close(self._lock)
        return idle

    def alive(self) -> dict[str, Check]:
        return {"consumers": self.runner.stopped}

    def readiness(self) -> dict[str, Check]:
        def store() -> str | None:
            self.storage.log.head()
            return None

        checks: dict[str, Check] = {"store": store, "steps": self.runner.failed, "views": self._reading}
        return checks | {f"host {host.agent.host}": host.readiness for host in self._hosts}

    def metrics(self) -> ProcessMetrics:
        return ProcessMetrics(self.runner, {LEDGER: self.storage.log.head}, [host.agent for host in self._hosts])

    def hosts_up(self) -> bool:
        """Whether every local host has opened its session, and the views show it."""
        the_log = self.storage.log
        return (
            all(host.agent.in_session for host in self._hosts)
            and self.storage.store.position(Inbox.name) >= the_log.end(REPORTS)
            and self._views.position >= the_log.head()
        )

    def _host(self, number: int) -> LocalHost:
        options = self.options
        name = name_of_host(number, options.hosts)
        source = LocalPayloads(self.storage.vault, self.images)
        directory = options.directory / "hosts" / str(number)
        host = LocalHost(
            options, directory, name, self.storage.log, source, lambda journal: self._take_up(journal, name)
        )
        host.driver.open()  # a hypervisor that cannot be reached is said at once, in one line
        return host

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
