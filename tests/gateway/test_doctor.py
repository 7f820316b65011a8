"""What `compute-ledger doctor` says of a distributed ledger that is not as it should be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from commands.assembly import open_shared_storage
from commands.log import kafka_inspection
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import HEARTBEATS, INSTANCES, REPORTS, orders_topic, queries_topic
from commands.log.relay import TOPICS
from commands.postgresql_inspection import Process, StoreSeen, ahead_of_store_s, look
from commands.postgresql_sessions import advisory_key, connect
from commands.postgresql_store import RELATIONS, PostgreSQLEventStore
from domain.identifiers import HostName, ServiceId
from gateway import doctor
from gateway.doctor import Found
from gateway.doctor_distributed import SEATS, _host, _kafka, _roles, _store, _views, brokers, examine
from gateway.enrollment import ListedHost
from gateway.options import StoreOptions
from projections.catalogue import projections
from projections.views import Views
from tests.support.kafka import shared_kafka, topics_made_anew
from tests.support.ledger import Ledger
from tests.support.postgresql import database, postgresql

__all__ = ["database", "postgresql"]

NOWHERE = KafkaOptions(bootstrap="127.0.0.1:1")
MANAGERS = Process("compute-ledger managers/11", "192.0.2.1")
ALIKE = Process("compute-ledger managers/11", "192.0.2.3")
INBOX = Process("compute-ledger gateway,inbox/12", "192.0.2.2")
WELL = StoreSeen(
    version=150_004,
    missing=(),
    ahead_s=0.1,
    processes=(MANAGERS, INBOX, ALIKE),
    seats={"build": MANAGERS, "orders": MANAGERS, "deadlines": MANAGERS, "inbox": INBOX},
    head=70,
    positions={"build": 60, "inbox/a": 3},
)
TOPIC = kafka_inspection.TopicSeen(id="a", replicas=1, differences=(), end=5)
SEEN = kafka_inspection.KafkaSeen(brokers=1, topics=dict.fromkeys(TOPICS, TOPIC), published=68, beats={})


def told(findings: object) -> dict[str, tuple[str, int]]:
    assert not isinstance(findings, Found)
    return {found.what: (found.said, found.weight) for found in findings}  # type: ignore[attr-defined]


def test_of_each_role_and_seat_it_is_told_who_has_it_and_how_far_it_has_come() -> None:
    found = told(_roles(WELL, SEEN))

    assert found["role managers"] == ("pid 11 at 192.0.2.1, pid 11 at 192.0.2.3", 0)
    assert found["role gateway"] == ("pid 12 at 192.0.2.2", 0)
    assert found["role relay"] == ("nobody plays it; start one with --role relay", 2)
    assert found["seat build"] == (
        "pid 11 at 192.0.2.1 is active; whoever takes over reads again from what follows position 60, which is no lag",
        0,
    )
    assert found["seat inbox"] == ("pid 12 at 192.0.2.2 is active; 2 reports wait", 0)
    assert found["seat relay"] == ("nobody is active; processes with --role relay are; 2 events are to be published", 2)


def test_a_topic_that_is_missing_or_kept_otherwise_is_named() -> None:
    host = ListedHost(
        host=HostName("one"), service_id=ServiceId(uuid4()), key="enrolled", state="up", since=None, epoch=1
    )
    wrong = replace(TOPIC, differences=("6 partitions, not 1",))
    topics = {**SEEN.topics, REPORTS: wrong, orders_topic(host.service_id): TOPIC}

    found = told(_kafka(replace(SEEN, topics=topics), replace(NOWHERE, replication_factor=2), [host]))

    assert found["kafka"] == ("1 brokers answer, 2 copies are wanted", 2)
    assert found[f"topic {REPORTS}"][0].startswith("6 partitions, not 1, 1 copies, not 2; delete it, and the relay")
    assert found[f"topic {queries_topic(host.service_id)}"] == ("is not there; the orders manager makes it", 2)
    assert "topics" not in found
    assert told(_kafka(SEEN, NOWHERE, []))["topics"][1] == 0


def test_without_the_store_the_topics_of_hosts_are_said_not_to_be_looked_at(tmp_path: Path) -> None:
    assert "topics of hosts" not in told(_kafka(SEEN, NOWHERE, []))
    store = StoreOptions(url="postgresql://ledger@127.0.0.1:1/ledger", vault_key_file=tmp_path / "vault.key")

    found = told(examine(tmp_path, store, KafkaOptions(bootstrap=shared_kafka().bootstrap)))

    assert found["store"][1] == 2
    assert found["topics of hosts"] == ("not looked at: which hosts there are, only the store tells", 1)


@pytest.mark.parametrize(
    ("holds", "said"),
    [
        ("", "no ledger in it yet"),
        ("ledger.db", "an embedded ledger"),
        ("journal.db", "of a host's agent"),
        ("vault.key", "of roles of a distributed ledger"),
    ],
)
def test_what_a_directory_is_of_is_told(tmp_path: Path, holds: str, said: str) -> None:
    if holds:
        (tmp_path / holds).touch()

    assert f" GiB free, {said}" in told(doctor.examine(tmp_path))["data"][0]


@pytest.mark.parametrize(
    ("state", "heard_s_ago", "weight"),
    [("up", 5, 0), ("up", 300, 1), ("up", None, 1), ("down", 5, 1), ("never seen", None, 1)],
)
def test_a_host_that_is_not_heard_of_is_noted(state: str, heard_s_ago: int | None, weight: int) -> None:
    service_id, now = ServiceId(uuid4()), datetime.now(UTC)
    since = None if state == "never seen" else now
    host = ListedHost(host=HostName("one"), service_id=service_id, key="enrolled", state=state, since=since, epoch=3)
    beats = {} if heard_s_ago is None else {str(service_id): now - timedelta(seconds=heard_s_ago)}

    assert _host(host, replace(SEEN, beats=beats)).weight == weight

    revoked = _host(replace(host, key="revoked"), replace(SEEN, beats=beats))
    assert revoked.weight == int(heard_s_ago == 5)
    assert ("its agent runs on" in revoked.said) == (heard_s_ago == 5)


def test_clocks_that_differ_are_a_failure() -> None:
    assert told(_store(WELL))["clock"][1] == 0
    said, weight = told(_store(replace(WELL, ahead_s=7200.0)))["clock"]
    assert (said, weight) == (
        "this machine's clock is 7200 s ahead of the store's; events are recorded with a wrong time",
        2,
    )
    assert "9 s behind" in told(_store(replace(WELL, ahead_s=-9.0)))["clock"][0]


def test_how_far_the_clocks_are_apart_is_measured(database: str) -> None:
    assert abs(ahead_of_store_s(database, "compute-ledger test/1")) < 5
    hours_ahead = ahead_of_store_s(database, "compute-ledger test/1", lambda: datetime.now(UTC) + timedelta(hours=2))
    assert 7195 < hours_ahead < 7205


def test_an_empty_database_is_told_of_and_stays_empty(database: str, tmp_path: Path) -> None:
    store = StoreOptions(url=database, vault_key_file=tmp_path / "vault.key")

    found = told(examine(tmp_path, store, NOWHERE))

    assert found["store"][1] == 0
    assert found["tables"][1] == 2
    assert found["kafka"][1] == 2
    assert set(look(database, "compute-ledger test/1", []).missing) == set(RELATIONS)


def test_a_ledger_without_its_key_is_told_of(database: str, tmp_path: Path) -> None:
    key = tmp_path / "vault.key"
    open_shared_storage(database, key, "compute-ledger test/1").close()
    key.unlink()
    store = StoreOptions(url=database, vault_key_file=key)

    said, weight = told(examine(tmp_path, store, NOWHERE))["vault key"]

    assert weight == 2
    assert "vault.key" in said
    assert not key.exists()


def test_tables_alone_are_no_ledger(database: str, tmp_path: Path) -> None:
    PostgreSQLEventStore(database).close()

    found = told(examine(tmp_path, StoreOptions(url=database, vault_key_file=tmp_path / "vault.key"), NOWHERE))

    assert found["ledger"] == ("the store holds no ledger yet; the first process that starts begins it", 2)
    assert "vault key" not in found


def test_who_holds_a_seat_is_seen(database: str) -> None:
    PostgreSQLEventStore(database).close()
    with connect(database, "compute-ledger relay/7") as session:
        session.execute("SELECT pg_advisory_lock(%s)", (advisory_key("election/relay"),))
        seen = look(database, "compute-ledger test/1", list(SEATS))

    assert seen.seats == {"relay": Process("compute-ledger relay/7", "127.0.0.1")}
    assert seen.seats["relay"] in seen.processes


def test_how_kafka_keeps_a_topic_is_compared(tmp_path: Path) -> None:
    options = KafkaOptions(bootstrap=shared_kafka().bootstrap)
    topics_made_anew(replace(options, event_partitions=3, min_insync_replicas=1), [INSTANCES, HEARTBEATS])
    topics = Topics(replace(options, ledger_retention_s=60))
    topics.ensure(["ledger"])
    topics.close()

    seen = kafka_inspection.look(options, [INSTANCES, HEARTBEATS, "ledger", REPORTS])

    assert seen.topics.keys() == {INSTANCES, HEARTBEATS, "ledger"}
    assert seen.topics[INSTANCES].differences == ("3 partitions, not 6",)
    assert seen.topics["ledger"].differences == ("retention.ms is 60000, not -1",)
    assert seen.topics[HEARTBEATS].differences == ()
    assert (seen.published, seen.beats, seen.topics["ledger"].replicas) == (0, {}, 1)


def test_a_host_without_the_store_sees_whether_kafka_answers() -> None:
    assert told(brokers(KafkaOptions(bootstrap=shared_kafka().bootstrap)))["kafka"] == ("1 brokers answer", 0)
    said, weight = told(brokers(NOWHERE))["kafka"]
    assert said.startswith("does not answer: ")
    assert weight == 2


def test_views_that_nobody_keeps_are_told_of(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "views" / "1" / "views.db"
    path.parent.mkdir(parents=True)
    views = Views(path, ledger.log, projections())
    while views.step():
        pass
    head = views.position + 3

    (found,) = _views(tmp_path / "views", head)

    assert found.said.startswith("3 events behind, and no process keeps them")
    assert found.weight == 1
    views.close()


def test_a_directory_that_is_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = {one.what: one for one in doctor.examine(file)}
    assert (found["data"].said, found["data"].weight) == (f"{file} is not a directory", 2)
