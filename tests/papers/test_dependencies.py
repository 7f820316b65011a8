"""pyproject.toml names what is imported, the lock what that leads to, and the wheel holds all of the product."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.papers.repository import ROOT, files

PACKAGES = ("domain", "commands", "projections", "hostagent", "gateway")
BY_NAME = {"httptools", "uvloop"}  # uvicorn imports these, being told so in gateway/up.py
EXTRA_OF = {  # where what an extra brings may be imported
    "hostagent/drivers/libvirt": "libvirt",
    "commands/postgresql_": "distributed",
    "commands/election.py": "distributed",
    "commands/log/kafka_": "distributed",
    "commands/log/relay.py": "distributed",
    "gateway/given.py": "distributed",
}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def canonical(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@cache
def owners() -> Mapping[str, list[str]]:
    """By module, the distributions that have it."""
    return metadata.packages_distributions()


def imported(path: Path) -> set[str]:
    """The distributions that a file imports from."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules.add(node.module.partition(".")[0])
    foreign = modules - sys.stdlib_module_names - {*PACKAGES, "tests", "deploy"}
    return {canonical(owners().get(module, [module])[0]) for module in foreign}


def imports_of(*tops: str) -> dict[str, set[str]]:
    """By distribution, the files that import from it."""
    found: dict[str, set[str]] = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        if path.suffix == ".py" and name.startswith(tuple(f"{top}/" for top in tops)):
            for distribution in imported(path):
                found.setdefault(distribution, set()).add(name)
    return found


def test_what_the_product_imports_it_depends_on_and_nothing_more() -> None:
    always = {canonical(one) for one in project()["dependencies"]}
    needed = set(BY_NAME)
    for distribution, importers in imports_of(*PACKAGES).items():
        if not all(distribution in offered_at(name) for name in importers):
            needed.add(distribution)
    assert needed == always


def offered_at(file: str) -> set[str]:
    """What the extra brings whose place this file is."""
    extras = project()["optional-dependencies"]
    return {canonical(one) for place, extra in EXTRA_OF.items() if file.startswith(place) for one in extras[extra]}


def test_an_embedded_ledger_does_without_the_extras() -> None:
    program = (
        "import sys\n"
        "for name in ('psycopg', 'kafka', 'libvirt'): sys.modules[name] = None\n"
        "import gateway.cli, gateway.up, gateway.embedded, gateway.faces, gateway.inspection, gateway.enrollment"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=ROOT)


def test_what_tests_and_deploy_import_is_in_the_extras() -> None:
    extras = project()["optional-dependencies"]
    used = (*project()["dependencies"], *extras["test"], *extras["libvirt"], *extras["distributed"])
    offered = {canonical(one) for one in used}
    elsewhere = {"nova"}  # tests/conformance/nova_schemas.py runs in an environment of its own
    assert set(imports_of("tests", "deploy")) - offered == elsewhere


def test_the_lock_has_one_version_of_everything_that_is_installed_here() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    locked = {canonical(line): line.partition("==")[2] for line in lines}
    assert len(locked) == len(lines)
    assert closure() - set(locked) == set(), "make lock"
    assert {name: metadata.version(name) for name in closure()} == {name: locked[name] for name in closure()}


def closure() -> set[str]:
    """What is installed of what pyproject.toml leads to, without the extras that are not used yet."""
    extras = project()["optional-dependencies"]
    waiting = {named(one) for one in [*project()["dependencies"], *extras["test"], *extras["distributed"]]}
    found: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, asked = one = waiting.pop()
        found.add(one)
        for requirement in metadata.requires(name) or []:
            extra = re.search(r"extra == [\"'](.+?)[\"']", requirement)
            if (extra is None or extra[1] in asked) and is_installed(canonical(requirement)):
                waiting |= {named(requirement)} - found
    return {name for name, _ in found}


def named(requirement: str) -> tuple[str, frozenset[str]]:
    """The distribution that a requirement names, and the extras of it that it asks for."""
    asked = re.match(r"[A-Za-z0-9._-]+\s*\[([^\]]*)\]", requirement)
    return canonical(requirement), frozenset(asked[1].replace(" ", "").split(",") if asked else ())


def is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_the_wheel_holds_every_module_and_the_data_and_its_command_runs(tmp_path: Path) -> None:
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(wheels),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, timeout=300)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    wanted = {str(path.relative_to(ROOT)) for path in files() if path.relative_to(ROOT).parts[0] in PACKAGES}
    assert wanted - held == set()
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); import gateway.cli as c; print(c.__file__)"
    )
    shown = subprocess.run(
        [sys.executable, "-I", "-c", f"{program}; sys.argv = ['compute-ledger', '--help']; c.main()"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    ).stdout
    assert shown.startswith(str(tmp_path / "installed"))
    assert "Usage: compute-ledger" in shown
