"""The unmodified `openstack` client against the standalone identity, images and networks, over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.standalone.glance import glance
from gateway.standalone.keystone import keystone
from gateway.standalone.links import Links
from gateway.standalone.neutron import neutron

OPENSTACK = Path(sys.executable).with_name("openstack")
LIMIT_S = 60  # for one command; far more than it takes

Openstack = Callable[..., Any]


@pytest.fixture(scope="module")
def openstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Openstack]:
    """Run the client as a user of the service, and read its answer."""
    directory = tmp_path_factory.mktemp("standalone")
    listener = socket.create_server(("127.0.0.1", 0))
    identity = StandaloneIdentity(directory, auth_url=f"http://127.0.0.1:{listener.getsockname()[1]}/identity/v3")
    images, networks, links = StandaloneImages(directory / "images"), StandaloneNetworks(), Links()
    app = Starlette(
        routes=[
            Mount("/identity", keystone(identity, links)),
            Mount("/image", glance(images, identity, links)),
            Mount("/network", neutron(networks, identity, links)),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()

    def run(cloud: str, *command: str, fails: bool = False) -> Any:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        environment |= {"OS_CLIENT_CONFIG_FILE": str(directory / "clouds.yaml"), "OS_CLOUD": cloud}
        done = subprocess.run(
            [OPENSTACK, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        if fails:
            return done.stderr
        return json.loads(done.stdout) if "json" in command else done.stdout

    yield run
    server.should_exit = True
    thread.join(LIMIT_S)


def test_a_user_logs_in_and_looks_around(openstack: Openstack) -> None:
    token = openstack("demo", "token", "issue", "-f", "json")
    projects = openstack("demo", "project", "list", "-f", "json")
    assert [one["Name"] for one in projects] == ["demo"]
    assert projects[0]["ID"] == token["project_id"]
    catalog = openstack("demo", "catalog", "list", "-f", "json")
    assert {one["Type"] for one in catalog} == {"identity", "compute", "image", "network"}


def test_a_wrong_password_is_refused(openstack: Openstack) -> None:
    said = openstack("demo", "--os-password", "wrong", "token", "issue", fails=True)
    assert "The request you have made requires authentication. (HTTP 401)" in said


def test_an_admin_finds_projects_by_name(openstack: Openstack) -> None:
    assert {one["Name"] for one in openstack("admin", "project", "list", "-f", "json")} == {"admin", "demo"}
    assert openstack("admin", "project", "show", "demo", "-f", "json")["name"] == "demo"


def test_an_image_goes_from_create_to_delete(openstack: Openstack, tmp_path: Path) -> None:
    data, copy = tmp_path / "disk.raw", tmp_path / "copy.raw"
    data.write_bytes(os.urandom(3 << 20))
    create = (
        "image",
        "create",
        "--file",
        str(data),
        "--disk-format",
        "raw",
        "--property",
        "hw_disk_bus=scsi",
    )
    made = openstack("demo", *create, "disk", "-f", "json")
    assert (made["status"], made["size"]) == ("active", 3 << 20)
    assert [one["Name"] for one in openstack("demo", "image", "list", "-f", "json")] == ["disk"]
    openstack("demo", "image", "set", "--property", "os_distro=x", "--tag", "t", "--min-ram", "64", "disk")
    shown = openstack("demo", "image", "show", "disk", "-f", "json")
    assert (shown["min_ram"], shown["tags"]) == (64, ["t"])
    assert (shown["properties"]["hw_disk_bus"], shown["properties"]["os_distro"]) == ("scsi", "x")
    openstack("demo", "image", "save", "--file", str(copy), "disk")
    assert copy.read_bytes() == data.read_bytes()
    openstack("demo", "image", "delete", "disk")
    assert openstack("demo", "image", "list", "-f", "json") == []


def test_the_network_is_there_to_be_read(openstack: Openstack) -> None:
    (network,) = openstack("demo", "network", "list", "-f", "json")
    (subnet,) = openstack("demo", "subnet", "list", "-f", "json")
    assert (network["Name"], network["Subnets"]) == ("private", [subnet["ID"]])
    assert [one["Name"] for one in openstack("demo", "security", "group", "list", "-f", "json")] == ["default"]
    assert openstack("demo", "port", "list", "-f", "json") == []
    assert "nothing can be changed" in openstack("demo", "network", "create", "mine", fails=True)
