"""The command side put together: store, vault, log, appender, process managers, inbox; without loops or threads.

Which adapters stand behind the ports is decided here and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from commands.appender import Appender
from commands.decisions import decisions
from commands.event_store import EventStore
from commands.host_keys import HostKeys
from commands.inbox import Inbox
from commands.log.consumer import Consumer
from commands.log.port import Events, Log
from commands.log.store_log import StoreLog
from commands.log.stored_events import StoredEvents
from commands.neighbours.networks import Networks
from commands.process_managers.build import BuildManager
from commands.process_managers.deadlines import SERVICE_DOWN_AFTER_S, DeadlinesManager
from commands.process_managers.orders import OrdersManager
from commands.records import Records
from commands.snapshots import Snapshots
from commands.sqlite_store import SQLiteEventStore
from commands.vault import PROOF, NotBegun, Vault, read_or_make_master_key
from domain.quota import DEFAULT_LIMITS

if TYPE_CHECKING:
    from commands.log.kafka_log import KafkaLog
    from commands.log.kafka_messages import KafkaMessages
    from commands.log.kafka_options import KafkaOptions
    from commands.log.kafka_topics import Topics
    from commands.log.relay import Relay
    from commands.postgresql_store import CommitBell


BEATS_FRESH_S = 30.0  # a revoked key may keep its host up for so long; each beat would read the store otherwise

LogT = TypeVar("LogT", bound=Events, covariant=True)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Storage(Generic[LogT]):
    """Where the ledger is: enough to read it, and to rebuild views from it."""

    store: EventStore
    vault: Vault
    log: LogT
    records: Records

    def close(self) -> None:
        close = getattr(self.log, "close", None)
        if close is not None:
            close()
        self.store.close()


def open_storage(directory: Path, *, with_writer: bool = True) -> Storage[StoreLog]:
    """The embedded store and log under a directory; without a writer, to look at while another process runs.

    Raises:
        StoreUnavailable, VaultDamaged, NotBegun.
    """
    store = SQLiteEventStore(directory / "ledger.db")
    vault = _vault(store, directory / "vault.key", with_writer=with_writer)
    the_log = StoreLog(store, vault, directory / "messages.db", with_writer=with_writer)
    return Storage(store, vault, the_log, Records(vault, store.incarnation))


def open_shared_storage(url: str, key_file: Path, name: str, *, with_writer: bool = True) -> Storage[StoredEvents]:
    """The store of a distributed ledger; `name` is how PostgreSQL shows this process.

    Raises:
        StoreUnavailable, VaultDamaged, NotBegun.
    """
    from commands.postgresql_store import PostgreSQLEventStore

    store = PostgreSQLEventStore(url, application_name=name)
    vault = _vault(store, key_file, with_writer=with_writer)
    records = Records(vault, store.incarnation)
    return Storage(store, vault, StoredEvents(store, records), records)


def _vault(store: EventStore, key_file: Path, *, with_writer: bool) -> Vault:
    begun = store.key(PROOF) is not None
    if not begun and not with_writer:
        raise NotBegun("the store holds no ledger yet; the first process that starts begins it")
    vault = Vault(store, read_or_make_master_key(key_file, may_make=not begun))
    vault.prove()
    return vault


@dataclass(frozen=True, slots=True)
class Delivery:
    """Kafka, as one process that has the store uses it."""

    topics: Topics
    messages: KafkaMessages
    bell: CommitBell
    log: KafkaLog

    def relay(self, store: EventStore) -> Relay:
        from commands.log.relay import Relay

        return Relay(store, self.messages, self.topics, self.bell)

    def close(self) -> None:
        self.log.close()
        self.bell.close()
        self.topics.close()


def open_delivery(storage: Storage[Events], url: str, kafka: KafkaOptions) -> Delivery:
    from commands.log.kafka_log import KafkaLog
    from commands.log.kafka_messages import KafkaMessages
    from commands.log.kafka_topics import Topics
    from commands.postgresql_store import CommitBell

    topics, messages, bell = Topics(kafka), KafkaMessages(kafka), CommitBell(url)
    return Delivery(topics, messages, bell, KafkaLog(storage.store, storage.vault, messages, topics, bell))


@dataclass(frozen=True, slots=True)
class CommandSide:
    """The appender of this process, and how to make each consumer that records through it."""

    appender: Appender
    consumers: Mapping[str, Callable[[], Consumer]]


def command_side(
    storage: Storage[Events],
    the_log: Log,
    networks: Networks,
    clock: Callable[[], datetime] = utc_now,
    quota_defaults: Mapping[str, int] = DEFAULT_LIMITS,
    service_down_after_s: int = SERVICE_DOWN_AFTER_S,
    keys: HostKeys | None = None,
    elapsed: Callable[[], float] = time.monotonic,
) -> CommandSide:
    """`keys`: of the hosts whose word has to be proved; none where every host is of this very process."""
    store, vault, records = storage.store, storage.vault, storage.records
    appender = Appender(store, vault, decisions(quota_defaults), clock, the_log.committed)
    snapshots = Snapshots(vault)
    of_beats = None if keys is None else HostKeys(store, snapshots, records, fresh_s=BEATS_FRESH_S)
    return CommandSide(
        appender,
        {
            BuildManager.name: lambda: BuildManager(the_log, appender, store, records, snapshots, networks),
            OrdersManager.name: lambda: OrdersManager(the_log, store, records, snapshots, vault),
            Inbox.name: lambda: Inbox(the_log, appender, store, keys),
            DeadlinesManager.name: lambda: DeadlinesManager(
                the_log, appender, store, records, snapshots, clock, service_down_after_s, of_beats, elapsed
            ),
        },
    )
