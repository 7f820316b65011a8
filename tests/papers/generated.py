"""The parts of the documents that are made from the code. `python -m tests.papers.generated` writes them anew.

A part stands between `<!-- made: NAME -->` and `<!-- end -->`; `test_generated.py` tells when one is out of date.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from commands import metrics
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import layout
from gateway.embedded import Embedded
from gateway.faces import handlers
from gateway.operations import Operation, operations_and_rules
from gateway.options import Options
from gateway.settings_table import DEFAULT, options
from gateway.surface import Surface
from tests.papers.asyncapi import A_HOST, TOPICS

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


def metrics_table() -> str:
    lines = ["| metric | labels | |", "| --- | --- | --- |"]
    for name, labels, said in (*counted(), *looked_at()):
        lines.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {said} |")
    return "\n".join(lines)


def counted() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (shown,) = metric.describe()
            suffix = "_total" if shown.type == "counter" else ""
            yield f"{shown.name}{suffix}", metric._labelnames, shown.documentation


def looked_at() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The gauges of `gateway/metrics.py`, which are there only while something is to be told."""
    for node in ast.walk(ast.parse((ROOT / "gateway" / "metrics.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "gauge":
            name, said, *labels = (ast.literal_eval(argument) for argument in node.args)
            yield f"compute_ledger_{name}", tuple(labels), said


def topics_table() -> str:
    lines = ["| topic | partitions | what is kept |", "| --- | --- | --- |"]
    for topic in TOPICS:
        laid_out = layout(topic, KafkaOptions(bootstrap=""))
        shown = A_HOST[topic]("SERVICE") if topic in A_HOST else topic  # type: ignore[arg-type]
        lines.append(f"| `{shown}` | {laid_out.partitions} | {kept(laid_out.settings)} |")
    return "\n".join(lines)


def kept(settings: Mapping[str, str]) -> str:
    if settings["cleanup.policy"] == "compact":
        lag_ms = int(settings["min.compaction.lag.ms"])
        older = f", and what is not older than {duration(lag_ms)}" if lag_ms else ""
        return f"the newest of each key{older}; that a key is gone, {duration(int(settings['delete.retention.ms']))}"
    retention_ms = int(settings["retention.ms"])
    return "everything, for ever" if retention_ms < 0 else f"everything, {duration(retention_ms)}"


def duration(ms: int) -> str:
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if ms >= length and ms % length == 0:
            return f"{ms // length} {unit}{'s' if ms > length else ''}"
    raise ValueError(f"{ms} ms")


def parts() -> dict[str, Mapping[str, Callable[[], str]]]:
    """By document, what is made in it."""
    served = surface()
    return {
        "docs/compute-api.md": {
            "built": lambda: built(served),
            "not built": lambda: unbuilt(served),
            "not built, older": lambda: unbuilt_older(served),
        },
        "docs/operations.md": {"metrics": metrics_table, "topics": topics_table},
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
