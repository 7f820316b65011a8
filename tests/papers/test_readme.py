"""The commands of the documents, run as they stand beside a ledger that `make up` has started; those of blocks marked
`sh region`, beside a distributed one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.roles import Role
from tests.papers.repository import ROOT, blocks, command_of, documents
from tests.support.make_up import MakeUp, made_up
from tests.support.region import RegionLedger

LIMIT_S = 300
REGION = "/tmp/region"  # as the documents say
STORE = "postgresql://ledger:PASSWORD@db.example/ledger"
WITHOUT_PASSWORD = STORE.replace(":PASSWORD@", "@")
PASSWORD = "PGPASSWORD=PASSWORD"
KAFKA = "kafka.example:9092"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A working copy to stand in, so that what the commands write does not end up in this one."""
    place = tmp_path / "copy"
    place.mkdir()
    for name in ("Makefile", "deploy", "tests"):
        (place / name).symlink_to(ROOT / name)
    (place / ".venv").symlink_to(Path(sys.prefix))
    return place


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MakeUp]:
    """In the directory that the documents name, under a home of its own."""
    home = tmp_path / "home"
    with made_up(home / ".local" / "share" / "compute-ledger", driver="fake") as process:
        yield process


def commands(language: str) -> list[str]:
    """Line by line, the README's first; a line that ends with a backslash goes on in the next."""
    ordered = sorted(documents(), key=lambda path: (path != ROOT / "README.md", path))
    text = "".join(block for document in ordered for block in blocks(document, language))
    return re.sub(r"\\\n\s*", "", text).splitlines()


def run(lines: list[str], place: Path, home: Path, **variables: str) -> None:
    script = "\n".join(["set -e", *map(harmless, lines)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "COMPUTE_LEDGER_"))}
    environment |= {"HOME": str(home), **variables}
    done = subprocess.run(
        ["bash", "-x", "-c", script],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def harmless(line: str) -> str:
    """`make` would run these tests again, or start a second ledger: of it only that the target is there. A command that
    would go on for ever is only read, by `test_what_would_go_on_for_ever_is_a_command_line_of_ours`."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["compute-ledger", "up"]:
        return ":"
    return shlex.join(["make", "-n", *words[1:]]) if words[:1] == ["make"] else line


def test_every_command_of_the_documents_runs(ledger: MakeUp, desk: Path, tmp_path: Path) -> None:
    run(commands("sh"), desk, tmp_path / "home")
    assert (desk / "compute-ledger.conf").stat().st_size > 1000
    assert (tmp_path / "home" / "compute-ledger-backup" / "vault.key").is_file()


def test_every_command_for_several_machines_runs(region: RegionLedger, desk: Path, tmp_path: Path) -> None:
    url, password = region.region.store_url, str(conninfo_to_dict(region.region.store_url)["password"])
    here = {
        REGION: str(region.region.directory),
        STORE: url,
        WITHOUT_PASSWORD: url.replace(f":{password}@", "@"),
        PASSWORD: f"PGPASSWORD={password}",
        KAFKA: region.region.bootstrap,
    }
    (region.region.directory / "environment").write_text(region.region.exports())
    # It leads to the gateway that was started last, which another story may have ended.
    (region.directory / "clouds.yaml").write_text(region.clouds_files()[0].read_text())
    lines = commands("sh region")
    for said, meant in here.items():
        assert any(said in line for line in lines)
        lines = [line.replace(said, meant) for line in lines]
    run(lines, desk, tmp_path, COMPUTE_LEDGER_DATA=str(region.directory))
    credential = desk / "credential.json"
    assert credential.stat().st_mode & 0o077 == 0
    assert b"private_key" in credential.read_bytes()
    assert (desk / "ledger.dump").stat().st_size > 1000


def test_what_would_go_on_for_ever_is_a_command_line_of_ours() -> None:
    lines = [shlex.split(line, comments=True) for language in ("sh", "sh region") for line in commands(language)]
    roles = {
        role for words in lines if words[:2] == ["compute-ledger", "up"] for role in command_of(words[1:])[1]["role"]
    }
    assert roles == set(Role)


def test_the_walk_of_the_readme_goes_from_boot_to_delete() -> None:
    text = "".join(blocks(ROOT / "README.md", "sh"))
    steps = ["make up", "server create", "console log show", "server stop", "server delete"]
    assert sorted(steps, key=text.index) == steps
