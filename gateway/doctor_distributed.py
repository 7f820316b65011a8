"""`compute-ledger doctor` of a distributed ledger: store, seats, Kafka, hosts, and the views on this machine."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from commands.assembly import open_shared_storage
from commands.event_store import StoreUnavailable
from commands.inbox import Inbox
from commands.log.port import REPORTS, LogUnavailable, orders_topic, queries_topic
from commands.vault import NotBegun, VaultDamaged
from gateway import enrollment
from gateway.clocks import FAR_APART_S, apart
from gateway.distributed import CONSUMERS
from gateway.doctor import Found
from gateway.enrollment import ListedHost
from gateway.options import StoreOptions
from gateway.roles import Role
from gateway.view_reader import FAR_BEHIND, position_of_views

if TYPE_CHECKING:
    from commands.log.kafka_inspection import KafkaSeen
    from commands.log.kafka_options import KafkaOptions
    from commands.postgresql_inspection import Process, StoreSeen

SILENT_S = 60.0  # without a heartbeat
SEATS = {name: role for role, names in CONSUMERS.items() for name in names}
RELAY, *_ = CONSUMERS[Role.RELAY]


def examine(data: Path, store: StoreOptions, kafka: KafkaOptions) -> Iterator[Found]:
    from commands.postgresql_inspection import look

    name = f"compute-ledger doctor/{os.getpid()}"
    seen: StoreSeen | None = None
    hosts: list[ListedHost] | None = None  # not known
    try:
        seen = look(store.url, name, list(SEATS))
        yield from _store(seen)
        if not seen.missing:
            with closing(open_shared_storage(store.url, store.vault_key_file, name, with_writer=False)) as storage:
                yield Found("vault key", f"{store.vault_key_file} opens what is sealed")
                hosts = list(enrollment.hosts(storage))
    except StoreUnavailable as error:
        yield Found("store", f"does not answer: {_one_line(error)}", 2)
    except NotBegun as error:
        yield Found("ledger", str(error), 2)
    except VaultDamaged as error:
        yield Found("vault key", _one_line(error), 2)
    topics: KafkaSeen | None = None
    try:
        topics = _look_at_kafka(kafka, hosts or [])
        yield from _kafka(topics, kafka, hosts)
    except LogUnavailable as error:
        yield Found("kafka", f"does not answer: {_one_line(error)}", 2)
    if seen is not None and not seen.missing:
        yield from _roles(seen, topics)
        yield from (_host(host, topics) for host in hosts or ())
        yield from _views(data / "views", seen.head)


def brokers(kafka: KafkaOptions) -> Iterator[Found]:
    """Of Kafka, what every user of it may see."""
    from commands.log.kafka_inspection import look

    try:
        yield _answering(look(kafka, []), kafka)
    except LogUnavailable as error:
        yield Found("kafka", f"does not answer: {_one_line(error)}", 2)


def _store(seen: StoreSeen) -> Iterator[Found]:
    from commands.postgresql_inspection import OLDEST

    number = f"{seen.version // 10_000}.{seen.version % 10_000}"
    if seen.version < OLDEST:
        yield Found("store", f"PostgreSQL {number}; it has to be {OLDEST // 10_000} or newer", 2)
    else:
        yield Found("store", f"PostgreSQL {number}, {seen.head} is the newest position")
    if seen.missing:
        yield Found("tables", f"missing: {', '.join(sorted(seen.missing))}; the first role that starts makes them", 2)
    else:
        yield Found("tables", "all are there")
    said = apart(seen.ahead_s)
    yield Found("clock", said or f"within {FAR_APART_S:g} s of the store's", 2 if said else 0)


def _roles(seen: StoreSeen, topics: KafkaSeen | None) -> Iterator[Found]:
    """What plays each role, by the sessions in the store, and how far its consumers have come."""
    playing: dict[str, list[str]] = {}
    for process in sorted(seen.processes):
        for role in process.name.removeprefix("compute-ledger ").partition("/")[0].split(","):
            playing.setdefault(role, []).append(_place(process))
    for role in Role:
        if role is not Role.AGENT:
            found = playing.get(role, [])
            said = ", ".join(found) if found else f"nobody plays it; start one with --role {role}"
            yield Found(f"role {role}", said, 0 if found else 2)
    for seat, role in SEATS.items():
        holder, progress = seen.seats.get(seat), _progress(seat, seen, topics)
        if holder is None:
            yield Found(f"seat {seat}", f"nobody is active; processes with --role {role} are; {progress}", 2)
        else:
            yield Found(f"seat {seat}", f"{_place(holder)} is active; {progress}")


def _place(process: Process) -> str:
    return f"pid {process.name.rpartition('/')[2]} at {process.address}"


def _progress(seat: str, seen: StoreSeen, topics: KafkaSeen | None) -> str:
    if seat == Inbox.name:
        reports = None if topics is None else topics.topics.get(REPORTS)
        if reports is None:
            return "it is not known how many reports wait"
        return f"{max(0, reports.end - seen.positions.get(f'{seat}/{reports.id}', 0))} reports wait"
    if seat == RELAY:
        if topics is None or topics.published is None:
            return "it is not known how many events are to be published"
        return f"{max(0, seen.head - topics.published)} events are to be published"
    kept = seen.positions.get(seat, 0)
    return f"whoever takes over reads again from what follows position {kept}, which is no lag"


def _look_at_kafka(options: KafkaOptions, hosts: list[ListedHost]) -> KafkaSeen:
    from commands.log.kafka_inspection import look
    from commands.log.relay import TOPICS

    return look(options, [*TOPICS, *_topics_of(hosts)])


def _topics_of(hosts: list[ListedHost]) -> list[str]:
    enrolled = [host for host in hosts if host.key == "enrolled"]
    return [name for host in enrolled for name in (orders_topic(host.service_id), queries_topic(host.service_id))]


def _answering(seen: KafkaSeen, options: KafkaOptions) -> Found:
    few = seen.brokers < options.replication_factor
    said = f"{seen.brokers} brokers answer" + (f", {options.replication_factor} copies are wanted" if few else "")
    return Found("kafka", said, 2 if few else 0)


def _kafka(seen: KafkaSeen, options: KafkaOptions, hosts: list[ListedHost] | None) -> Iterator[Found]:
    from commands.log.relay import TOPICS

    yield _answering(seen, options)
    wrong = 0
    for names, maker in ((TOPICS, "the relay"), (_topics_of(hosts or []), "the orders manager")):
        for name in names:
            topic = seen.topics.get(name)
            if topic is None:
                wrong += 1
                yield Found(f"topic {name}", f"is not there; {maker} makes it", 2)
                continue
            found = list(topic.differences)
            if topic.replicas < options.replication_factor:
                found.append(f"{topic.replicas} copies, not {options.replication_factor}")
            if found:
                wrong += 1
                yield Found(f"topic {name}", f"{', '.join(found)}; delete it, and {maker} makes it as it should be", 2)
    if not wrong:
        yield Found("topics", f"all {len(seen.topics)} that were looked at are there, and are kept as they should be")
    if hosts is None:
        yield Found("topics of hosts", "not looked at: which hosts there are, only the store tells", 1)


def _host(host: ListedHost, topics: KafkaSeen | None) -> Found:
    since = "" if host.since is None else f" since {host.since:%Y-%m-%dT%H:%M:%SZ}"
    said = f"{host.key}, {host.state}{since}, epoch {host.epoch}, service {host.service_id}"
    if topics is None:
        return Found(f"host {host.host}", said, int(host.key == "enrolled" and host.state != "up"))
    beat = topics.beats.get(str(host.service_id))
    silent = beat is None or datetime.now(UTC) - beat > timedelta(seconds=SILENT_S)
    said += ", said nothing lately" if beat is None else f", heard last at {beat:%Y-%m-%dT%H:%M:%SZ}"
    if host.key == "revoked":
        said += "" if silent else "; its agent runs on, and what it says is refused: stop it"
        return Found(f"host {host.host}", said, int(not silent))
    return Found(f"host {host.host}", said, int(host.state != "up" or silent))


def _views(directory: Path, head: int) -> Iterator[Found]:
    """Those of this machine; none where the directory is another's."""
    for path in sorted(directory.glob("*/views.db")):
        what = f"views {path.parent.name}"
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                behind = max(0, head - position_of_views(database))
        except sqlite3.Error as error:
            yield Found(what, f"{path} cannot be read: {error}", 2)
            continue
        if not _is_kept(path.with_name("lock")):
            yield Found(
                what, f"{behind} events behind, and no process keeps them; start one with --role projections", 1
            )
        else:
            yield Found(what, f"{behind} events behind", 2 if behind > FAR_BEHIND else 0)


def _is_kept(lock: Path) -> bool:
    """Whether a process holds the lock (`distributed.py::claim_replica`)."""
    try:
        with lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
