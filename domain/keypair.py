"""Key pairs: public keys a user puts into guests. One stream a user, so that names are unique to the user.

Names and keys are personal (a public key carries a comment, often an address).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, assert_never

from domain.identifiers import UserId
from domain.marks import PERSONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypairCreated:
    user_id: UserId
    keypair_id: int  # counts within the user's stream; Nova shows an integer id
    type: str  # "ssh" or "x509" (Nova API 2.2)
    name: Annotated[str, PERSONAL]
    public_key: Annotated[str, PERSONAL]
    fingerprint: Annotated[str, PERSONAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeypairDeleted:
    user_id: UserId
    keypair_id: int


KeypairEvent = KeypairCreated | KeypairDeleted

KEYPAIR_EVENTS = {"keypair.created": KeypairCreated, "keypair.deleted": KeypairDeleted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keypairs:
    """All key pairs of one user."""

    user_id: UserId
    by_id: Mapping[int, KeypairCreated] = field(default_factory=dict)
    last_id: int = 0

    @property
    def subject(self) -> UserId:
        return self.user_id

    def named(self, name: str) -> KeypairCreated | None:
        return next((k for k in self.by_id.values() if k.name == name), None)


def evolve_keypairs(keypairs: Keypairs | None, event: KeypairEvent) -> Keypairs:
    keypairs = keypairs or Keypairs(user_id=event.user_id)
    match event:
        case KeypairCreated():
            by_id = {**keypairs.by_id, event.keypair_id: event}
            return replace(keypairs, by_id=by_id, last_id=event.keypair_id)
        case KeypairDeleted():
            return replace(keypairs, by_id={k: v for k, v in keypairs.by_id.items() if k != event.keypair_id})
        case _:
            assert_never(event)
