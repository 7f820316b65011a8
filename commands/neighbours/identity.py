"""The port to identity: who is asking, and whether a project exists.

`standalone/identity.py` answers it from a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a valid token says of its bearer. An unscoped or system-scoped token names no project."""

    user_id: str
    user_name: str
    user_domain_id: str
    user_domain_name: str
    project_id: str | None
    project_name: str | None
    project_domain_id: str | None
    project_domain_name: str | None
    roles: tuple[str, ...]  # names, the implied ones included
    system_scope: bool
    is_admin_project: bool
    expires_at: datetime  # UTC
    audit_id: str  # names the token in logs; the token itself never appears there


class Identity(Protocol):
    def validate(self, token: str) -> Credentials | None:
        """Whose token this is; None when it is unknown, expired or revoked. Cheap when asked again."""

    def project_exists(self, project_id: str) -> bool: ...
