"""The files that deploy and build: that they are well formed and ask for what there is."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

from gateway.cli import app
from tests.papers.repository import ROOT, files

SCRIPTS = [path for path in files() if path.suffix == ".sh" or path == ROOT / ".ci" / "run"]
TARGETS = ("help", "up", "test", "check", "bench", "papers", "lock", "clean", "set-up")


def options_of_up(arguments: list[str]) -> dict[str, Any]:
    """What `compute-ledger up` makes of these arguments; fails as the command would."""
    command = get_command(app)
    up = command.commands["up"]  # type: ignore[attr-defined]
    context: typer.Context = up.make_context("up", list(arguments))
    return context.params


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


def test_compose_runs_the_embedded_ledger() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert set(compose) == {"services", "volumes"}
    (service,) = compose["services"].values()
    build = service["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).is_file()
    verb, *arguments = service["command"]
    options = options_of_up(arguments)
    assert verb == "up"
    assert options["driver"] == "fake"
    (volume,) = service["volumes"]
    name, _, place = volume.partition(":")
    assert name in compose["volumes"]
    assert place == str(options["data"])
    assert service["healthcheck"]["test"][:3] == ["CMD", "python", "-c"]
    compile(service["healthcheck"]["test"][3], "healthcheck", "exec")
    port = options["listen"].rpartition(":")[2]
    assert all(published.endswith(f":{port}") for published in service["ports"])


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


def test_the_unit_of_systemd_runs_the_command() -> None:
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "compute-ledger.service")
    assert unit.sections() == ["Unit", "Service", "Install"]
    program, verb, *arguments = unit["Service"]["ExecStart"].split()
    options = options_of_up(arguments)
    assert program.endswith("/.venv/bin/compute-ledger")
    assert verb == "up"
    before = re.findall(r"^ExecStartPre=(.*)$", (ROOT / "deploy" / "compute-ledger.service").read_text(), re.MULTILINE)
    reached = [options["data"] / inner for inner in ("", "hosts", "hosts/1")]
    for command in before:
        assert [Path(word) for word in command.split() if word.startswith("/var/lib/")] == reached


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
