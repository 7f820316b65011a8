"""Tokens that need no database: what one says is encrypted in it, under a key kept in a file.

A restart changes nothing, and every process with the key reads them. Only what was revoked is kept: `revocations.py`.
"""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from commands.neighbours.standalone.private_file import write_private

_FORM = re.compile(r"[A-Za-z0-9_-]+={0,2}")  # Fernet reads past what follows: a token has one form, not many


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token says. Times are Unix seconds."""

    user_id: str
    project_id: str | None
    system: bool
    roles: tuple[str, ...]  # as they were; a token that lost one is void
    methods: tuple[str, ...]
    audit_ids: tuple[str, ...]  # this token's, then that of the first of its chain
    issued_at: float
    expires_at: float
    password_mark: str  # changes with the password

    @property
    def audit_id(self) -> str:
        return self.audit_ids[0]


class TokenKeyInvalid(Exception):
    """token.key does not hold a key; without it no token that was given out can be read."""


class Tokens:
    def __init__(self, key_file: Path) -> None:
        """Makes the key when there is none; of several processes one at a time does.

        Raises:
            TokenKeyInvalid
        """
        from cryptography.fernet import Fernet  # heavy: not before the service opens

        if not key_file.exists():
            write_private(key_file, base64.urlsafe_b64encode(secrets.token_bytes(32)))
        try:
            self._fernet = Fernet(key_file.read_bytes().strip())
        except ValueError:
            raise TokenKeyInvalid(f"{key_file} does not hold a key of 32 bytes in base64") from None

    def seal(self, claims: Claims) -> str:
        content = orjson.dumps(asdict(claims))
        return self._fernet.encrypt_at_time(content, int(claims.issued_at)).decode()

    def open(self, token: str) -> Claims | None:
        """What the token says, expired or not; None when it is not one of ours."""
        from cryptography.fernet import InvalidToken

        if not _FORM.fullmatch(token):
            return None
        try:
            content = orjson.loads(self._fernet.decrypt(token.encode()))
            for key in ("roles", "methods", "audit_ids"):
                content[key] = tuple(content[key])
            return Claims(**content)
        except (InvalidToken, ValueError, TypeError, KeyError):
            return None
