"""Looking at a ledger from the command line: list and follow its events, check it, rebuild its views."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from commands.assembly import Storage
from commands.records import RecordDamaged
from domain.recorded import RecordedEvent
from domain.serialization import UnknownEventType, to_plain
from projections.catalogue import VIEWS
from projections.rebuild import UnknownView
from projections.rebuild import rebuild as rebuild_one

BATCH = 1000
POLL_S = 0.2


def events(
    storage: Storage[Any], *, after: int = 0, instance: str | None = None, limit: int = 1000, follow: bool = False
) -> Iterator[str]:
    """Recorded events as lines of JSON, oldest first."""
    shown = 0
    while True:
        stored = storage.store.read(after, BATCH)
        for raw in stored:
            after = raw.position
            if instance is not None and not _about(raw.stream, raw.state, instance):
                continue
            yield line_of(storage.records.decode(raw))
            shown += 1
            if shown >= limit and not follow:
                return
        if not stored:
            if not follow:
                return
            time.sleep(POLL_S)


def _about(stream: str, state: bytes, instance: str) -> bool:
    return stream == f"instance:{instance}" or instance.encode() in state


def line_of(record: RecordedEvent) -> str:
    body: dict[str, Any] = {
        "position": record.position,
        "time": record.time,
        "type": record.type,
        "stream": record.stream,
        "version": record.version,
        "request_id": record.cause.request_id,
        "user_id": record.cause.user_id,
        "project_id": record.cause.project_id,
        "causation": record.cause.causation,
        "event": to_plain(record.event),
    }
    return orjson.dumps(body).decode()


def verify(storage: Storage[Any]) -> tuple[int, list[str]]:
    """How many records were checked, and what is wrong with them, a line each."""
    wrong: list[str] = []
    versions: dict[str, int] = {}
    last_position, last_time, checked = 0, None, 0
    while stored := storage.store.read(last_position, BATCH):
        for raw in stored:
            checked += 1
            where = f"position {raw.position} ({raw.stream}, {raw.wire_name})"
            if raw.position <= last_position:
                wrong.append(f"{where}: out of order after {last_position}")
            expected = versions.get(raw.stream, 0) + 1
            if raw.version != expected:
                wrong.append(f"{where}: version {raw.version} of its stream, {expected} was due")
            versions[raw.stream] = raw.version
            last_position = raw.position
            try:
                recorded: datetime = storage.records.decode(raw).time
            except (RecordDamaged, UnknownEventType) as error:
                wrong.append(f"{where}: {error}")
                continue
            if last_time is not None and recorded < last_time:
                wrong.append(f"{where}: its time {recorded} is before {last_time}")
            last_time = recorded
    return checked, wrong


def view_files(directory: Path) -> list[Path]:
    """The views kept under a directory: an embedded ledger's, or those of each projections process."""
    return [path for path in (directory / "views.db", *sorted(directory.glob("views/*/views.db"))) if path.exists()]


def rebuild(directory: Path, storage: Storage[Any], name: str) -> Iterator[tuple[str, int, float]]:
    """Rebuild one view, or `all`, in every file that has it; yields each one's name, events and seconds.

    Raises:
        UnknownView
    """
    if name != "all" and name not in VIEWS:
        raise UnknownView(f"there is no projection {name!r}; there are {', '.join(VIEWS)}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        files = view_files(directory) or [directory / "views.db"]
        each_of = [(path, each) for path in files for each in (VIEWS if name == "all" else (name,))]
        for path, each in each_of:
            task = bar.add_task(each)
            started = time.perf_counter()

            def show(done: int, of: int, task: Any = task) -> None:
                bar.update(task, completed=done, total=of)

            applied = rebuild_one(path, storage.log, VIEWS[each](), show)
            yield each, applied, time.perf_counter() - started
