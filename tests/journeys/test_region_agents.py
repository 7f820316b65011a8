"""A host that speaks with another's key, says old things again or of guests it never held, and orders from the past: nothing
is believed, and it is shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from uuid import uuid4

import orjson
import pytest

from commands.log.kafka_messages import KafkaMessages
from commands.log.kafka_options import KafkaOptions
from commands.log.port import HEARTBEATS, REPORTS, Message, orders_topic
from commands.log.reports import decode_report, encode_report
from commands.log.signed import REPORT, read_envelope, seal
from commands.orders import Act, Order
from commands.reports import HostReport, OutcomeReport, Report
from deploy.region import Part
from domain.serialization import from_plain, to_plain
from hostagent.drivers.fake_controls import creates
from hostagent.host_key import HostCredential
from tests.support.crowd import fake_guests
from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.region import RegionLedger


@dataclass(frozen=True, slots=True)
class Kafka:
    """What anyone with access to the topics can do."""

    ledger: RegionLedger
    messages: KafkaMessages

    def say(self, credential: HostCredential, report: Report | bytes) -> None:
        """Put a report on its topic, signed with a host's key."""
        body = report if isinstance(report, bytes) else encode_report(report)
        self.put(REPORTS, seal(REPORT, credential, body))

    def put(self, topic: str, value: bytes, key: str = "a key") -> None:
        self.messages.publish([Message(topic, key, value)])

    def values(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while self.messages.wait(topic, offset, 2):
            records = self.messages.read(topic, offset, 1000)
            found += [record.value for record in records if record.value is not None]
            offset = records[-1].offset
        return found

    def reports(self) -> list[tuple[bytes, Report]]:
        """All that hosts have said, as it stands on the topic, and decoded."""
        found = []
        for value in self.values(REPORTS):
            signed = read_envelope(value)
            if signed is not None:
                found.append((value, decode_report(signed.body)))
        return found


@pytest.fixture(scope="module")
def kafka(region: RegionLedger) -> Iterator[Kafka]:
    with closing(KafkaMessages(KafkaOptions(bootstrap=region.region.bootstrap))) as messages:
        yield Kafka(region, messages)


@pytest.fixture(scope="module")
def credentials(region: RegionLedger) -> list[HostCredential]:
    return [HostCredential.load(region.host_directory(number) / "credential.json") for number in (1, 2)]


@pytest.fixture(scope="module")
def server(region: RegionLedger) -> Iterator[dict[str, str]]:
    """A server that runs, and the number of its host."""
    with User(region, "admin") as admin, User(region) as user:
        made = user.create_server(user.upload_image(), admin.create_flavor("spoken-of"))
        user.wait_for(made, "ACTIVE")
        host = admin.server(made)["OS-EXT-SRV-ATTR:host"]
        yield {"id": made, "host": host}
        user.delete_server(made)
        user.wait_until_gone(made)


def inbox_says(region: RegionLedger, *words: str, of: Callable[[], None] = lambda: None) -> None:
    """It says each reason of each host once in ten seconds: `of` is done again until it does."""

    def said() -> bool:
        of()
        lines = [line for copy in "ab" for line in region.part(f"inbox-{copy}").logged().splitlines()]
        return any(all(word in line for word in words) for line in lines)

    eventually(said, f"the inbox's log says {words}", within_s=60)


def unchanged(region: RegionLedger, deed: Callable[[], None]) -> None:
    """Nothing is recorded of it: what is recorded next is something else."""
    before = region.position()
    deed()
    with User(region, "admin") as admin:
        admin.set_quota(admin.project_id, key_pairs=101)
    after = region.events(after=before)
    assert [event["type"] for event in after] in (["quota.limits_set"], [])


def an_outcome(credential: HostCredential, server: str, kafka: Kafka, **changes: object) -> OutcomeReport:
    """What the server's host said of it, altered."""
    said = next(
        report
        for _, report in kafka.reports()
        if isinstance(report, OutcomeReport) and str(report.instance_id) == server and report.act is Act.SPAWN
    )
    return replace(said, **{"report_id": "another-report", **changes})  # type: ignore[arg-type]


def test_a_report_with_another_host_s_key_is_refused(
    region: RegionLedger, kafka: Kafka, credentials: list[HostCredential], server: dict[str, str]
) -> None:
    (own,) = [c for c in credentials if c.host == server["host"]]
    (other,) = [c for c in credentials if c.host != server["host"]]
    forged = an_outcome(own, server["id"], kafka, act=Act.PURGE)
    body = encode_report(forged)

    unchanged(region, lambda: kafka.say(other, forged))  # its own name, another's words
    inbox_says(region, "not_yours", other.host)

    envelope = json.loads(seal(REPORT, other, body)) | {"service": str(own.service_id)}  # another's name
    unchanged(region, lambda: kafka.put(REPORTS, orjson.dumps(envelope)))
    inbox_says(region, "bad_signature", own.host)


def test_a_report_that_nobody_signed_or_of_an_unknown_host_is_refused(
    region: RegionLedger, kafka: Kafka, credentials: list[HostCredential], server: dict[str, str]
) -> None:
    (own,) = [c for c in credentials if c.host == server["host"]]
    unchanged(region, lambda: kafka.put(REPORTS, encode_report(an_outcome(own, server["id"], kafka))))
    inbox_says(region, "unsigned")
    stranger = HostCredential.load(own_of_a_stranger(region))
    region.command("host", "revoke", "stranger")
    unchanged(region, lambda: kafka.say(stranger, an_outcome(own, server["id"], kafka)))
    inbox_says(region, "revoked", "stranger")


def own_of_a_stranger(region: RegionLedger):
    file = region.region.directory / "stranger.json"
    file.touch(mode=0o600)
    file.write_text(region.command("host", "enroll", "stranger").stdout)
    return file


def test_a_report_that_is_said_again_changes_nothing(
    region: RegionLedger, kafka: Kafka, server: dict[str, str]
) -> None:
    replayed = [value for value, report in kafka.reports() if isinstance(report, OutcomeReport | HostReport)]
    assert len(replayed) >= 3

    unchanged(region, lambda: [kafka.put(REPORTS, value) for value in replayed] and None)

    inbox_says(region, "repeated")
    with User(region) as user:
        assert user.server(server["id"])["status"] == "ACTIVE"


def test_a_report_of_a_guest_that_was_never_the_host_s_own_is_refused(
    region: RegionLedger, kafka: Kafka, credentials: list[HostCredential], server: dict[str, str]
) -> None:
    (own,) = [c for c in credentials if c.host == server["host"]]
    (other,) = [c for c in credentials if c.host != server["host"]]
    theirs = an_outcome(
        own, server["id"], kafka, act=Act.PURGE, host=other.host, service_id=other.service_id, order_id="x"
    )

    unchanged(region, lambda: kafka.say(other, theirs))

    inbox_says(
        region,
        *("not_yours", other.host, server["id"]),
        of=lambda: kafka.say(other, replace(theirs, report_id=str(uuid4()))),
    )
    with User(region) as user:
        assert user.server(server["id"])["status"] == "ACTIVE"


def test_what_is_no_report_at_all_holds_nobody_up(region: RegionLedger, kafka: Kafka) -> None:
    for value in (b"", b"\xff\xfe", b"[]", b"{}", b'{"signature": 1}', b'{"type": "report.host"}', b"x" * 100_000):
        kafka.put(REPORTS, value)
        kafka.put(HEARTBEATS, value)
    inbox_says(region, "undecodable")
    with User(region, "admin") as admin, User(region) as user:
        made = user.create_server(user.upload_image(), admin.create_flavor("after-rubbish"))
        user.wait_for(made, "ACTIVE")
        user.delete_server(made)
        user.wait_until_gone(made)


def test_an_order_of_an_older_session_or_for_a_guest_whose_time_is_over_is_refused_and_shown(
    region: RegionLedger, kafka: Kafka, credentials: list[HostCredential]
) -> None:
    """A publisher that slept through all that happened since puts its old orders on the topic again."""
    with User(region, "admin") as admin, User(region) as user:
        flavor = admin.create_flavor("ordered")
        made = user.create_server(user.upload_image(), flavor)
        user.wait_for(made, "ACTIVE")
        host = admin.server(made)["OS-EXT-SRV-ATTR:host"]
    (number,) = [n for n, credential in enumerate(credentials, 1) if credential.host == host]
    topic = orders_topic(credentials[number - 1].service_id)
    spawn = next(
        order
        for order in (from_plain(Order, orjson.loads(value)) for value in kafka.values(topic))
        if str(order.guest.instance_id) == made and order.act is Act.SPAWN
    )
    agent = region.part(host)

    def refused(order: Order, reason: str) -> None:
        """Again until it is for this reason: the end of the guest's time reaches the agent after its user."""

        def shown() -> bool:
            kafka.put(topic, orjson.dumps(to_plain(order)), f"{made}/{host}")
            return any(reason in line and spawn.order_id in line for line in agent.logged().splitlines())

        eventually(shown, f"the agent says that an order is refused: {reason}", within_s=60)

    refused(replace(spawn, incarnation="another"), "of ledger another")
    refused(replace(spawn, epoch=spawn.epoch - 1), "epoch")
    refused(spawn, "generation")
    with User(region) as user:
        user.delete_server(made)
        user.wait_until_gone(made)
        eventually(lambda: made not in fake_guests(region, 2), "the guest is gone", within_s=60)
        refused(spawn, "ended")
        still = user.create_server(user.upload_image(), flavor)  # the agent goes on with what comes after
        user.wait_for(still, "ACTIVE")
        user.delete_server(still)
        user.wait_until_gone(still)
    guests = fake_guests(region, 2)
    assert made not in guests
    assert creates(region.host_directory(number) / "fake")[spawn.guest.instance_id] == 1


def test_an_agent_whose_key_is_revoked_is_heard_no_more_and_enrolled_again_is(region: RegionLedger) -> None:
    agent = region.agents[1]
    old = (region.host_directory(2) / "credential.json").read_text()
    try:
        region.command("host", "revoke", agent.name)
        agent.kill()
        agent.begin()
        inbox_says(region, "revoked", agent.name)
        eventually(
            lambda: "the ledger refuses this host's key" in agent.logged(), "the agent says what is wrong", within_s=90
        )
    finally:
        agent.kill()
        credential = region.host_directory(2) / "credential.json"
        credential.write_text(region.command("host", "enroll", agent.name).stdout)
        before = region.recorded("service.came_up")
        agent.start()
        eventually(lambda: region.recorded("service.came_up") > before, "the host is up again", within_s=60)
    assert old != (region.host_directory(2) / "credential.json").read_text()
    with User(region, "admin") as admin:
        services = admin.get("/os-services?binary=nova-compute")["services"]
        assert {s["host"]: s["state"] for s in services if s["host"] == agent.name} == {agent.name: "up"}


def test_of_two_machines_with_one_credential_the_first_holds_the_guests_and_the_other_none(
    region: RegionLedger,
) -> None:
    agent, own = region.agents[0], region.host_directory(1)
    copy = region.region.directory / "hosts" / "copy"
    copy.mkdir(mode=0o700)
    shutil.copy(own / "credential.json", copy)
    arguments = [str(copy) if word == str(own) else word for word in agent.arguments]
    arguments[arguments.index("--credential") + 1] = str(copy / "credential.json")
    second = Part("copy", arguments, region.region.logs / "copy.log").start()
    try:
        inbox_says(region, "superseded", agent.name, "another agent speaks for it")
        with User(region, "admin") as admin:
            flavor = admin.create_flavor("copied")
            zone = {"availability_zone": f"nova:{agent.name}"}
            made = [admin.create_server(admin.upload_image(), flavor, **zone) for _ in range(3)]
            for server in made:
                admin.wait_for(server, "ACTIVE")
            eventually(
                lambda: "another agent opened" in second.logged(), "the copy says that it was replaced", within_s=60
            )
            eventually(lambda: "another agent has taken session" in second.logged(), "and what to do", within_s=90)
            assert creates(copy / "fake") == {}
            for server in made:
                admin.delete_server(server)
                admin.wait_until_gone(server)
    finally:
        second.kill()


def test_an_agent_that_lost_its_journal_makes_no_guest_again_and_is_taken_over_by_enrolling(
    region: RegionLedger,
) -> None:
    agent, own = region.agents[0], region.host_directory(1)
    before = creates(own / "fake")
    agent.kill()
    for file in own.glob("journal.db*"):
        file.unlink()
    agent.begin()
    try:
        eventually(
            lambda: "another agent opened" in agent.logged() or "older than" in agent.logged(),
            "its old orders are refused",
            within_s=60,
        )
        inbox_says(region, "superseded", agent.name)
        assert creates(own / "fake") == before
    finally:
        agent.kill()
        (own / "credential.json").write_text(region.command("host", "enroll", agent.name).stdout)
        for file in own.glob("journal.db*"):
            file.unlink()
        came_up = region.recorded("service.came_up")
        agent.start()
        eventually(lambda: region.recorded("service.came_up") > came_up, "the host is up again", within_s=60)
    assert creates(own / "fake") == before
