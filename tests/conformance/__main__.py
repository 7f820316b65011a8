"""`make conformance`: tempest's compute tests against an embedded ledger, twice, and what became of them.

Those that have to pass are named in `tempest_passes.txt`; of those that Nova passes and that are not there,
`tempest_left_out.txt` says why. `--write` writes the first of them anew. Ends with 1 if one that has to pass did not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance.environment import TEMPEST, Unavailable, programs_of
from tests.conformance.tempest import PASSES, RUNS, Passes, run
from tests.conformance.workspace import Workspace
from tests.support.ledger_process import running_ledger


def main(arguments: list[str]) -> int:
    try:
        programs = programs_of(TEMPEST)
    except Unavailable as unavailable:
        print(f"tempest cannot be had: {unavailable}", file=sys.stderr)
        return 1
    wanted, seen = Passes.read(PASSES), Passes()
    with tempfile.TemporaryDirectory(prefix="conformance-") as place:
        directory = Path(place)
        with running_ledger(directory, driver="fake", hosts=2) as ledger:
            workspace = Workspace(directory / "tempest", programs, ledger)
            for name, (oldest, newest) in RUNS.items():
                workspace.set_versions(oldest, newest)
                results = run(programs, workspace.directory, regex=r"^tempest\.api\.compute")
                ends = [result.end for result in results.values()]
                print(f"{name}: {ends.count('ok')} pass, {ends.count('FAILED')} fail, {ends.count('SKIPPED')} skip")
                for one, result in sorted(results.items()):
                    if result.end == "FAILED" or (result.end != "ok" and one in wanted.of(name)):
                        print(f"  {result.end} {one}: {result.last_line}")
                seen.add(name, (one for one, result in results.items() if result.end == "ok"))
    if "--write" in arguments:
        seen.write(PASSES)
    missed = [f"{name} {one}" for name in RUNS for one in sorted(wanted.of(name) - seen.of(name))]
    print("\n".join(f"must pass, and did not: {one}" for one in missed) or "all that have to pass do")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
