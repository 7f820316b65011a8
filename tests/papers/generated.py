"""The parts of the documents that are made from the code. `python -m tests.papers.generated` writes them anew.

A part stands between `<!-- made: NAME -->` and `<!-- end -->`; `test_generated.py` tells when one is out of date.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gateway.embedded import Embedded
from gateway.faces import handlers
from gateway.operations import Operation, operations_and_rules
from gateway.options import Options
from gateway.settings import DEFAULT, options
from gateway.surface import Surface

ROOT = Path(__file__).parents[2]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def surface() -> Surface:
    """The Compute API as an embedded ledger serves it."""
    with tempfile.TemporaryDirectory() as directory:
        ledger = Embedded(Options(directory=Path(directory), url="http://127.0.0.1:8774"))
        ledger.start()
        try:
            return Surface(operations_and_rules()[0], handlers(ledger))
        finally:
            ledger.stop()


def built(served: Surface) -> str:
    missing = set(map(str, served.unbuilt()))
    gone = {str(one) for one in served.operations if one.kind == "removed_410"}
    return operations_table(one for one in served.operations if str(one) not in missing | gone)


def unbuilt(served: Surface) -> str:
    return operations_table(one for one in served.unbuilt() if one.newest is None)


def unbuilt_older(served: Surface) -> str:
    return operations_table(one for one in served.unbuilt() if one.newest is not None)


def operations_table(operations: Iterable[Operation]) -> str:
    """A row for each path: its methods, and the actions of a path that takes actions."""
    rows: dict[str, dict[str, list[str]]] = {}
    for one in operations:
        actions = rows.setdefault(one.path, {}).setdefault(one.method, [])
        if one.action:
            actions.append(f"`{one.action}`")
    lines = ["| path | methods |", "| --- | --- |"]
    for path, methods in sorted(rows.items()):
        said = [
            f"{method}: {', '.join(sorted(methods[method]))}" if methods[method] else method
            for method in METHODS
            if method in methods
        ]
        lines.append(f"| `{path}` | {'; '.join(said)} |")
    return "\n".join(lines)


def settings_tables() -> str:
    parts = []
    for section, opts in options().items():
        rows = [f"### [{section}]", "", "| option | default | |", "| --- | --- | --- |"]
        rows += [f"| `{opt.name}` | {default_of(opt)} | {described(opt)} |" for opt in opts]
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def default_of(opt: Any) -> str:
    if opt.default is None:
        return "unset"
    return f"`{str(opt.default).lower() if isinstance(opt.default, bool) else opt.default}`"


def described(opt: Any) -> str:
    said = [str(opt.help)]
    if getattr(opt.type, "choices", None):
        said.append(f"One of: {', '.join(f'`{choice}`' for choice in opt.type.choices)}.")
    for older in opt.deprecated_opts:
        section = f"[{older.group}] " if older.group != DEFAULT else "[DEFAULT] "
        said.append(f"Also understood as `{section}{older.name}`.")
    return " ".join(said)


def parts() -> dict[str, Mapping[str, Callable[[], str]]]:
    """By document, what is made in it."""
    served = surface()
    return {
        "docs/operations.md": {
            "built": lambda: built(served),
            "not built": lambda: unbuilt(served),
            "not built, older": lambda: unbuilt_older(served),
        },
        "docs/configuration.md": {"options": settings_tables},
    }


def filled(text: str, made: Mapping[str, Callable[[], str]]) -> str:
    for name, make in made.items():
        start = f"<!-- made: {name} -->\n"
        pattern = re.compile(re.escape(start) + ".*?(?=<!-- end -->)", re.DOTALL)
        places = list(pattern.finditer(text))
        if len(places) != 1:
            raise ValueError(f"{len(places)} places for {name!r}")
        text = f"{text[: places[0].start()]}{start}\n{make()}\n\n{text[places[0].end() :]}"
    return text


def main() -> None:
    for name, made in parts().items():
        path = ROOT / name
        path.write_text(filled(path.read_text(), made))


if __name__ == "__main__":
    main()
