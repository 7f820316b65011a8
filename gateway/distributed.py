"""One process of a distributed ledger: the roles it was given, over PostgreSQL and Kafka.

The same objects as in `embedded.py`, over the other adapters. Of each manager, the relay and the inbox one is active among
all processes; every projections process keeps views of its own, so that a gateway always finds some that move.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from commands.assembly import Delivery, command_side, open_delivery, open_shared_storage
from commands.election import Always, Election
from commands.event_store import StoreUnavailable
from commands.host_keys import HostKeys
from commands.inbox import Inbox
from commands.log.consumer import Consumer
from commands.log.elected import Elected, Seats
from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_watch import KafkaWatch
from commands.log.port import LEDGER, REPORTS, Messages
from commands.log.relay import Relay
from commands.log.runner import Runner
from commands.neighbours.standalone.networks import StandaloneNetworks
from commands.process_managers.build import BuildManager
from commands.process_managers.deadlines import DeadlinesManager
from commands.process_managers.orders import OrdersManager
from commands.snapshots import Snapshots
from domain.identifiers import HostName
from gateway.clocks import StoreClock
from gateway.directory_lock import DirectoryInUse, lock
from gateway.options import AgentOptions, RoleOptions, StoreOptions
from gateway.roles import Role, RoleNeeds

if TYPE_CHECKING:  # each process imports what its roles need, and no more
    from gateway.gateway_role import GatewayRole
    from gateway.health import Check
    from gateway.hosts import LocalHost
    from gateway.metrics import ProcessMetrics
    from projections.views import Views

log = logging.getLogger(__name__)

CONSUMERS = {
    Role.MANAGERS: (BuildManager.name, OrdersManager.name, DeadlinesManager.name),
    Role.INBOX: (Inbox.name,),
    Role.RELAY: (Relay.name,),
}
T = TypeVar("T")

STORE_RETRY_S = 1.0
REPLICAS = 64
DIRECTORIES = 0o700


class Distributed:
    """Builds the roles, starts them, stops them. Nothing runs before `start`."""

    def __init__(self, options: RoleOptions) -> None:
        """Waits for the store where it is away.

        Raises:
            RoleNeeds, VaultDamaged, AccountsInvalid, TokenKeyInvalid, CredentialInvalid, DriverChanged, HostIdentityChanged,
            DirectoryInUse.
        """
        self.options = options
        self.common = options.common
        self.roles = options.roles
        self.common.directory.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        self.hosts: list[LocalHost] = []
        self.ledger: LedgerRoles | None = None
        consumers: list[Consumer] = []
        if options.roles - {Role.AGENT}:
            if options.store is None:
                raise RoleNeeds(f"the role {min(options.roles - {Role.AGENT})} needs --store postgresql://…")
            self.ledger = LedgerRoles(options, options.store)
            consumers += self.ledger.consumers
            self.messages: Messages = self.ledger.delivery.log
        if Role.AGENT in options.roles:
            if options.agent is None:
                raise RoleNeeds("the role agent needs --credential FILE and --gateway URL")
            if self.ledger is None:
                self.messages = KafkaMessages(options.kafka)
            self.hosts.append(self._host(options.agent))
            consumers += self.hosts[0].consumers
        self.runner = Runner(self.messages, consumers)
        self._kafka_watch = KafkaWatch(options.kafka)

    def start(self) -> None:
        self._kafka_watch.start()
        if self.ledger is not None:
            self.ledger.start()
        self.runner.start()

    def stop(self) -> bool:
        """Whether no call to a hypervisor was left unfinished."""
        self._kafka_watch.close()
        self.runner.stop()
        if self.ledger is not None:
            self.ledger.seats.close()
        idle = True
        if self.hosts:
            from gateway.hosts import wait_until_idle

            idle = wait_until_idle(self.hosts)
        for host in self.hosts:
            host.close()
        if self.ledger is not None:
            self.ledger.close()
        else:
            self.messages.close()
        return idle

    @property
    def gateway(self) -> GatewayRole | None:
        return None if self.ledger is None else self.ledger.gateway

    def alive(self) -> dict[str, Check]:
        return {"consumers": self.runner.stopped}

    def readiness(self) -> dict[str, Check]:
        checks: dict[str, Check] = {"steps": self.runner.failed}
        if self.ledger is not None:
            checks |= self.ledger.readiness()
        for host in self.hosts:
            checks[f"host {host.agent.host}"] = host.readiness
        return checks if self._does_without_kafka() else checks | self._kafka()

    def shown(self) -> dict[str, Check]:
        """Checks that make nothing unready."""
        clock: dict[str, Check] = {} if self.ledger is None else {"clock": self.ledger.clock}
        return clock | self._kafka() if self._does_without_kafka() else clock

    def metrics(self) -> ProcessMetrics:
        from gateway.metrics import ProcessMetrics

        ends: dict[str, Callable[[], int]] = {}
        if self.ledger is not None:
            ends = {LEDGER: self.ledger.storage.store.head, REPORTS: lambda: self.messages.end(REPORTS)}
        return ProcessMetrics(self.runner, ends, [host.agent for host in self.hosts])

    def _does_without_kafka(self) -> bool:
        """Reads and writes go on while Kafka is away; what else a gateway's process does then waits."""
        return Role.GATEWAY in self.roles or self.roles == {Role.PROJECTIONS}

    def _kafka(self) -> dict[str, Check]:
        def kafka() -> str | None:
            self.messages.end(REPORTS)
            return self.runner.without_log()

        return {"kafka": kafka}

    def _host(self, agent: AgentOptions) -> LocalHost:
        from gateway.hosts import LocalHost
        from hostagent.agent_api import AgentApi
        from hostagent.host_key import HostCredential

        credential = HostCredential.load(agent.credential)
        source = AgentApi(agent.gateways, credential, agent.ca_file)

        return LocalHost(
            self.common,
            self.common.directory,
            HostName(credential.host),
            self.messages,
            source,
            credential.take_up,
            host_ip=agent.host_ip,
            signer=credential,
            incarnation=credential.incarnation,
            standing=source.session,
        )


