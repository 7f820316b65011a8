"""Measures how many commands a second the store takes, from 1, 2 and 4 processes that write at once. Asserts nothing.

    python -m tests.benchmarks.appends [--seconds 4] [--writers 1,2,4]

Each command sets a project's quota, which is one event: of one project that all share, or of a new one each. Every flush is
a transaction that waits for the disk. SQLite has one writing process, so it is measured with one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import monotonic
from uuid import uuid4

from commands.appender import Appender
from commands.assembly import utc_now
from commands.command import Accepted, Ask, Unit
from commands.decisions import decisions
from commands.event_store import EventStore, StoreUnavailable
from commands.quota import SetQuotaLimits
from commands.sqlite_store import SQLiteEventStore
from commands.vault import Vault
from domain.identifiers import ProjectId, RequestId, UserId
from domain.quota import DEFAULT_LIMITS
from domain.recorded import Cause
from tests.benchmarks.table import Table, load, machine, positive
from tests.support.postgresql import new_database, new_server

KEY = b"k" * 32
START_LIMIT_S = 60.0
END_LIMIT_S = 60.0
ONE, MANY = "one stream", "many streams"
CASES = tuple((streams, batch) for streams in (ONE, MANY) for batch in (64, 1))
HOW = "committed commands/s (the longest flush); {seconds} s each; every commit waits for the disk, {disk}"


@dataclass(frozen=True, slots=True)
class Written:
    commands: int
    failed: int  # flushes
    longest_s: float


def write(url: str, streams: str, batch: int, seconds: float, together: Barrier, told: Queue[Written]) -> None:
    """What one process does."""
    appender = _appender(url)
    units = _units(streams)
    commands = failed = 0
    longest = 0.0
    together.wait(START_LIMIT_S)
    began = monotonic()
    while (now := monotonic()) - began < seconds:
        flush = [next(units) for _ in range(batch)]
        try:
            results = appender.flush(flush)
        except StoreUnavailable:
            failed += 1
        else:
            assert all(isinstance(result.outcomes[0], Accepted) for result in results)
            commands += batch
        longest = max(longest, monotonic() - now)
    told.put(Written(commands, failed, longest))


def _appender(url: str) -> Appender:
    store: EventStore
    if url.startswith("postgresql"):
        from commands.postgresql_store import PostgreSQLEventStore

        store = PostgreSQLEventStore(url)
    else:
        store = SQLiteEventStore(Path(url))
    return Appender(store, Vault(store, KEY), decisions(DEFAULT_LIMITS), utc_now, lambda head, events: None)


def _units(streams: str) -> Iterator[Unit]:
    """Each changes something."""
    for number in count(1):
        command_id = uuid4()
        project = ProjectId("project" if streams == ONE else str(command_id))
        request, user = RequestId(f"req-{command_id}"), UserId("user")
        cause = Cause(command_id=command_id, request_id=request, user_id=user, project_id=project)
        limits = {"cores": command_id.int % 1_000_000 + number}
        yield Unit(asks=(Ask(command=SetQuotaLimits(project_id=project, limits=limits), cause=cause),))


def measure(url: str, writers: int, streams: str, batch: int, seconds: float) -> Sequence[Written]:
    context = multiprocessing.get_context("spawn")
    together, told = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=write, args=(url, streams, batch, seconds, together, told), daemon=True)
        for _ in range(writers)
    ]
    for process in processes:
        process.start()
    try:
        found = [told.get(timeout=START_LIMIT_S + seconds + END_LIMIT_S) for _ in processes]
        for process in processes:
            process.join(END_LIMIT_S)
    finally:
        for process in processes:
            process.kill()
    return found


def in_words(found: Sequence[Written], seconds: float) -> str:
    text = f"{sum(one.commands for one in found) / seconds:,.0f} ({max(one.longest_s for one in found) * 1000:.0f} ms)"
    failed = sum(one.failed for one in found)
    return f"{text}, {failed} failed" if failed else text


def disk(directory: str) -> str:
    """The kind of file system that a directory is on."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return max((place, kind) for place, kind in mounts if Path(directory).is_relative_to(place))[1]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tests.benchmarks.appends", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--seconds", type=positive, default=4, help="that each number takes")
    made.add_argument("--writers", type=lambda text: tuple(map(positive, text.split(","))), default=(1, 2, 4))
    return made


def main() -> None:
    chosen = parser().parse_args()
    load_before = load()
    columns = {case: f"{case[0]}, {case[1]} a flush" for case in CASES}
    table = Table("appended commands/s", list(columns.values()))
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, new_server() as server:
        for name, writers in [("SQLite", 1), *(("PostgreSQL", writers) for writers in chosen.writers)]:
            for (streams, batch), column in columns.items():
                store: AbstractContextManager[str] = nullcontext(f"{directory}/{column}.db")
                if name == "PostgreSQL":
                    store = new_database(server)
                with store as url:
                    found = measure(url, writers, streams, batch, chosen.seconds)
                table.add(column, f"{name}, {writers} writing", in_words(found, chosen.seconds))
        how = HOW.format(seconds=chosen.seconds, disk=disk(directory))
    print(f"\n{table}\n\n{machine()}, load {load_before} before; {how}")


if __name__ == "__main__":
    main()
