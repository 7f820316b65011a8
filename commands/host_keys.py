"""Whose word a signed report, heartbeat or request is: hosts' public keys as the ledger has them now.

A key is read again once a second at most, and at once where the one at hand does not fit, so that a host that was just
enrolled is heard and one whose key was revoked is not. `hostagent/host_key.py` signs.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from commands.event_store import EventStore
from commands.log.signed import Signed, bytes_to_sign
from commands.records import Records
from commands.snapshots import Snapshots
from commands.states import kind_of
from domain.host_key import HostKey
from domain.identifiers import ServiceId, host_key_stream

FRESH_S = 1.0
AGAIN_S = 0.1  # how old a key must be to be read again because it does not fit
REMEMBERED = 65_536

UNKNOWN_HOST = "unknown_host"
REVOKED = "revoked"
BAD_SIGNATURE = "bad_signature"


class NotVerified(Exception):
    """It is not the word of the host that it names. `reason` is a short code; `host` is empty for one nobody enrolled."""

    def __init__(self, reason: str, host: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.host = host


@dataclass(slots=True)
class _Known:
    read_at: float
    version: int
    key: HostKey | None
    public: Ed25519PublicKey | None


class HostKeys:
    """Safe on any thread."""

    def __init__(
        self,
        store: EventStore,
        snapshots: Snapshots,
        records: Records,
        *,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._records = records
        self._fresh_s = fresh_s
        self._clock = clock
        self._known: OrderedDict[ServiceId, _Known] = OrderedDict()
        self._guard = threading.Lock()

    def verify(self, purpose: bytes, signed: Signed) -> HostKey:
        """The host whose word this is.

        Raises:
            NotVerified: nobody's that may speak.
            StoreUnavailable
        """
        known = self._read(signed.service_id, self._fresh_s)
        refusal = _refusal(known, purpose, signed)
        if refusal is not None:
            known = self._read(signed.service_id, AGAIN_S)
            refusal = _refusal(known, purpose, signed)
        if refusal is not None:
            raise refusal
        assert known.key is not None
        return known.key

    def _read(self, service_id: ServiceId, fresh_s: float) -> _Known:
        now = self._clock()
        with self._guard:
            known = self._known.get(service_id)
        if known is not None and now - known.read_at < fresh_s:
            return known
        read = self._newer(service_id, known, now)  # beside the guard: the store may let one wait
        with self._guard:
            known = self._known.get(service_id)
            if known is None or known.version <= read.version:
                known = self._known[service_id] = read
            self._known.move_to_end(service_id)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known

    def _newer(self, service_id: ServiceId, known: _Known | None, now: float) -> _Known:
        stream = host_key_stream(service_id)
        if known is None:
            folded = self._snapshots.load(self._store, stream, self._records)
            version, key = folded.version, folded.state
        else:
            version, key = known.version, known.key
            for stored in self._store.read_stream(stream, version):
                key, version = kind_of(stream).evolve(key, self._records.decode(stored).event), stored.version
            if version == known.version:
                return _Known(now, version, key, known.public)
        return _Known(now, version, key, None if key is None else _public(key))


def _public(key: HostKey) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(key.enrollment.public_key))


def _refusal(known: _Known, purpose: bytes, signed: Signed) -> NotVerified | None:
    key = known.key
    if key is None or known.public is None:
        return NotVerified(UNKNOWN_HOST, "", f"no host is enrolled as service {signed.service_id}")
    if key.revoked:
        return NotVerified(REVOKED, key.host, f"the key of host {key.host} is revoked")
    try:
        known.public.verify(signed.signature, bytes_to_sign(purpose, signed.service_id, signed.body))
    except InvalidSignature:
        return NotVerified(BAD_SIGNATURE, key.host, f"not signed with the key of host {key.host}")
    return None
