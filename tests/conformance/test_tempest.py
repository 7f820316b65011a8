"""Nova's own test suite: its tests that are known to pass still do, at the oldest microversion and at the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.environment import TEMPEST, Unavailable, programs_of
from tests.conformance.tempest import PASSES, RUNS, Passes, run
from tests.conformance.workspace import Workspace
from tests.support.ledger_process import LedgerProcess


@pytest.fixture(scope="module")
def programs() -> Path:
    try:
        return programs_of(TEMPEST)
    except Unavailable as unavailable:
        pytest.skip(f"tempest cannot be had: {unavailable}")


@pytest.fixture(scope="module")
def workspace(programs: Path, furnished: LedgerProcess, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(Path(tmp_path_factory.mktemp("tempest")) / "workspace", programs, furnished)


@pytest.mark.parametrize("name", RUNS)
def test_what_passes_with_nova_passes_here(programs: Path, workspace: Workspace, name: str) -> None:
    wanted = Passes.read(PASSES).of(name)
    assert len(wanted) > 100
    workspace.set_versions(*RUNS[name])

    results = run(programs, workspace.directory, wanted)

    passed = {one for one, result in results.items() if result.end == "ok"}
    told = "\n".join(f"{one}: {result.last_line}" for one, result in results.items() if result.end != "ok")
    assert wanted <= passed, f"{sorted(wanted - passed)}\n{told}"
