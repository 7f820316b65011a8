"""CreateKeypair and DeleteKeypair: of a user, not of a project. A private key is never seen here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.quota import in_force
from commands.states import Decision, States
from domain.errors import KeypairExists, KeypairNotFound, KeypairQuotaExceeded
from domain.identifiers import ProjectId, UserId, keypair_stream
from domain.keypair import KeypairCreated, KeypairDeleted
from domain.quota import DEFAULT_LIMITS, UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKeypair:
    user_id: UserId
    project_id: ProjectId  # whose limit counts
    name: str
    type: str
    public_key: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeypair:
    user_id: UserId
    name: str


def decide_create_keypair(
    command: CreateKeypair, states: States, defaults: Mapping[str, int] = DEFAULT_LIMITS
) -> Decision:
    """Nova API 2.1, POST /os-keypairs.

    Raises:
        KeypairExists: HTTP answers 409.
        KeypairQuotaExceeded: HTTP answers 403.
    """
    keypairs = states.keypairs(command.user_id)
    limit = states.quota(command.project_id).limit("key_pairs", in_force(states, defaults))
    if limit != UNLIMITED and len(keypairs.by_id) >= limit:
        raise KeypairQuotaExceeded
    if keypairs.named(command.name) is not None:
        raise KeypairExists(command.name)
    created = KeypairCreated(
        user_id=command.user_id,
        keypair_id=keypairs.last_id + 1,
        type=command.type,
        name=command.name,
        public_key=command.public_key,
        fingerprint=command.fingerprint,
    )
    return [(keypair_stream(command.user_id), created)]


def decide_delete_keypair(command: DeleteKeypair, states: States) -> Decision:
    """Nova API 2.1, DELETE /os-keypairs/{name}.

    Raises:
        KeypairNotFound: HTTP answers 404.
    """
    keypair = states.keypairs(command.user_id).named(command.name)
    if keypair is None:
        raise KeypairNotFound(command.name, command.user_id)
    deleted = KeypairDeleted(user_id=command.user_id, keypair_id=keypair.keypair_id)
    return [(keypair_stream(command.user_id), deleted)]
