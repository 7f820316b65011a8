"""Passwords as argon2id hashes: about 25 ms of one core and 8 MiB of memory for each check."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argon2 import PasswordHasher

TIME_COST = 3  # passes
MEMORY_COST_KIB = 8 * 1024
# Of a password that nobody knows, to check against when there is no user; it has the costs above.
NOBODYS_HASH = "$argon2id$v=19$m=8192,t=3,p=1$r1T6bSqCv4/kBWfAd4tKhw$pkX+uH00XstZMuQrTfEK1/LZmDIMX0PiXvtE8hHFHGc"


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # not needed until somebody logs in

    return PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_COST_KIB, parallelism=1)


def hash_password(password: str) -> str:
    return _hasher().hash(password)


def password_matches(password_hash: str | None, password: str) -> bool:
    """None is a user that does not exist: checked at the same cost, so that time tells nothing."""
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        matches = _hasher().verify(password_hash or NOBODYS_HASH, password)
    except (VerificationError, InvalidHashError):
        return False
    return matches and password_hash is not None


def is_password_hash(value: str) -> bool:
    return value.startswith("$argon2") and value.count("$") == 5
