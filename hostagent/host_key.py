"""A host's key: what the ledger knows this machine by. It is made when the host is enrolled, and kept on the host alone.

The credential file is JSON, for its owner's eyes only. `commands/host_keys.py` checks what is signed here.
"""

from __future__ import annotations

import base64
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from domain.identifiers import HostName, NodeId, ServiceId
from hostagent.journal import HostIdentityChanged, Journal


class CredentialInvalid(Exception):
    """The credential file cannot be used; the message names it, and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCredential:
    """Who a host is, and the key that proves it. Its repr shows nothing of the key."""

    service_id: ServiceId
    host: HostName
    node_id: NodeId
    epoch: int  # of the host's last session when it was enrolled: a new journal counts on from there
    incarnation: str  # of the ledger that enrolled it
    key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> HostCredential:
        """Raises:
        CredentialInvalid: it is missing, damaged, or open to others.
        """
        try:
            mode, content = path.stat().st_mode, path.read_bytes()
        except OSError as error:
            raise CredentialInvalid(f"{path} cannot be read: {error.strerror}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CredentialInvalid(f"{path} is open to others than its owner; chmod it to 600")
        try:
            return _credential(orjson.loads(content))
        except (ValueError, TypeError, KeyError, AttributeError):  # nothing of its content is said
            raise CredentialInvalid(f"{path} is not what enrolling a host makes; enroll the host again") from None

    def sign(self, data: bytes) -> bytes:
        return self.key.sign(data)

    @property
    def public_key(self) -> str:
        return base64.b64encode(self.key.public_key().public_bytes_raw()).decode()

    def to_json(self) -> bytes:
        """With the private key: for the host's own disk, and nowhere else."""
        plain = {
            "service_id": self.service_id,
            "host": self.host,
            "node_id": self.node_id,
            "epoch": self.epoch,
            "incarnation": self.incarnation,
            "private_key": base64.b64encode(self.key.private_bytes_raw()).decode(),
        }
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)

    def take_up(self, journal: Journal) -> None:
        """Make a journal this host's, and let it count on from the sessions that the ledger has seen.

        Raises:
            HostIdentityChanged: it is another host's.
        """
        for name, ours in (("host", self.host), ("service_id", self.service_id), ("compute_id", self.node_id)):
            if (kept := journal.fact(name, str(ours))) != str(ours):
                raise HostIdentityChanged(f"this directory belongs to {name} {kept}; the credential is for {ours}")
        if int(journal.fact("epoch", "0")) < self.epoch:
            journal.set_fact("epoch", str(self.epoch))


def _credential(plain: Mapping[str, Any]) -> HostCredential:
    return HostCredential(
        service_id=ServiceId(UUID(plain["service_id"])),
        host=HostName(str(plain["host"])),
        node_id=NodeId(UUID(plain["node_id"])),
        epoch=int(plain["epoch"]),
        incarnation=str(plain["incarnation"]),
        key=Ed25519PrivateKey.from_private_bytes(base64.b64decode(plain["private_key"], validate=True)),
    )
