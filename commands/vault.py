"""What must not be in the log: payloads (user data, passwords, files) and the keys of personal data, by subject.

A subject is a user. Each has a key of its own, wrapped by the ledger's master key; destroy it and all the subject's
personal fields read as erased, in every record, for ever. What is recorded of the subject afterwards gets a new key; each
sealed value names its key, so that the older ones still read as erased. AES-256-GCM; the stream's id is bound in, so that
a field cannot be moved to another's record.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commands.event_store import EventStore, Transaction
from domain.identifiers import VaultRef

_NONCE_BYTES = 12
_KEY_ID_BYTES = 8
PROOF = "(master)"  # where a subject would stand: nothing, sealed under the master key


class NotBegun(Exception):
    """Nothing was ever recorded there."""


class VaultDamaged(Exception):
    """A sealed value does not open: another master key, or altered bytes."""


def read_or_make_master_key(path: Path, *, may_make: bool = True) -> bytes:
    """The 32-byte master key in `path` (0600), made on first use.

    Raises:
        VaultDamaged: the file is not a key, or it is missing and another cannot stand for it.
    """
    if not may_make and not path.exists():
        raise VaultDamaged(f"{path} is missing; what this ledger has sealed opens with no other key: put it back")
    if not path.exists():
        _make_key(path)
    key = path.read_bytes()
    if len(key) != 32:
        raise VaultDamaged(f"{path} is not a vault key (32 bytes)")
    return key


def _make_key(path: Path) -> None:
    """A whole key appears, or none; of two processes that make one at once, one wins."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: bytes  # stands before what it sealed; tells nothing of the key
    cipher: AESGCM

    @classmethod
    def of(cls, plain: bytes) -> _Key:
        return cls(hashlib.sha256(plain).digest()[:_KEY_ID_BYTES], AESGCM(plain))

    def seal(self, data: bytes, bound_to: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return self.key_id + nonce + self.cipher.encrypt(nonce, data, bound_to.encode())

    def open(self, sealed: bytes, bound_to: str) -> bytes:
        nonce, data = sealed[_KEY_ID_BYTES:][:_NONCE_BYTES], sealed[_KEY_ID_BYTES + _NONCE_BYTES :]
        return self.cipher.decrypt(nonce, data, bound_to.encode())


class Vault:
    def __init__(self, store: EventStore, master_key: bytes) -> None:
        self._store = store
        self._master = AESGCM(master_key)
        self._keys: dict[str, _Key] = {}

    def prove(self) -> None:
        """Check that the master key is the one that this ledger was begun with, and note it where it is new.

        Raises:
            VaultDamaged: it is another.
        """
        kept = self._store.key(PROOF)
        if kept is None:
            with self._store.transaction() as transaction:
                kept = transaction.key(PROOF)  # of two first processes, one is the first
                if kept is None:
                    nonce = secrets.token_bytes(_NONCE_BYTES)
                    kept = nonce + self._master.encrypt(nonce, b"", PROOF.encode())
                    transaction.add_key(PROOF, kept)
        try:
            self._master.decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], PROOF.encode())
        except InvalidTag:
            raise VaultDamaged(
                "vault.key is not the key that this ledger was begun with: put the right one back"
            ) from None

    def seal_in(self, transaction: Transaction, subject: str, data: bytes, bound_to: str) -> bytes:
        """Seal under the subject's key, making one inside the appender's transaction where there is none."""
        key = self._keys.get(subject)
        if key is None:
            wrapped = transaction.key(subject)
            if wrapped is None:
                plain = AESGCM.generate_key(256)
                nonce = secrets.token_bytes(_NONCE_BYTES)
                transaction.add_key(subject, nonce + self._master.encrypt(nonce, plain, subject.encode()))
                return _Key.of(plain).seal(data, bound_to)  # not cached: the transaction may yet fail
            key = self._keys[subject] = self._unwrap(subject, wrapped)
        return key.seal(data, bound_to)

    def open(self, subject: str, sealed: bytes, bound_to: str) -> bytes | None:
        """The data again, or None when the subject's key was destroyed.

        Raises:
            VaultDamaged: it does not open under the subject's key.
        """
        key = self._key(subject)
        if key is None or not sealed.startswith(key.key_id):
            return None
        try:
            return key.open(sealed, bound_to)
        except InvalidTag:
            raise VaultDamaged(f"a sealed value of {bound_to} does not open") from None

    def put_payloads_in(self, transaction: Transaction, payloads: Mapping[VaultRef, Payload]) -> None:
        for ref, payload in payloads.items():
            sealed = self.seal_in(transaction, payload.subject, payload.data, ref)
            transaction.add_payload(ref, payload.subject, payload.owner, sealed)

    def payload(self, ref: VaultRef) -> bytes | None:
        """A payload's bytes; None when it was dropped or its subject erased."""
        found = self._store.payload(ref)
        return None if found is None else self.open(found[0], found[1], ref)

    def drop_payloads(self, owner: str) -> None:
        self._store.drop_payloads(owner)

    def erase(self, subject: str) -> bool:
        """Destroy a subject's key: its personal data is gone from every record. Views must be rebuilt after."""
        destroyed = self._store.destroy_key(subject)
        self._keys.pop(subject, None)
        return destroyed

    def forget_keys(self) -> None:
        """After a failed transaction: a key seen inside it may never have been stored."""
        self._keys.clear()

    def _key(self, subject: str) -> _Key | None:
        if (key := self._keys.get(subject)) is None:
            wrapped = self._store.key(subject)
            if wrapped is not None:
                key = self._keys[subject] = self._unwrap(subject, wrapped)
        return key

    def _unwrap(self, subject: str, wrapped: bytes) -> _Key:
        try:
            plain = self._master.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], subject.encode())
        except InvalidTag:
            raise VaultDamaged(f"the key of {subject} does not open under this master key") from None
        return _Key.of(plain)


class Payload:
    """A secret on its way into the vault. Its repr shows nothing of it."""

    __slots__ = ("data", "owner", "subject")

    def __init__(self, data: bytes, *, subject: str, owner: str) -> None:
        self.data = data
        self.subject = subject
        self.owner = owner  # the stream it belongs to; dropped with it

    def __repr__(self) -> str:
        return f"Payload({len(self.data)} bytes of {self.owner})"