class LedgerRoles:
    """The roles that have the store."""

    def __init__(self, options: RoleOptions, store: StoreOptions) -> None:
        from commands.postgresql_inspection import ahead_of_store_s

        self._common = options.common
        roles = options.roles
        self.storage = _reached(lambda: open_shared_storage(store.url, store.vault_key_file, options.name))
        self.delivery: Delivery = open_delivery(self.storage, store.url, options.kafka)
        the_log = self.delivery.log
        self.clock = StoreClock(lambda: ahead_of_store_s(store.url, options.name))
        self.networks = StandaloneNetworks(name=self._common.network_name, bridge=self._common.bridge)
        self.host_keys = HostKeys(self.storage.store, Snapshots(self.storage.vault), self.storage.records)
        side = command_side(
            self.storage,
            the_log,
            self.networks,
            quota_defaults=self._common.quota_defaults,
            service_down_after_s=self._common.service_down_after_s,
            keys=self.host_keys,
        )
        self.appender = side.appender
        makers: dict[str, Callable[[], Consumer]] = dict(side.consumers)
        makers[Relay.name] = lambda: self.delivery.relay(self.storage.store)
        names = [name for role in CONSUMERS if role in roles for name in CONSUMERS[role]]
        self.seats: Seats = Election(store.url, names, process=options.name) if options.stand_by else Always()
        self.consumers: list[Consumer] = [Elected(name, makers[name], self.seats) for name in names]
        self.views: Views | None = None
        self._replica: int | None = None
        if Role.PROJECTIONS in roles:
            from projections.catalogue import projections
            from projections.views import Views

            directory, self._replica = claim_replica(self._common.directory / "views")
            self.views = Views(directory / "views.db", the_log, projections())
            self.consumers.append(self.views)
        self.gateway: GatewayRole | None = None
        if Role.GATEWAY in roles:
            from gateway.gateway_role import GatewayRole

            self.gateway = GatewayRole(
                options.common, self.storage, the_log, self.appender, self.networks, self.host_keys
            )

    def start(self) -> None:
        self.clock.warn()
        self.appender.start()
        if self.gateway is not None:
            self.gateway.reading.start()

    def readiness(self) -> dict[str, Check]:
        store = self.storage.store

        def head() -> str | None:
            store.head()
            return None

        checks: dict[str, Check] = {"store": head}
        if self.gateway is not None:
            checks["views"] = self.gateway.reading
        return checks

    def close(self) -> None:
        self.appender.stop()
        if self.gateway is not None:
            self.gateway.reading.close()
            self.gateway.backend.views.close()
        if self.views is not None:
            self.views.close()
        self.delivery.close()
        self.storage.store.close()
        if self._replica is not None:
            os.close(self._replica)


def claim_replica(directory: Path) -> tuple[Path, int]:
    """The first directory of views that no other process keeps, and what holds it for this one.

    Raises:
        RoleNeeds: there are too many.
    """
    for number in range(1, REPLICAS + 1):
        replica = directory / str(number)
        replica.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        with suppress(DirectoryInUse):
            return replica, lock(replica)
    raise RoleNeeds(f"{REPLICAS} processes keep views under {directory} already")


def _reached(open_store: Callable[[], T]) -> T:
    """The store, once it answers."""
    said = ""
    while True:
        try:
            return open_store()
        except StoreUnavailable as error:
            if str(error) != said:
                log.warning("the store does not answer: %s", " ".join(str(error).split()))
                said = str(error)
            time.sleep(STORE_RETRY_S)
