"""Hosts' keys: a host is enrolled by an operator, given another key, or has its key revoked."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import (
    HostKeyInvalid,
    HostNameInvalid,
    HostNameTaken,
    HostNodeTaken,
    HostNotEnrolled,
    ServiceNotFound,
)
from domain.host_key import HostEnrolled, HostKeyRevoked, service_of_name
from domain.identifiers import HostName, NodeId, ServiceId, host_key_stream

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")  # Nova's schema of host names
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollHost:
    service_id: ServiceId  # the registered one's, or the one that follows from the name
    host: HostName
    node_id: NodeId
    public_key: str  # Ed25519, the 32 bytes in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeHost:
    service_id: ServiceId


def decide_enroll_host(command: EnrollHost, states: States) -> Decision:
    """From now on this key speaks for the host; one that did before no longer does.

    Raises:
        HostNameInvalid, HostKeyInvalid.
        HostNameTaken: the name is another service's, or the service another host's.
        HostNodeTaken: a new host was given the node of another.
        ServiceNotFound: the service is deleted.
    """
    _require_form(command)
    known, service = states.host_key(command.service_id), states.service(command.service_id)
    if service is not None and service.deleted:
        raise ServiceNotFound(command.service_id)
    for held in (known, None if service is None else service.registration):
        if held is not None and (held.host, held.node_id) != (command.host, command.node_id):
            raise HostNameTaken(f"Service {command.service_id} is host {held.host} with node {held.node_id}.")
    holder = holder_of(command.host, states)
    if holder != command.service_id and (service is None or states.host_key(holder) is not None):
        raise HostNameTaken(f"The name {command.host} belongs to service {holder}.")
    if service is None and states.provider(command.node_id) is not None:
        raise HostNodeTaken(f"Node {command.node_id} is another host's.")
    enrolled = HostEnrolled(
        service_id=command.service_id, host=command.host, node_id=command.node_id, public_key=command.public_key
    )
    if known is not None and known.enrollment == enrolled and not known.revoked:
        return []
    return [(host_key_stream(command.service_id), enrolled)]


def decide_revoke_host(command: RevokeHost, states: States) -> Decision:
    """No key speaks for the host any more; its guests run on, and it is soon down.

    Raises:
        HostNotEnrolled: it never had a key.
    """
    key = states.host_key(command.service_id)
    if key is None:
        raise HostNotEnrolled(command.service_id)
    if key.revoked:
        return []
    return [(host_key_stream(command.service_id), HostKeyRevoked(service_id=command.service_id))]


def holder_of(host: HostName, states: States) -> ServiceId:
    """The service that a host of this name is enrolled as, unless it was registered as another one before."""
    turn = 1
    while (service := states.service(service_of_name(host, turn))) is not None and service.deleted:
        turn += 1
    return service_of_name(host, turn)


def _require_form(command: EnrollHost) -> None:
    if not _NAME.fullmatch(command.host):
        raise HostNameInvalid("A host name has 1 to 255 letters, digits, dots, hyphens and underscores.")
    try:
        key = base64.b64decode(command.public_key, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise HostKeyInvalid(f"A host's public key is {_KEY_BYTES} bytes in base64.")
