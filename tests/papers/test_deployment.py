"""The files that deploy and build: that they are well formed and ask for what there is."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from deploy.private_kafka import POM
from deploy.private_postgresql import OLDEST
from gateway.roles import Role
from tests.papers.repository import ROOT, command_of, files

SCRIPTS = [path for path in files() if path.suffix == ".sh" or path == ROOT / ".ci" / "run"]
TARGETS = ("help", "up", "region", "test", "conformance", "check", "bench", "papers", "lock", "clean", "set-up")


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
RUNNING = [name for name in OURS if "command" in SERVICES[name]]


def options_of_up(arguments: list[str]) -> dict[str, Any]:
    """What `compute-ledger up` makes of these arguments; fails as the command would."""
    verb, options = command_of(["up", *arguments])
    assert verb == "up"
    return options


def options_of(service: str) -> dict[str, Any]:
    verb, *arguments = SERVICES[service]["command"]
    assert verb == "up"
    return options_of_up(arguments)


def mounted(service: str) -> dict[str, str]:
    """By the place in the container, the volume."""
    return {place: name for name, _, place in (volume.partition(":") for volume in SERVICES[service]["volumes"])}


def is_kept(path: Path, service: str) -> bool:
    return any(path.is_relative_to(place) for place in mounted(service))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_are_bash_and_can_be_executed(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("target", TARGETS)
def test_make_has_the_target(target: str) -> None:
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, timeout=30, capture_output=True)


def test_make_alone_tells_every_target_that_is_for_people() -> None:
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # these tests may run in make
    told = subprocess.run(["make"], cwd=ROOT, env=alone, check=True, timeout=30, capture_output=True, text=True).stdout
    assert {line.split()[1] for line in told.splitlines()} == set(TARGETS) - {"set-up"}


def test_compose_names_only_what_there_is() -> None:
    assert {name for name in COMPOSE if not name.startswith("x-")} == {"services", "volumes"}
    used = {name for service in SERVICES for name in mounted(service).values()}
    assert used == set(COMPOSE["volumes"])
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            condition = how["condition"]
            assert condition in ("service_healthy", "service_completed_successfully"), f"{name}: {condition}"
            assert condition != "service_healthy" or "healthcheck" in SERVICES[other], f"{name} waits for {other}"
    for name in OURS:
        build = SERVICES[name]["build"]
        assert (ROOT / build["context"] / build["dockerfile"]).is_file()


@pytest.mark.parametrize("service", RUNNING)
def test_a_command_of_compose_is_one_of_ours_and_its_state_is_kept(service: str) -> None:
    options = options_of(service)
    assert is_kept(options["data"], service)
    assert options["credential"] is None or is_kept(options["credential"], service)
    assert options["driver"] == "fake"  # the image has no other
    environment = SERVICES[service].get("environment", {})
    assert set(environment) <= {"COMPUTE_LEDGER_STORE", "COMPUTE_LEDGER_KAFKA"}
    port = options["listen"].rpartition(":")[2]
    assert all(published.endswith(f":{port}") for published in SERVICES[service].get("ports", []))


@pytest.mark.parametrize("service", RUNNING)
def test_a_health_check_of_compose_asks_where_the_command_serves(service: str) -> None:
    how, program, option, code = SERVICES[service]["healthcheck"]["test"]
    assert (how, program, option) == ("CMD", "python", "-c")
    compile(code, "healthcheck", "exec")
    options = options_of(service)
    served = [options["metrics"], options["listen"] if not options["role"] or Role.GATEWAY in options["role"] else None]
    asked = re.search(r"http://127\.0\.0\.1(:\d+)/readyz", code)
    assert asked is not None
    assert any(address.endswith(asked[1]) for address in served if address is not None)


def test_compose_has_every_role_twice_and_the_embedded_ledger_apart() -> None:
    roles: Counter[Role] = Counter()
    for service in RUNNING:
        options = options_of(service)
        if "profiles" in SERVICES[service]:
            assert not options["role"]
            assert options["hosts"] == 2
        else:
            roles.update(options["role"])
    assert roles == dict.fromkeys(Role, 2)
    published = [
        port for name in RUNNING for port in SERVICES[name].get("ports", ()) if "profiles" not in SERVICES[name]
    ]
    assert len({port.rpartition(":")[0] for port in published}) == len(published) == 2


def test_the_roles_of_compose_have_the_store_and_kafka_and_its_agents_kafka_and_gateways() -> None:
    settings = SERVICES["postgresql"]["environment"]
    store = "postgresql://{POSTGRES_USER}:{POSTGRES_PASSWORD}@postgresql:5432/{POSTGRES_DB}".format(**settings)
    advertised = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].removeprefix("PLAINTEXT://")
    gateways = {name for name in RUNNING if options_of(name)["role"] == [Role.GATEWAY]}
    directories = []
    for service in RUNNING:
        options, environment = options_of(service), SERVICES[service].get("environment", {})
        if not options["role"]:
            continue
        assert environment["COMPUTE_LEDGER_KAFKA"] == advertised
        if options["role"] == [Role.AGENT]:
            assert "COMPUTE_LEDGER_STORE" not in environment
            assert "data" not in mounted(service).values()
            assert set(options["gateway"]) == {f"http://{gateway}:8774" for gateway in gateways}
            directories.append(options["data"])
        else:
            assert environment["COMPUTE_LEDGER_STORE"] == store
            assert mounted(service)["/data"] == "data"
    assert len(set(directories)) == len(directories)


def test_kafka_of_compose_is_one_node_of_kraft_and_its_versions_are_those_that_are_tested() -> None:
    kafka = SERVICES["kafka"]
    settings = kafka["environment"]
    assert settings["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert not [name for name in settings if "ZOOKEEPER" in name]
    assert settings["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert is_kept(Path(settings["KAFKA_LOG_DIRS"]), "kafka")
    tested = ElementTree.parse(POM).findtext(".//{*}kafka.version") or ""
    assert kafka["image"].rpartition(":")[2].split(".")[:2] == tested.split(".")[:2]
    assert int(SERVICES["postgresql"]["image"].rpartition(":")[2]) >= OLDEST


def test_compose_enrolls_each_host_once(tmp_path: Path) -> None:
    shell, option, script = SERVICES["enrolled"]["entrypoint"]
    hosts = tmp_path / "hosts"
    ledger = tmp_path / "compute-ledger"
    ledger.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "credential $3"\n')
    ledger.chmod(0o755)
    hosts.mkdir()
    path = f"{tmp_path}:{os.environ['PATH']}"
    for _ in range(2):
        words = [shell, option, script.replace("$$", "$").replace("/hosts", str(hosts))]
        subprocess.run(words, check=True, timeout=30, env={"PATH": path})
    asked = (tmp_path / "asked").read_text().splitlines()
    enrolled = []
    for line in asked:
        verb, options = command_of(shlex.split(line))
        assert verb == "host enroll"
        assert is_kept(options["data"], "enrolled")
        enrolled.append(options["name"])
    agents = [options for name in RUNNING if (options := options_of(name))["role"] == [Role.AGENT]]
    assert [options["data"] for options in agents] == [Path("/hosts", name) for name in enrolled]
    for options in agents:
        credential = hosts / options["credential"].relative_to("/hosts")
        assert credential.read_text() == f"credential {options['data'].name}\n"
        assert stat.S_IMODE(credential.stat().st_mode) == 0o600


def test_the_containerfile_copies_what_there_is_and_runs_the_command() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    packages = {"domain", "commands", "projections", "hostagent", "gateway"}
    assert packages | {"pyproject.toml", "requirements.lock"} <= set(copied)
    ignored = (ROOT / "deploy" / "Containerfile.dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == set(ignored) - {"*", "**/__pycache__"}
    (command,) = (yaml.safe_load(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD "))
    assert command[0] == "up"
    options_of_up(command[1:])


def unit(name: str) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(ROOT / "deploy" / name)
    assert parsed.sections() == ["Unit", "Service", "Install"]
    return parsed


def test_every_unit_is_looked_at() -> None:
    names = {path.name for path in files() if path.suffix == ".service"}
    assert names == {"compute-ledger.service", "compute-ledger@.service", "compute-ledger-agent.service"}


@pytest.mark.parametrize(
    ("name", "inner", "roles"),
    [
        ("compute-ledger.service", ("", "hosts", "hosts/1"), []),
        ("compute-ledger-agent.service", ("",), [Role.AGENT]),
    ],
)
def test_a_unit_with_guests_runs_the_command_and_lets_qemu_through(
    name: str, inner: tuple[str, ...], roles: list[Role]
) -> None:
    program, verb, *arguments = unit(name)["Service"]["ExecStart"].split()
    options = options_of_up(arguments)
    assert program.endswith("/.venv/bin/compute-ledger")
    assert verb == "up"
    assert [*options["role"]] == roles
    assert options["driver"] == "libvirt"
    before = re.findall(r"^ExecStartPre=(.*)$", (ROOT / "deploy" / name).read_text(), re.MULTILINE)
    assert len(before) == 2
    for command in before:
        assert [Path(word) for word in command.split() if word.startswith("/var/lib/")] == [
            options["data"] / one for one in inner
        ]


@pytest.mark.parametrize("instance", [*(role for role in Role if role is not Role.AGENT), "managers:2"])
@pytest.mark.parametrize("own", [[], ["own"]])
def test_the_unit_of_a_role_runs_that_role(instance: str, own: list[str], tmp_path: Path) -> None:
    """With a file of its own where there is one."""
    files_of_it = [tmp_path / "compute-ledger.conf", *(tmp_path / f"{instance}.conf" for _ in own)]
    for file in files_of_it:
        file.touch()
    service = unit("compute-ledger@.service")["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[:2] == ["/bin/sh", "-c"]
    script = words[2].replace("/etc/compute-ledger", str(tmp_path))
    program, verb, *arguments = shlex.split(as_systemd_runs_it(script, instance, tmp_path))
    options = options_of_up(arguments)
    assert program.endswith("/.venv/bin/compute-ledger")
    assert verb == "up"
    assert options["role"] == [Role(instance.partition(":")[0])]
    assert options["data"] == Path("/var/lib", service["StateDirectory"])
    assert options["config_file"] == files_of_it
    assert ("--listen" in arguments) == (Role.GATEWAY in options["role"])  # for the others it would be refused


def as_systemd_runs_it(script: str, instance: str, directory: Path) -> str:
    """The command line that the script ends in; specifiers and dollars as systemd.exec(5) has them."""
    script = re.sub(r"%(.)", lambda found: {"i": instance, "%": "%"}[found[1]], script).replace("$$", "$")
    shown = directory / "told"
    shown.write_text('#!/bin/sh\necho "$0" "$@"\n')
    shown.chmod(0o755)
    program = "/opt/compute-ledger/.venv/bin/compute-ledger"
    assert program in script
    words = ["/bin/sh", "-c", script.replace(program, str(shown))]
    told = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout
    return told.replace(str(shown), program)


def test_where_ci_is_true_a_skip_is_a_failure(tmp_path: Path) -> None:
    test = tmp_path / "test_skips.py"
    test.write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def daemon(): pytest.skip('no daemon')\n"
        "def test_one(daemon): pass\n"
        "def test_two(): pytest.skip('no reason')\n"
        "@pytest.mark.xfail\n"
        "def test_three(): assert False\n"
    )

    def closing_line(ci: str) -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "tests.support.skips",
                "-c",
                os.devnull,
                "--rootdir",
                tmp_path,
                test,
            ],
            cwd=ROOT,
            env=os.environ | {"CI": ci},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout.strip().splitlines()[-1]

    assert "1 failed, 1 xfailed, 1 error" in closing_line("true")
    assert "2 skipped, 1 xfailed" in closing_line("")
