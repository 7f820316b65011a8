"""What docs/operations.md and the other papers tell operators to set, to ask and to watch is there."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from gateway.embedded import Embedded
from gateway.options import Options
from gateway.settings_table import options
from tests.papers.generated import counted, looked_at
from tests.papers.repository import ROOT, documents, files
from tests.support.region import RegionLedger

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def test_every_option_that_a_paper_names_exists() -> None:
    known = {name for section, opts in options().items() for opt in opts for name in names_of(section, opt)}
    units = [path for path in files() if path.suffix == ".service"]
    named = {
        (path.name, section, name)
        for path in (*documents(), *units)
        for section, name in re.findall(
            r"\[(\w+)\] ([a-z]\w*_\w+|connection|listen|gateways|credential)\b", path.read_text()
        )
    }
    assert len(named) > 10
    assert [one for one in sorted(named) if one[1:] not in known] == []


def names_of(section: str, opt: Any) -> set[tuple[str, str]]:
    return {(section, opt.dest), *((older.group or section, older.name) for older in opt.deprecated_opts)}


def test_every_metric_that_a_paper_names_exists() -> None:
    known = {name for name, _, _ in (*counted(), *looked_at())}
    named = {name for path in documents() for name in re.findall(r"compute_ledger_\w+", path.read_text())}
    assert named == known


def test_every_check_of_readyz_is_told_of(tmp_path: Path, region: RegionLedger) -> None:
    ledger = Embedded(Options(directory=tmp_path, url="http://127.0.0.1:8774"))
    ledger.start()
    found = {*ledger.alive(), *ledger.readiness()}
    ledger.stop()
    for gateway in region.gateways:
        with urllib.request.urlopen(f"{gateway.url}/readyz", timeout=30) as answer:
            found |= set(json.load(answer)["checks"])
    told = set(re.findall(r"^\| `([\w ]+)` \| `/(?:healthz|readyz)`", OPERATIONS, re.MULTILINE))
    assert told == {"host NAME" if check.startswith("host ") else check for check in found}
