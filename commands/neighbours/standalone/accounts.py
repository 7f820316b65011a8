"""Users, projects and roles, as written in identity.toml. `accounts_file.py` keeps the file.

There is one domain, Keystone's "Default". Users and projects are keyed by name, so that names are unique.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tomli_w

from commands.neighbours.standalone.passwords import is_password_hash

DOMAIN_ID, DOMAIN_NAME = "default", "Default"
ROLES = ("admin", "manager", "member", "reader", "service")
IMPLIED = {"admin": ("manager", "member", "reader"), "manager": ("member", "reader"), "member": ("reader",)}

HEADER = """\
# Users, projects and roles. An edit is picked up at once; the service writes this file too, without comments.
# Set a password with `openstack user set --password-prompt NAME`, or write an argon2id hash.

"""


class AccountsInvalid(Exception):
    """identity.toml cannot be used; the message says where and why, and shows no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    id: str
    name: str
    description: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: str
    name: str
    password_hash: str = field(repr=False)
    description: str = ""
    email: str | None = None
    enabled: bool = True
    default_project_id: str | None = None  # what a login without a scope is for
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by project id, as assigned
    system_roles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Accounts:
    users: Mapping[str, User]  # by id
    projects: Mapping[str, Project]  # by id
    extra_roles: tuple[str, ...] = ()  # besides ROLES

    @cached_property
    def users_by_name(self) -> Mapping[str, User]:
        return {user.name: user for user in self.users.values()}

    @cached_property
    def projects_by_name(self) -> Mapping[str, Project]:
        return {project.name: project for project in self.projects.values()}

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES + self.extra_roles


def with_implied(roles: Iterable[str]) -> tuple[str, ...]:
    """Assigned roles and what they imply (Keystone's default implications), in a fixed order."""
    assigned = set(roles)
    return tuple(sorted(assigned.union(*(IMPLIED.get(role, ()) for role in assigned))))


def parse(text: str) -> Accounts:
    """Raises:
    AccountsInvalid: not TOML, an unknown key, or a name that leads nowhere.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AccountsInvalid(f"not TOML: {error}") from None
    _only(document, "the file", {"roles", "projects", "users"})
    extra = _names(document.get("roles", []), "roles")
    projects = [_project(name, entry) for name, entry in _tables(document, "projects")]
    ids = {project.name: project.id for project in projects}
    users = [_user(name, entry, ids, ROLES + extra) for name, entry in _tables(document, "users")]
    accounts = Accounts(
        users={user.id: user for user in users},
        projects={project.id: project for project in projects},
        extra_roles=extra,
    )
    if len(accounts.users) < len(users) or len(accounts.projects) < len(projects):
        raise AccountsInvalid("an id is used twice")
    return accounts


def to_toml(accounts: Accounts) -> str:
    names = {project.id: project.name for project in accounts.projects.values()}
    document: dict[str, Any] = {
        "projects": {
            project.name: _given(id=project.id, description=project.description, enabled=project.enabled)
            for project in accounts.projects.values()
        },
        "users": {
            user.name: _given(
                id=user.id,
                password_hash=user.password_hash,
                description=user.description,
                email=user.email,
                enabled=user.enabled,
                default_project=names.get(user.default_project_id or ""),
                system_roles=list(user.system_roles),
                roles={names[project_id]: list(roles) for project_id, roles in user.roles.items()},
            )
            for user in accounts.users.values()
        },
    }
    if accounts.extra_roles:
        document = {"roles": list(accounts.extra_roles)} | document
    return HEADER + tomli_w.dumps(document)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in ("", None, [], {})}


def _project(name: str, entry: Mapping[str, Any]) -> Project:
    where = f"project {name!r}"
    _only(entry, where, {"id", "description", "enabled"})
    return Project(
        id=_text(entry, "id", where),
        name=name,
        description=_text(entry, "description", where, ""),
        enabled=_flag(entry, "enabled", where),
    )


def _user(name: str, entry: Mapping[str, Any], projects: Mapping[str, str], roles: tuple[str, ...]) -> User:
    where = f"user {name!r}"
    _only(
        entry,
        where,
        {
            "id",
            "password_hash",
            "description",
            "email",
            "enabled",
            "default_project",
            "roles",
            "system_roles",
        },
    )
    password_hash = _text(entry, "password_hash", where)
    if not is_password_hash(password_hash):
        raise AccountsInvalid(f"{where}: password_hash is not an argon2 hash")
    assigned = entry.get("roles", {})
    if not isinstance(assigned, dict):
        raise AccountsInvalid(f"{where}: roles is not a table of project = [roles]")
    default_project = _text(entry, "default_project", where, "") or None
    if unknown := {*assigned, *([default_project] if default_project else [])} - set(projects):
        raise AccountsInvalid(f"{where}: there is no project {sorted(unknown)[0]!r}")
    return User(
        id=_text(entry, "id", where),
        name=name,
        password_hash=password_hash,
        description=_text(entry, "description", where, ""),
        email=_text(entry, "email", where, "") or None,
        enabled=_flag(entry, "enabled", where),
        default_project_id=projects[default_project] if default_project else None,
        roles={projects[key]: _names(value, f"{where}: roles", roles) for key, value in assigned.items()},
        system_roles=_names(entry.get("system_roles", []), f"{where}: system_roles", roles),
    )


def _tables(document: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = document.get(key, {})
    if not isinstance(tables, dict) or not all(isinstance(entry, dict) for entry in tables.values()):
        raise AccountsInvalid(f"{key} is not a table of tables")
    return list(tables.items())


def _only(entry: Mapping[str, Any], where: str, known: set[str]) -> None:
    if unknown := set(entry) - known:
        raise AccountsInvalid(f"{where}: unknown key {sorted(unknown)[0]!r}")


def _text(entry: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise AccountsInvalid(f"{where}: {key} is missing or not text")
    return value


def _flag(entry: Mapping[str, Any], key: str, where: str) -> bool:
    value = entry.get(key, True)
    if not isinstance(value, bool):
        raise AccountsInvalid(f"{where}: {key} is not true or false")
    return value


def _names(value: object, where: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise AccountsInvalid(f"{where} is not a list of names")
    if known is not None and (unknown := set(value) - set(known)):
        raise AccountsInvalid(f"{where}: there is no role {sorted(unknown)[0]!r}")
    return tuple(value)
