"""The files of this repository, as the tests of the papers read them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from gateway.cli import app

ROOT = Path(__file__).parents[2]
CACHES = {"build", "dist"}


@cache
def files() -> tuple[Path, ...]:
    """What git has, or would add; without git, all but what is hidden or made."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
        return tuple(path for name in names if name and (path := ROOT / name).is_file())
    return tuple(path for path in ROOT.rglob("*") if path.is_file() and not made(path.relative_to(ROOT)))


def made(path: Path) -> bool:
    return any(part.startswith(".") or part in CACHES or part.endswith(".egg-info") for part in path.parts)


def texts() -> Iterator[tuple[str, str]]:
    """The name and the text of each file that is text."""
    for path in files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # another test's, already gone
            continue


def documents() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks that are marked so."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


def command_of(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """Which subcommand these are for, and what it makes of them; fails as `compute-ledger` would, and runs nothing."""
    command: Any = get_command(app)
    verbs = []
    while hasattr(command, "commands"):
        verb, *arguments = arguments
        verbs.append(verb)
        command = command.commands[verb]
    return " ".join(verbs), command.make_context(verb, list(arguments)).params
