"""Which key a host's agent signs with: enrolled by an operator, given another, revoked. One stream a service.

The ledger holds public keys only. Who checks signatures with them: `commands/host_keys.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never
from uuid import UUID, uuid5

from domain.identifiers import HostName, NodeId, ServiceId

_SERVICES = UUID("2c4de3a8-6d0f-4a0e-8f3b-9a51c7f60b1e")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnrolled:
    """From now on this key, and no other, speaks for the host; whatever it says must be about this name and this node."""

    service_id: ServiceId
    host: HostName
    node_id: NodeId
    public_key: str  # Ed25519, the 32 bytes in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeyRevoked:
    """No key speaks for the host, until it is enrolled again."""

    service_id: ServiceId


HostKeyEvent = HostEnrolled | HostKeyRevoked

HOST_KEY_EVENTS = {
    "host_key.enrolled": HostEnrolled,
    "host_key.revoked": HostKeyRevoked,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    enrollment: HostEnrolled  # the newest
    revoked: bool = False

    @property
    def service_id(self) -> ServiceId:
        return self.enrollment.service_id

    @property
    def host(self) -> HostName:
        return self.enrollment.host

    @property
    def node_id(self) -> NodeId:
        return self.enrollment.node_id


def evolve_host_key(key: HostKey | None, event: HostKeyEvent) -> HostKey:
    match event:
        case HostEnrolled():
            return HostKey(enrollment=event)
        case HostKeyRevoked():
            assert key is not None, "a host's key is enrolled before it is revoked"
            return replace(key, revoked=True)
        case _:
            assert_never(event)


def service_of_name(host: HostName, turn: int = 1) -> ServiceId:
    """The service id of a host that is enrolled before it was ever registered: it follows from the name, so that two
    enrollments of one name meet in one stream. `turn` counts the services of this name, those before having been deleted.
    """
    return ServiceId(uuid5(_SERVICES, f"{turn}/{host}"))
