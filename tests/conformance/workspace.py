"""A tempest workspace for a ledger: its configuration, and accounts that stand before the first test."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path
from typing import Any

import openstack
import yaml

from tests.support.ledger_process import LedgerProcess

PASSWORD = "a password of the tests"
SETS = 4  # of users: a class of tests wants up to three at once, two classes run at a time
KINDS = ("user", "admin", "service")  # of projects
USERS = (
    ("user", ("member",)),
    ("user", ("reader",)),
    ("user", ("manager",)),
    ("admin", ("admin",)),
    ("service", ("service", "admin")),
)

# What the deployment under test has, of what tempest can be told of.
FEATURES = {
    "change_password": False,
    "console_output": True,
    "resize": False,
    "pause": True,
    "suspend": True,
    "shelve": False,
    "cold_migration": False,
    "live_migration": False,
    "vnc_console": False,
    "spice_console": False,
    "serial_console": False,
    "rescue": False,
    "stable_rescue": False,
    "interface_attach": False,
    "snapshot": False,
    "personality": False,
    "config_drive": True,
    "enable_instance_password": True,
    "swap_volume": False,
    "volume_multiattach": False,
    "disk_config": True,
    "hostname_fqdn_sanitization": True,
    "unified_limits": False,
}


class Workspace:
    def __init__(self, directory: Path, tempest: Path, ledger: LedgerProcess) -> None:
        """`tempest`: the directory of its programs."""
        self.directory = directory
        self._tempest = tempest
        command = [tempest / "tempest", "init", "--workspace-path", directory.parent / "workspaces.yaml", directory]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
        auth = ledger.credentials("admin")
        cloud = openstack.connect(region_name="RegionOne", **auth)  # type: ignore[arg-type]
        (directory / "etc" / "accounts.yaml").write_text(yaml.safe_dump(_accounts(cloud)))
        conf = configparser.RawConfigParser()
        conf.optionxform = str  # type: ignore[assignment,method-assign]
        conf.read_dict(_options(directory, cloud, auth))
        with (directory / "etc" / "tempest.conf").open("w") as file:
            conf.write(file)

    def set_versions(self, oldest: str, newest: str) -> None:
        """Which microversions tempest uses; with both at 2.1, none is asked for but where a test is about one."""
        path = self.directory / "etc" / "tempest.conf"
        conf = configparser.RawConfigParser()
        conf.optionxform = str  # type: ignore[assignment,method-assign]
        conf.read(path)
        conf["compute"]["min_microversion"], conf["compute"]["max_microversion"] = oldest, newest
        with path.open("w") as file:
            conf.write(file)


def _accounts(cloud: Any) -> list[dict[str, Any]]:
    """Users that no two tests share at a time; administrators have projects of their own."""
    identity = cloud.identity
    roles = {role.name: role for role in identity.roles()}
    made = []
    for number in range(SETS):
        projects = {
            kind: identity.create_project(name=f"tempest-{kind}-{number}", domain_id="default") for kind in KINDS
        }
        for kind, held in USERS:
            user = identity.create_user(
                name=f"tempest-{kind}-{'-'.join(held)}-{number}", password=PASSWORD, domain_id="default"
            )
            for role in held:
                identity.assign_project_role_to_user(projects[kind], user, roles[role])
            entry: dict[str, Any] = {
                "username": user.name,
                "password": PASSWORD,
                "project_name": projects[kind].name,
                "user_domain_name": "Default",
                "project_domain_name": "Default",
                "roles": list(held),
            }
            made.append(entry | {"types": ["admin"]} if held == ("admin",) else entry)
    return made


def _options(directory: Path, cloud: Any, auth: dict[str, str]) -> dict[str, dict[str, str]]:
    def image(name: str) -> str:
        return str(
            cloud.image.create_image(
                name=name, disk_format="raw", container_format="bare", visibility="public", data=b"\0" * 1024**2
            ).id
        )

    def flavor(name: str, number: str, ram: int) -> str:
        return str(cloud.compute.create_flavor(name=name, id=number, ram=ram, vcpus=1, disk=1).id)

    return {
        "DEFAULT": {"log_file": str(directory / "tempest.log")},
        "oslo_concurrency": {"lock_path": str(directory / "locks")},
        "auth": {
            "use_dynamic_credentials": "false",
            "test_accounts_file": str(directory / "etc" / "accounts.yaml"),
            "default_credentials_domain_name": "Default",
            "create_isolated_networks": "false",
            "admin_username": auth["username"],
            "admin_password": auth["password"],
            "admin_project_name": auth["project_name"],
            "admin_domain_name": "Default",
        },
        "identity": {"auth_version": "v3", "uri_v3": f"{auth['auth_url']}", "region": "RegionOne"},
        "service_available": {
            "nova": "true",
            "glance": "true",
            "neutron": "true",
            "cinder": "false",
            "swift": "false",
            "horizon": "false",
        },
        "validation": {"run_validation": "false"},
        "compute": {
            "image_ref": image("tempest"),
            "image_ref_alt": image("tempest-alt"),
            "flavor_ref": flavor("tempest", "42", 64),
            "flavor_ref_alt": flavor("tempest-alt", "84", 128),
            "min_microversion": "2.1",
            "max_microversion": "latest",
            "min_compute_nodes": "2",
            "build_interval": "1",
            "build_timeout": "60",
            "fixed_network_name": "private",
        },
        "compute-feature-enabled": {name: str(on).lower() for name, on in FEATURES.items()}
        | {"scheduler_enabled_filters": "all"},
        "enforce_scope": {"nova": "true"},
    }
