"""What a host signs, and how it travels: reports and heartbeats in an envelope, requests to the agent API in headers.

Each purpose has a prefix of its own, so that a signature made for one is worth nothing for another. Who checks them:
`commands/host_keys.py`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import orjson

from domain.identifiers import ServiceId

REPORT = b"compute-ledger report 1\0"
HEARTBEAT = b"compute-ledger heartbeat 1\0"
REQUEST = b"compute-ledger agent request 1\0"

SERVICE_HEADER = "x-ledger-service"
TIME_HEADER = "x-ledger-time"  # seconds since 1970, whole
NONCE_HEADER = "x-ledger-nonce"  # never the same again
SIGNATURE_HEADER = "x-ledger-signature"  # base64


class Signer(Protocol):
    """A host's own key (`hostagent/host_key.py`)."""

    @property
    def service_id(self) -> ServiceId: ...
    def sign(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A body, and whose word it is said to be; nothing of it is to be believed before it is verified."""

    service_id: ServiceId
    signature: bytes
    body: bytes


def bytes_to_sign(purpose: bytes, service_id: ServiceId, body: bytes) -> bytes:
    return purpose + service_id.bytes + body


def request_body(method: str, path: str, time_s: int, nonce: str) -> bytes:
    """What is signed of a request; `path` is decoded, and begins below where the agent API is mounted."""
    return f"{method}\n{path}\n{time_s}\n{nonce}".encode()


def seal(purpose: bytes, signer: Signer, body: bytes) -> bytes:
    """A body of JSON in its envelope."""
    signature = signer.sign(bytes_to_sign(purpose, signer.service_id, body))
    envelope = {
        "service": signer.service_id,
        "signature": base64.b64encode(signature).decode(),
        "body": body.decode(),
    }
    return orjson.dumps(envelope)


def read_envelope(value: bytes) -> Signed | None:
    """The envelope, or None for JSON that is not in one.

    Raises:
        ValueError: not JSON, or a broken envelope.
    """
    envelope = orjson.loads(value)
    if not isinstance(envelope, dict) or "signature" not in envelope:
        return None
    try:
        return Signed(
            service_id=ServiceId(UUID(envelope["service"])),
            signature=decode_signature(envelope["signature"]),
            body=envelope["body"].encode(),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an envelope: {error}") from error


def decode_signature(text: str) -> bytes:
    """Raises:
    ValueError: not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a signature: {error}") from error
