"""Kafka away, its topics deleted, PostgreSQL away, an answer to COMMIT lost: what was accepted is done, once."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import Topics
from commands.log.port import ALLOCATIONS, INSTANCES, LEDGER
from deploy.region import Part, answers
from hostagent.drivers.fake_controls import creates
from tests.support.crowd import SETTLED_WITHIN_S, Cloud, everything_agrees, fake_directories, fake_guests, settled
from tests.support.cutting_proxy import CuttingProxy
from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.region import ROOMY, RegionLedger, running_region

AWAY_S = 30


@pytest.fixture(scope="module")
def ledger() -> Iterator[RegionLedger]:
    with running_region(settings=ROOMY) as started:
        yield started


@pytest.fixture(scope="module")
def cloud(ledger: RegionLedger) -> Cloud:
    with User(ledger, "admin") as admin, User(ledger) as user:
        return Cloud(ledger, 2, lambda: fake_guests(ledger, 2), admin.create_flavor("outage"), user.upload_image())


@pytest.fixture
def at(ledger: RegionLedger) -> Iterator[list[User]]:
    made = [User(ledger, url=gateway.url) for gateway in ledger.gateways]
    yield made
    for user in made:
        user.close()


class Timed:
    """A user who notes how long each answer took, in seconds."""

    def __init__(self, at: list[User], cloud: Cloud) -> None:
        self._at, self._cloud = at, cloud
        self.posts: list[float] = []
        self.gets: list[float] = []
        self.made: list[str] = []

    def create_and_look(self) -> None:
        """One more server; the other gateway shows it, and every one before it, at once."""
        number = len(self.made)
        started = monotonic()
        self.made.append(self._at[number % 2].create_server(self._cloud.image, self._cloud.flavor, f"server-{number}"))
        self.posts.append(monotonic() - started)
        started = monotonic()
        assert self._at[1 - number % 2].server(self.made[-1])["status"] in ("BUILD", "ACTIVE")
        self.gets.append(monotonic() - started)

    def all_listed(self) -> None:
        assert set(self.made) <= {server["id"] for server in self._at[0].servers()}


def test_with_kafka_away_requests_are_answered_as_ever_and_done_when_it_is_back(
    ledger: RegionLedger, cloud: Cloud, at: list[User], record_property: pytest.RecordProperty
) -> None:
    before, during = Timed(at, cloud), Timed(at, cloud)
    for _ in range(50):
        before.create_and_look()
    kafka = ledger.region.kafka
    assert kafka is not None
    kafka.kill()
    since = monotonic()
    while monotonic() - since < AWAY_S:  # so long the outage is to be; nothing is waited for
        during.create_and_look()
    during.all_listed()
    for role in ("projections", "managers", "gateway"):  # who starts now finds its way too
        part = ledger.gateways[1] if role == "gateway" else ledger.part(f"{role}-a")
        part.kill()
        part.start()
    for user, gateway in zip(at, ledger.gateways, strict=True):
        user.http.base_url = gateway.url
    ledger.part("projections-b").kill()  # so that only what started meanwhile keeps views
    for _ in range(20):
        during.create_and_look()
    ledger.part("projections-b").start()
    kafka.restart()

    servers = settled(at[0])
    assert {servers[one] for one in before.made + during.made} == {"ACTIVE"}
    everything_agrees(cloud, at[0], servers)
    for name, timed in (("before", before), ("during", during)):
        record_property(f"{name}: POST, GET p50", (statistics.median(timed.posts), statistics.median(timed.gets)))
    # No request waits for Kafka: its time-outs are of seconds.
    assert statistics.median(during.posts) < 1
    assert statistics.median(during.gets) < 1


def test_topics_that_are_all_deleted_are_filled_again_and_nothing_is_done_twice(
    ledger: RegionLedger, cloud: Cloud, at: list[User]
) -> None:
    options = KafkaOptions(bootstrap=ledger.region.bootstrap)
    topics = Topics(options)
    running = list(settled(at[0]))
    before = topics.names()
    assert {LEDGER, INSTANCES, ALLOCATIONS} < before

    topics.delete([name for name in before if not name.startswith("__")])
    during = [at[n % 2].create_server(cloud.image, cloud.flavor) for n in range(20)]

    servers = settled(at[0])
    assert {servers[one] for one in running + during} == {"ACTIVE"}
    everything_agrees(cloud, at[0], servers)
    eventually(lambda: topics.names() >= before, "every topic is there again", within_s=60)
    recorded = {
        LEDGER: ledger.stored("SELECT notification_id FROM stored_events"),
        INSTANCES: ledger.stored("SELECT notification_id FROM stored_events WHERE originator_id LIKE 'instance:%%'"),
    }
    messages = KafkaMessages(options)
    try:
        eventually(
            lambda: positions_in_ledger(messages) == sorted(position for (position,) in recorded[LEDGER]),
            "the ledger topic holds every event, once, in order",
            within_s=60,
        )
    finally:
        messages.close()
        topics.close()
    at[0].delete_server(during[0])  # and hosts are reached through their new topics
    at[1].wait_until_gone(during[0])


def positions_in_ledger(messages: KafkaMessages) -> list[int]:
    found: list[int] = []
    offset = 0
    while messages.wait(LEDGER, offset, 2):
        records = messages.read(LEDGER, offset, 1000)
        found += [int(dict(record.headers)["position"]) for record in records]
        offset = records[-1].offset
    return found


def test_with_postgresql_away_requests_are_refused_soon_and_all_recovers_by_itself(
    ledger: RegionLedger, cloud: Cloud, at: list[User], record_property: pytest.RecordProperty
) -> None:
    server = at[0].create_server(cloud.image, cloud.flavor)
    at[0].wait_for(server, "ACTIVE")
    started = {part.name: part.pid for part in ledger.region.parts.values()}
    postgresql = ledger.region.postgresql
    assert postgresql is not None
    postgresql.stop()
    took = []
    for user in at:
        for method, path, body in (
            ("GET", f"/servers/{server}", None),
            (
                "POST",
                "/servers",
                {"server": {"name": "x", "imageRef": cloud.image, "flavorRef": cloud.flavor, "networks": "auto"}},
            ),
        ):
            began = monotonic()
            answer = user(method, path, body)
            took.append(monotonic() - began)
            assert answer.status_code == 503, answer.text
            assert "Retry-After" in answer.headers
    record_property("503 after", max(took))
    assert max(took) < 10  # two seconds are meant; a busy machine may take longer to say it
    assert not any(answers(gateway.url) for gateway in ledger.gateways)

    postgresql.start()

    eventually(
        lambda: all(answers(gateway.url) for gateway in ledger.gateways), "both gateways are ready", within_s=120
    )
    again = [user.create_server(cloud.image, cloud.flavor) for user in at]
    servers = settled(at[1])
    assert {servers[one] for one in [server, *again]} == {"ACTIVE"}
    everything_agrees(cloud, at[0], servers)
    assert {part.name: part.pid for part in ledger.region.parts.values()} == started
    assert all(part.running for part in ledger.region.parts.values())


def test_a_frozen_postgresql_is_said_to_be_away_too(ledger: RegionLedger, at: list[User], cloud: Cloud) -> None:
    postgresql = ledger.region.postgresql
    assert postgresql is not None
    with postgresql.paused():
        for user in at:
            began = monotonic()
            assert user("GET", "/servers").status_code == 503
            assert monotonic() - began < 15
    eventually(
        lambda: all(answers(gateway.url) for gateway in ledger.gateways), "both gateways are ready", within_s=120
    )
    server = at[0].create_server(cloud.image, cloud.flavor)
    assert at[1].wait_for(server, "ACTIVE")["id"] == server


def test_a_client_and_the_log_agree_when_the_answer_to_commit_is_lost(ledger: RegionLedger, cloud: Cloud) -> None:
    """A gateway whose connection ends right after COMMIT was sent finds out what came of it."""
    where = conninfo_to_dict(ledger.region.store_url)
    proxy = CuttingProxy(str(where["host"]), int(str(where["port"])))
    through = psycopg.conninfo.make_conninfo(ledger.region.store_url, host="127.0.0.1", port=proxy.port)
    gateway = cut_off_gateway(ledger, url_of(through))
    try:
        with User(ledger, url=gateway.url) as user:
            made = []
            for number in range(10):
                proxy.cut_after = b"; COMMIT"
                made.append(user.create_server(cloud.image, cloud.flavor, f"cut-{number}"))
            assert proxy.cuts == 10
            servers = settled(user)
        assert {servers[one] for one in made} == {"ACTIVE"}
        with User(ledger) as user:
            everything_agrees(cloud, user, servers)
        names = Counter(s["name"] for s in servers_named(ledger, "cut-"))
        assert names == Counter(f"cut-{number}" for number in range(10))
    finally:
        gateway.kill()
        del ledger.region.parts[gateway.name]
        proxy.close()


def cut_off_gateway(ledger: RegionLedger, store: str) -> Part:
    part = ledger.region.add_gateway("gateway-cut")
    part.environment["COMPUTE_LEDGER_STORE"] = store
    return part.start()


def url_of(conninfo: str) -> str:
    parts = conninfo_to_dict(conninfo)
    return f"postgresql://{parts['user']}:{parts['password']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def servers_named(ledger: RegionLedger, prefix: str) -> list[dict[str, str]]:
    with User(ledger) as user:
        return [server for server in user.servers() if server["name"].startswith(prefix)]


def test_no_guest_was_ever_made_twice(ledger: RegionLedger, cloud: Cloud) -> None:
    made: Counter[str] = Counter()
    for directory in fake_directories(ledger, cloud.hosts):
        made.update({str(guest): times for guest, times in creates(Path(directory)).items()})
    assert made
    assert set(made.values()) == {1}
    with User(ledger) as user:
        for server in user.servers():
            user.delete_server(server["id"])
        eventually(lambda: user.servers() == [], "all are deleted", within_s=SETTLED_WITHIN_S)
    eventually(lambda: not cloud.guests(), "the hypervisors hold nothing", within_s=SETTLED_WITHIN_S)
