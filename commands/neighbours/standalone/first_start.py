"""What the first start in a directory makes: two users with random passwords, and a clouds.yaml for them.

Passwords are in clouds.yaml and nowhere else.
"""

from __future__ import annotations

import logging
import re
import secrets
from pathlib import Path
from uuid import uuid4

from commands.neighbours.standalone.accounts import Accounts, Project, User, to_toml
from commands.neighbours.standalone.passwords import hash_password
from commands.neighbours.standalone.private_file import write_private

log = logging.getLogger(__name__)

REGION = "RegionOne"

CLOUD = """\
  {name}:
    auth:
      auth_url: {auth_url}
      username: {name}
      password: "{password}"
      project_name: {name}
      user_domain_name: Default
      project_domain_name: Default
    region_name: {region}
    identity_api_version: 3
"""


def make_accounts(identity_file: Path, clouds_file: Path, auth_url: str) -> None:
    """Write clouds.yaml, then identity.toml: the second makes the first start done."""
    passwords = {name: secrets.token_urlsafe(18) for name in ("admin", "demo")}
    clouds = "".join(
        CLOUD.format(name=name, auth_url=auth_url, password=password, region=REGION)
        for name, password in passwords.items()
    )
    write_private(clouds_file, f"clouds:\n{clouds}".encode())
    admin, demo = (Project(id=uuid4().hex, name=name) for name in passwords)
    users = (
        User(
            id=uuid4().hex,
            name="admin",
            password_hash=hash_password(passwords["admin"]),
            roles={admin.id: ("admin",)},
            system_roles=("admin",),
        ),
        User(
            id=uuid4().hex,
            name="demo",
            password_hash=hash_password(passwords["demo"]),
            roles={demo.id: ("member",)},
        ),
    )
    accounts = Accounts(
        users={user.id: user for user in users},
        projects={project.id: project for project in (admin, demo)},
    )
    write_private(identity_file, to_toml(accounts).encode())


def point_clouds_at(clouds_file: Path, auth_url: str) -> None:
    """Give the clouds that the first start made another address; the rest of the file stays as it is."""
    if not clouds_file.exists():
        log.warning("%s is gone, and with it the passwords it held; set new ones", clouds_file)
        return
    before = clouds_file.read_text(encoding="utf-8")
    ours = r"(?m)^(  (?:admin|demo):\n    auth:\n      auth_url: ).*$"
    after = re.sub(ours, lambda match: match.group(1) + auth_url, before)
    if after != before:
        write_private(clouds_file, after.encode())
