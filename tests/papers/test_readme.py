"""The commands of the documents, run as they stand beside a ledger that `make up` has started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.papers.repository import ROOT, blocks, documents
from tests.support.make_up import MakeUp, made_up

LIMIT_S = 300


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


def test_every_command_of_the_documents_runs(ledger: MakeUp, desk: Path, tmp_path: Path) -> None:
    lines = [line for document in documents() for block in blocks(document, "sh") for line in block.splitlines()]
    script = "\n".join(["set -e", *map(harmless, lines)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "COMPUTE_LEDGER_"))}
    environment |= {"HOME": str(tmp_path / "home")}
    done = subprocess.run(
        ["bash", "-x", "-c", script],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (desk / "compute-ledger.conf").stat().st_size > 1000
    assert (tmp_path / "home" / "compute-ledger-backup" / "vault.key").is_file()


def harmless(line: str) -> str:
    """`make` would run these tests again, or start a second ledger: of it only that the target is there."""
    words = shlex.split(line, comments=True)
    return shlex.join(["make", "-n", *words[1:]]) if words[:1] == ["make"] else line


def test_the_walk_of_the_readme_goes_from_boot_to_delete() -> None:
    text = "".join(blocks(ROOT / "README.md", "sh"))
    steps = ["make up", "server create", "console log show", "server stop", "server delete"]
    assert sorted(steps, key=text.index) == steps
