"""Who may do what: oslo.policy with Nova's rule names and defaults, overridden by `policy.yaml` in the config directory.

The defaults come from the table of operations. A decision that depends on nothing but roles and on whose the target
is, is remembered for everyone with those roles.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands.neighbours.identity import Credentials
from gateway.faults import Fault
from gateway.operations import operations_and_rules

LOG = logging.getLogger(__name__)

POLICY_FILE = "policy.yaml"
LOOK_AGAIN_S = 1.0  # how long an edit of the file may go unseen
REMEMBERED = 50_000  # decisions; when there are more, all are forgotten

# Rules that the defaults refer to; an operator may override these too.
SHARED_RULES = {
    "context_is_admin": "role:admin",
    "admin_api": "rule:context_is_admin",
    "project_reader_api": "role:reader and project_id:%(project_id)s",
    "project_member_api": "role:member and project_id:%(project_id)s",
    "project_manager_api": "role:manager and project_id:%(project_id)s",
    "project_reader_or_admin": "rule:project_reader_api or rule:context_is_admin",
    "project_member_or_admin": "rule:project_member_api or rule:context_is_admin",
    "project_manager_or_admin": "rule:project_manager_api or rule:context_is_admin",
    "owner_or_admin": "rule:context_is_admin or user_id:%(user_id)s",
    "service_api": "role:service",
    "service_or_admin": "rule:service_api or rule:context_is_admin",
}

# The least role that the table names, as a rule.
CHECK_BY_ROLE = {
    "any_authenticated": "@",
    "nobody": "!",
    "owner_user": "rule:owner_or_admin",
    "project_reader": "rule:project_reader_or_admin",
    "project_member": "rule:project_member_or_admin",
    "project_manager": "rule:project_manager_or_admin",
    "service": "rule:service_or_admin",
    "admin": "rule:context_is_admin",
}

_WHOSE = {"project_id": "%(project_id)s", "user_id": "%(user_id)s"}


class PolicyInvalid(Exception):
    """The policy file cannot be used."""


class Policy:
    def __init__(self, config_dir: Path | None = None) -> None:
        """Loads oslo.policy, which takes some 200 ms.

        Raises:
            PolicyInvalid
        """
        from oslo_config import cfg
        from oslo_policy import opts, policy

        _, role_by_rule = operations_and_rules()
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        opts.set_defaults(conf)
        self._oslo = policy
        self._enforcer = policy.Enforcer(conf, use_conf=False)
        self._defaults = SHARED_RULES | {rule: CHECK_BY_ROLE[role] for rule, role in role_by_rule.items()}
        for rule, check in self._defaults.items():
            scopes = ["project"] if rule in role_by_rule else None
            self._enforcer.register_default(policy.RuleDefault(rule, check, scope_types=scopes))
        self._file = None if config_dir is None else config_dir / POLICY_FILE
        self._stamp = self._stamp_now()
        self._look_again_at = time.monotonic() + LOOK_AGAIN_S
        self._remembered: dict[tuple[Any, ...], bool] = {}
        self._by_roles: dict[str, bool] = {}
        self._load()

    def require(
        self, rule: str, credentials: Credentials, *, project_id: str | None = None, user_id: str | None = None
    ) -> None:
        """Raises:
        Fault: 403, naming the rule as Nova does.
        """
        if not self.allows(rule, credentials, project_id=project_id, user_id=user_id):
            raise Fault(403, f"Policy doesn't allow {rule} to be performed.")

    def allows(
        self, rule: str, credentials: Credentials, *, project_id: str | None = None, user_id: str | None = None
    ) -> bool:
        """Whether the caller may do that to something of this project and user; its own where they are not given."""
        if self._file is not None and time.monotonic() >= self._look_again_at:
            self._look_again()
        own_project = credentials.project_id is not None and project_id in (None, credentials.project_id)
        own_user = user_id in (None, credentials.user_id)
        key: tuple[Any, ...] = (rule, credentials.roles, own_project, own_user, credentials.system_scope)
        by_roles = self._by_roles.get(rule)
        if by_roles is None:
            by_roles = self._by_roles[rule] = self._depends_on_roles_only(rule)
        if not by_roles:
            key += (credentials.user_id, credentials.project_id, project_id, user_id)
        allowed = self._remembered.get(key)
        if allowed is None:
            allowed = self._ask(rule, credentials, project_id, user_id)
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = allowed
        return allowed

    def _ask(self, rule: str, credentials: Credentials, project_id: str | None, user_id: str | None) -> bool:
        target = {
            "project_id": credentials.project_id if project_id is None else project_id,
            "user_id": credentials.user_id if user_id is None else user_id,
        }
        return bool(self._enforcer.enforce(rule, target, _as_oslo(credentials)))

    def _load(self) -> None:
        """Raises:
        PolicyInvalid
        """
        checks = dict(self._defaults)
        own = self._read()
        checks.update(own)
        rules = self._oslo.Rules.from_dict(checks)
        named = {check.match for rule in rules.values() for check in _leaves(rule) if _kind(check) == "rule"}
        if missing := sorted(named - set(rules)):
            raise PolicyInvalid(f"{self._file}: there is no rule {missing[0]}, which another rule names")
        for rule in sorted(set(own) - set(self._defaults) - named):
            LOG.warning("%s: nothing asks for the rule %s", self._file, rule)
        self._enforcer.set_rules(rules, overwrite=True, use_conf=False)
        self._remembered.clear()
        self._by_roles.clear()

    def _read(self) -> dict[str, str]:
        if self._file is None or self._stamp is None:
            return {}
        try:
            content = self._oslo.parse_file_contents(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PolicyInvalid(f"{self._file}: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise PolicyInvalid(f"{self._file}: it is not a list of rules with their check strings")
        for rule, check in content.items():
            if not isinstance(rule, str) or not isinstance(check, str):
                raise PolicyInvalid(f"{self._file}: {rule} is not a rule with a check string")
            parsed = self._oslo.RuleDefault(rule, check).check
            if check.strip() != "!" and str(parsed) == "!":
                raise PolicyInvalid(f"{self._file}: the check string of {rule} cannot be understood")
        return dict(content)

    def _look_again(self) -> None:
        self._look_again_at = time.monotonic() + LOOK_AGAIN_S
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._load()
        except PolicyInvalid as error:
            LOG.error("the policy stays as it was: %s", error)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = None if self._file is None else self._file.stat()
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

    def _depends_on_roles_only(self, rule: str) -> bool:
        """Whether roles, scope and "is it the caller's own" settle the rule, so that others' decisions hold."""
        for check in _leaves(self._enforcer.rules[rule]) if rule in self._enforcer.rules else ():
            kind, match = _kind(check), getattr(check, "match", "")
            if kind == "rule":
                if not self._depends_on_roles_only(match):
                    return False
            elif not (kind == "constant" or (kind == "role" and "%" not in match) or _WHOSE.get(kind) == match):
                return False
        return True


def _leaves(check: Any) -> Iterator[Any]:
    if hasattr(check, "rules"):
        for inner in check.rules:
            yield from _leaves(inner)
    elif hasattr(check, "rule"):
        yield from _leaves(check.rule)
    else:
        yield check


def _kind(check: Any) -> str:
    return str(getattr(check, "kind", "constant"))  # "@" and "!" have none


def _as_oslo(credentials: Credentials) -> dict[str, Any]:
    known: dict[str, Any] = {
        "user_id": credentials.user_id,
        "user_domain_id": credentials.user_domain_id,
        "roles": list(credentials.roles),
        "is_admin_project": credentials.is_admin_project,
    }
    if credentials.project_id is not None:  # absent rather than None: else "None" would equal a target without one
        known["project_id"] = credentials.project_id
        known["project_domain_id"] = credentials.project_domain_id
    if credentials.system_scope:
        known["system_scope"] = "all"
    return known
