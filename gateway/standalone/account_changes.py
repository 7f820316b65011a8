"""Changes to the accounts: pure functions of them for Keystone's routes, and how one is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from commands.neighbours.standalone.accounts import Accounts, AccountsInvalid, Project, User
from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.passwords import hash_password
from gateway.standalone.exchange import Refusal, flag, text

T = TypeVar("T")

LONGEST_PASSWORD = 4096  # characters, as Keystone's

# Passwords are checked two at a time: a flood of logins costs two cores and 16 MiB, and blocks nothing else.
_slow = ThreadPoolExecutor(max_workers=2, thread_name_prefix="accounts")


async def off_the_loop(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_slow, work)


async def change(identity: StandaloneIdentity, alter: Callable[[Accounts], Accounts]) -> Accounts:
    """Raises:
    Refusal: from `alter`, or 409 while the file cannot be read.
    """
    try:
        return await off_the_loop(lambda: identity.change_accounts(alter))
    except AccountsInvalid:
        raise Refusal(409, "The file of accounts is being edited and cannot be changed now.") from None


def user_of(accounts: Accounts, user_id: str) -> User:
    user = accounts.users.get(user_id)
    if user is None:
        raise Refusal(404, f"Could not find user: {user_id}.")
    return user


def project_of(accounts: Accounts, project_id: str) -> Project:
    project = accounts.projects.get(project_id)
    if project is None:
        raise Refusal(404, f"Could not find project: {project_id}.")
    return project


def with_user(accounts: Accounts, user: User) -> Accounts:
    if accounts.users_by_name.get(user.name, user).id != user.id:
        raise Refusal(409, f"A user named {user.name} already exists.")
    if user.default_project_id is not None and user.default_project_id not in accounts.projects:
        raise Refusal(400, f"Could not find project: {user.default_project_id}.")
    return replace(accounts, users={**accounts.users, user.id: user})


def without_user(accounts: Accounts, user_id: str) -> Accounts:
    gone = user_of(accounts, user_id)
    return replace(accounts, users={key: one for key, one in accounts.users.items() if key != gone.id})


def with_project(accounts: Accounts, project: Project) -> Accounts:
    if accounts.projects_by_name.get(project.name, project).id != project.id:
        raise Refusal(409, f"A project named {project.name} already exists.")
    return replace(accounts, projects={**accounts.projects, project.id: project})


def without_project(accounts: Accounts, project_id: str) -> Accounts:
    """The project, and every role on it."""
    gone = project_of(accounts, project_id)
    users = {
        user.id: replace(
            user,
            roles={key: roles for key, roles in user.roles.items() if key != gone.id},
            default_project_id=None if user.default_project_id == gone.id else user.default_project_id,
        )
        for user in accounts.users.values()
    }
    projects = {key: one for key, one in accounts.projects.items() if key != gone.id}
    return replace(accounts, projects=projects, users=users)


def altered_project(project: Project, body: dict[str, Any]) -> Project:
    return replace(
        project,
        name=_name(body, project.name),
        description=_kept(body, "description", project.description, longest=10_000),
        enabled=flag(body, "enabled", project.enabled),
    )


def altered_user(user: User, body: dict[str, Any]) -> User:
    """Slow when it sets a password."""
    password = text(body, "password", longest=LONGEST_PASSWORD)
    return replace(
        user,
        name=_name(body, user.name),
        password_hash=hash_password(password) if password else user.password_hash,
        description=_kept(body, "description", user.description, longest=10_000),
        email=text(body, "email") if "email" in body else user.email,
        enabled=flag(body, "enabled", user.enabled),
        default_project_id=(
            text(body, "default_project_id") if "default_project_id" in body else user.default_project_id
        ),
    )


def _name(body: dict[str, Any], before: str) -> str:
    name = text(body, "name") or before
    if not name.strip() or not name.isprintable():
        raise Refusal(400, "name must be printable text of 1 to 255 characters.")
    return name


def _kept(body: dict[str, Any], key: str, before: str, *, longest: int) -> str:
    return (text(body, key, longest=longest) or "") if key in body else before
