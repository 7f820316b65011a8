"""Hosts on other machines: enrolled with a key of their own, listed, and revoked, by an operator at the ledger's store.

A host's private key is made here, printed once for the machine it is for, and kept nowhere. A host that is registered
already is enrolled as what it is, so that one which runs can be given a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import uuid4

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commands.appender import Appender
from commands.assembly import utc_now
from commands.command import Ask, Unit
from commands.decisions import DECISIONS
from commands.event_store import EventStore
from commands.host_key import EnrollHost, RevokeHost
from commands.known_hosts import KnownHost, find_host, known_hosts, next_service_of_name
from commands.records import Records
from commands.snapshots import Snapshots
from commands.vault import Vault
from domain.errors import DomainError, HostNotEnrolled
from domain.identifiers import HostName, NodeId, RequestId, ServiceId, service_stream
from domain.recorded import Cause
from hostagent.host_key import HostCredential

TURNS = ("service.came_up", "service.went_down")


class Ledger(Protocol):
    """What is needed of the ledger: `commands/assembly.py` has it."""

    @property
    def store(self) -> EventStore: ...
    @property
    def vault(self) -> Vault: ...
    @property
    def records(self) -> Records: ...


def enroll(ledger: Ledger, name: str) -> str:
    """The credential to put on the host, as JSON with its private key. One that the host had before is refused from now on.

    Raises:
        HostNameInvalid, HostNameTaken, HostNodeTaken, StoreUnavailable.
    """
    host = HostName(name)
    known = _find(ledger, host)
    credential = HostCredential(
        service_id=next_service_of_name(ledger.store, host) if known is None else known.service_id,
        host=host,
        node_id=NodeId(uuid4()) if known is None else known.node_id,
        epoch=0 if known is None else known.epoch,
        incarnation=ledger.store.incarnation,
        key=Ed25519PrivateKey.generate(),
    )
    command = EnrollHost(
        service_id=credential.service_id, host=host, node_id=credential.node_id, public_key=credential.public_key
    )
    _record(ledger, command)
    return credential.to_json().decode()


def revoke(ledger: Ledger, name: str) -> None:
    """Refuse the host's key from now on; its guests run on, and it is soon down.

    Raises:
        HostNotEnrolled, StoreUnavailable.
    """
    known = _find(ledger, HostName(name))
    if known is None:
        raise HostNotEnrolled(name)
    _record(ledger, RevokeHost(service_id=known.service_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHost:
    host: HostName
    service_id: ServiceId
    key: str  # "enrolled" or "revoked"
    state: str  # "never seen", "up" or "down"
    since: datetime | None  # it is up or down
    epoch: int  # of its agent's last session


def hosts(ledger: Ledger) -> Iterator[ListedHost]:
    """Every host that has or had a key."""
    for known in known_hosts(ledger.store, Snapshots(ledger.vault), ledger.records):
        if known.key is not None:
            service = known.service
            yield ListedHost(
                host=known.host,
                service_id=known.service_id,
                key="revoked" if known.key.revoked else "enrolled",
                state="never seen" if service is None else "up" if service.up else "down",
                since=None if service is None else _turned(ledger, known),
                epoch=known.epoch,
            )


def listing(ledger: Ledger) -> Iterator[str]:
    """The same, a line of JSON each."""
    for host in hosts(ledger):
        yield orjson.dumps(host).decode()


def _turned(ledger: Ledger, known: KnownHost) -> datetime | None:
    """When the host last came up, or went down."""
    records = ledger.store.read_stream(service_stream(known.service_id))
    turns = (record for record in reversed(records) if record.wire_name in TURNS)
    return next((ledger.records.time_of(record) for record in turns), None)


def _find(ledger: Ledger, host: HostName) -> KnownHost | None:
    return find_host(ledger.store, Snapshots(ledger.vault), ledger.records, host)


def _record(ledger: Ledger, command: Any) -> None:
    """In an append of its own; readers in other processes hear of it from the store."""
    appender = Appender(ledger.store, ledger.vault, DECISIONS, utc_now, lambda before, events: None)
    command_id = uuid4()
    cause = Cause(command_id=command_id, request_id=RequestId(f"req-{command_id}"))
    outcome = appender.execute(Unit(asks=(Ask(command=command, cause=cause),))).outcomes[0]
    if isinstance(outcome, DomainError):
        raise outcome
