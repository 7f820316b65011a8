"""Snapshots of states: disposable, so that a long stream costs no more to load than a short one.

One of another shape (fields or folding code changed) is ignored, and the stream folded from its start. A state with
personal data is sealed under its subject's key, so that a destroyed key takes the snapshot with it.
"""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from commands.event_store import Snapshot, StoredRecord, Transaction
from commands.records import Records
from commands.states import Folded, kind_of
from commands.vault import Vault, VaultDamaged
from domain.identifiers import StreamId
from domain.serialization import from_plain, to_plain

EVENTS_BETWEEN = 200


class Reads(Protocol):
    """What loading a stream needs: the store, or a transaction of it."""

    def read_stream(self, stream: StreamId, after_version: int) -> list[StoredRecord]: ...
    def snapshot(self, stream: StreamId) -> Snapshot | None: ...


class Snapshots:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def load(self, reads: Reads, stream: StreamId, records: Records) -> Folded:
        """A stream folded to its end, from its snapshot if that is good."""
        kind = kind_of(stream)
        version = 0
        state: Any = None
        snapshot = reads.snapshot(stream)
        if snapshot is not None and snapshot.shape == kind.shape:
            state = self._open(stream, snapshot, kind.state)
            version = 0 if state is None else snapshot.version
        snapshot_version = version
        for stored in reads.read_stream(stream, version):
            record = records.decode(stored)
            state = kind.evolve(state, record.event)
            version = record.version
        return Folded(version, state, snapshot_version)

    def save_if_due(self, transaction: Transaction, stream: StreamId, cached: Folded) -> None:
        """Every 200 events, and no oftener than a state has entries: so a snapshot's cost stays a constant share."""
        due = max(EVENTS_BETWEEN, getattr(cached.state, "size_hint", 0))
        if cached.version - cached.snapshot_version < due:
            return
        body = orjson.dumps(to_plain(cached.state))
        subject = getattr(cached.state, "subject", None)
        if subject is not None:
            sealed = self._vault.seal_in(transaction, subject, body, f"{stream}/snapshot")
            body = orjson.dumps(subject) + b"\0" + sealed
        snapshot = Snapshot(version=cached.version, shape=kind_of(stream).shape, state=body)
        transaction.save_snapshot(stream, snapshot)
        cached.snapshot_version = cached.version

    def _open(self, stream: StreamId, snapshot: Snapshot, state: type) -> Any:
        """The state, or None where the snapshot cannot be read: the events can."""
        body: bytes | None = snapshot.state
        subject, separator, sealed = snapshot.state.partition(b"\0")
        try:
            if separator:
                body = self._vault.open(orjson.loads(subject), sealed, f"{stream}/snapshot")
            return None if body is None else from_plain(state, orjson.loads(body))
        except (VaultDamaged, ValueError, TypeError, KeyError):
            return None
