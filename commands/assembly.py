"""The command side put together: store, vault, log, appender, process managers, inbox; without loops or threads.

Which adapters stand behind the ports is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from commands.appender import Appender
from commands.decisions import decisions
from commands.event_store import EventStore
from commands.inbox import Inbox
from commands.log.consumer import Consumer
from commands.log.store_log import StoreLog
from commands.neighbours.networks import Networks
from commands.process_managers.build import BuildManager
from commands.process_managers.deadlines import SERVICE_DOWN_AFTER_S, DeadlinesManager
from commands.process_managers.orders import OrdersManager
from commands.records import Records
from commands.snapshots import Snapshots
from commands.sqlite_store import SQLiteEventStore
from commands.vault import PROOF, Vault, read_or_make_master_key
from domain.quota import DEFAULT_LIMITS


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the ledger is: enough to read it, and to rebuild views from it."""

    store: EventStore
    vault: Vault
    log: StoreLog
    records: Records

    def close(self) -> None:
        self.log.close()
        self.store.close()


def open_storage(directory: Path, *, with_writer: bool = True) -> Storage:
    """The embedded store and log under a directory; without a writer, to look at while another process runs.

    Raises:
        StoreUnavailable, VaultDamaged.
    """
    store = SQLiteEventStore(directory / "ledger.db")
    begun = store.key(PROOF) is not None
    vault = Vault(store, read_or_make_master_key(directory / "vault.key", may_make=with_writer and not begun))
    if begun or with_writer:
        vault.prove()
    the_log = StoreLog(store, vault, directory / "messages.db", with_writer=with_writer)
    return Storage(store, vault, the_log, Records(vault, store.incarnation))


@dataclass(frozen=True, slots=True)
class CommandSide:
    appender: Appender
    consumers: tuple[Consumer, ...]


def command_side(
    storage: Storage,
    networks: Networks,
    clock: Callable[[], datetime] = utc_now,
    quota_defaults: Mapping[str, int] = DEFAULT_LIMITS,
    service_down_after_s: int = SERVICE_DOWN_AFTER_S,
) -> CommandSide:
    store, vault, the_log, records = storage.store, storage.vault, storage.log, storage.records
    appender = Appender(store, vault, decisions(quota_defaults), clock, the_log.committed)
    snapshots = Snapshots(vault)
    return CommandSide(
        appender,
        (
            BuildManager(the_log, appender, store, records, snapshots, networks),
            OrdersManager(the_log, store, records, snapshots, vault),
            Inbox(the_log, appender, store),
            DeadlinesManager(the_log, appender, store, records, snapshots, clock, service_down_after_s),
        ),
    )
