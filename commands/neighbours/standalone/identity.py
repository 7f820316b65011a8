"""Identity: a file of accounts, and tokens without a database. Served by `gateway/standalone/keystone.py`.

Under its directory: identity.toml, token.key, revoked_tokens, clouds.yaml, each readable by its owner only. Several
processes may serve one directory; identity.lock lets one of them write at a time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock

from commands.neighbours.identity import Credentials
from commands.neighbours.standalone.accounts import DOMAIN_ID, DOMAIN_NAME, Accounts, User, with_implied
from commands.neighbours.standalone.accounts_file import AccountsFile
from commands.neighbours.standalone.first_start import make_accounts, point_clouds_at
from commands.neighbours.standalone.lock_file import locked
from commands.neighbours.standalone.passwords import password_matches
from commands.neighbours.standalone.revocations import Revocations
from commands.neighbours.standalone.tokens import Claims, Tokens

KNOWN_TOKENS = 10_000  # remembered by digest; the oldest makes room


class LoginRefused(Exception):
    """Why is nobody's business: the same for a wrong password, an unknown user, a project without a role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a token is for: a project, the system, or (neither) nothing yet."""

    project_id: str | None = None
    system: bool = False


class _Known:
    """Tokens seen valid under one state of the accounts, by digest."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.by_digest: dict[bytes, tuple[Credentials, float]] = {}


class StandaloneIdentity:
    def __init__(
        self,
        directory: Path,
        *,
        auth_url: str,
        token_lifetime_s: int = 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the directory; the first time, makes accounts and a clouds.yaml that leads to `auth_url`.

        Raises:
            AccountsInvalid: identity.toml cannot be used.
            TokenKeyInvalid: token.key cannot be used.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity_file, clouds_file = directory / "identity.toml", directory / "clouds.yaml"
        lock_file = directory / "identity.lock"
        with locked(lock_file):  # of processes that start at once, the first makes what the others find
            if identity_file.exists():
                point_clouds_at(clouds_file, auth_url)
            else:
                make_accounts(identity_file, clouds_file, auth_url)
            self._tokens = Tokens(directory / "token.key")
            self._revoked = Revocations(directory / "revoked_tokens", lock_file, clock())
        self._file = AccountsFile(identity_file, lock_file)
        self._lifetime_s = token_lifetime_s
        self._clock = clock
        self._lock = Lock()
        self._known = _Known(self._file.current())

    def validate(self, token: str) -> Credentials | None:
        """Whose token this is. One that was seen before costs a digest, and a stat of identity.toml and revoked_tokens."""
        known = self._known
        accounts = self._file.current()
        if known.accounts is not accounts:
            known = self._known = _Known(accounts)
        digest = _digest(token)
        found = known.by_digest.get(digest) or self._learn(token, digest, known)
        if found is None or found[1] <= self._clock() or found[0].audit_id in self._revoked:
            return None
        return found[0]

    def project_exists(self, project_id: str) -> bool:
        return project_id in self.accounts.projects

    @property
    def accounts(self) -> Accounts:
        return self._file.current()

    def change_accounts(self, alter: Callable[[Accounts], Accounts]) -> Accounts:
        """Raises:
        AccountsInvalid: identity.toml was broken by hand, or would not be readable afterwards.
        """
        return self._file.change(alter)

    def log_in(self, user: User | None, password: str) -> User:
        """Slow on purpose, and as slow for a user that does not exist (None).

        Raises:
            LoginRefused
        """
        matches = password_matches(user.password_hash if user else None, password)
        if user is None or not matches or not user.enabled:
            raise LoginRefused
        return user

    def issue(
        self, user: User, scope: Scope, methods: tuple[str, ...], parent: Claims | None = None
    ) -> tuple[str, Claims]:
        """A token for a user; one made from another (`parent`) expires with it.

        Raises:
            LoginRefused: the user has no role there, or the project is off.
        """
        accounts = self.accounts
        roles = _roles(user, scope, accounts)
        if roles is None:
            raise LoginRefused
        now = self._clock()
        audit_id = secrets.token_urlsafe(16)
        claims = Claims(
            user_id=user.id,
            project_id=scope.project_id,
            system=scope.system,
            roles=roles,
            methods=methods,
            audit_ids=(audit_id, parent.audit_ids[-1]) if parent else (audit_id,),
            issued_at=now,
            expires_at=parent.expires_at if parent else now + self._lifetime_s,
            password_mark=_password_mark(user),
        )
        return self._tokens.seal(claims), claims

    def claims(self, token: str) -> Claims | None:
        """What a valid token says; None when `validate` would refuse it."""
        return self._tokens.open(token) if self.validate(token) else None

    def revoke(self, token: str) -> None:
        claims = self._tokens.open(token)
        if claims is not None and claims.audit_id not in self._revoked:
            self._revoked.add(claims.audit_id, claims.expires_at)

    def _learn(self, token: str, digest: bytes, known: _Known) -> tuple[Credentials, float] | None:
        claims = self._tokens.open(token)
        credentials = _credentials(claims, known.accounts) if claims else None
        if claims is None or credentials is None:
            return None
        with self._lock:
            if len(known.by_digest) >= KNOWN_TOKENS:
                del known.by_digest[next(iter(known.by_digest))]
            found = known.by_digest[digest] = (credentials, claims.expires_at)
            return found


def _credentials(claims: Claims, accounts: Accounts) -> Credentials | None:
    """None when the user is gone or off, has another password, or lost a role that the token came with."""
    user = accounts.users.get(claims.user_id)
    if user is None or not user.enabled or claims.password_mark != _password_mark(user):
        return None
    roles = _roles(user, Scope(project_id=claims.project_id, system=claims.system), accounts)
    if roles is None or not set(claims.roles) <= set(roles):
        return None
    project = accounts.projects.get(claims.project_id) if claims.project_id else None
    return Credentials(
        user_id=user.id,
        user_name=user.name,
        user_domain_id=DOMAIN_ID,
        user_domain_name=DOMAIN_NAME,
        project_id=project.id if project else None,
        project_name=project.name if project else None,
        project_domain_id=DOMAIN_ID if project else None,
        project_domain_name=DOMAIN_NAME if project else None,
        roles=roles,
        system_scope=claims.system,
        is_admin_project=True,  # as Keystone says when no admin project is set
        expires_at=datetime.fromtimestamp(claims.expires_at, UTC),
        audit_id=claims.audit_id,
    )


def _roles(user: User, scope: Scope, accounts: Accounts) -> tuple[str, ...] | None:
    """The user's roles in a scope; empty without a scope, None when there is nothing for the user there."""
    if scope.system:
        return with_implied(user.system_roles) or None
    if scope.project_id is None:
        return ()
    project = accounts.projects.get(scope.project_id)
    if project is None or not project.enabled:
        return None
    return with_implied(user.roles.get(project.id, ())) or None


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()


def _password_mark(user: User) -> str:
    return sha256(user.password_hash.encode()).hexdigest()[:16]
