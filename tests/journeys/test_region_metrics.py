"""What each process of a distributed ledger tells its operators, while servers come and go."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import conninfo
from psycopg.conninfo import conninfo_to_dict

from deploy.region import Part
from tests.support.http_client import User, server_body
from tests.support.hypervisors import eventually
from tests.support.region import RegionLedger

SERVERS = 5
SEATS = {"build": "managers", "orders": "managers", "deadlines": "managers", "relay": "relay", "inbox": "inbox"}
FOLLOWERS = ("build", "orders", "deadlines", "relay")
SOON_S = 30.0  # an event is handled within milliseconds, on an idle machine


class Scrape:
    """What a process showed at one moment."""

    def __init__(self, part: Part) -> None:
        text = fetch(part, "/metrics").decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        self._values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
        assert len(self._values) == len(samples), "nothing is shown twice"

    def __call__(self, name: str, **labels: str) -> float:
        return self._values.get((f"compute_ledger_{name}", frozenset(labels.items())), 0.0)

    def shows(self, name: str, **labels: str) -> bool:
        return (f"compute_ledger_{name}", frozenset(labels.items())) in self._values


def fetch(part: Part, path: str) -> bytes:
    with urllib.request.urlopen(f"{part.metrics_url}{path}", timeout=60) as answer:
        content: bytes = answer.read()
    return content


@pytest.fixture(scope="module")
def parts(region: RegionLedger) -> dict[str, Part]:
    return region.region.parts


@pytest.fixture
def seats(region: RegionLedger) -> dict[str, Part]:
    """The active process of each consumer of which there is one."""
    for seat in SEATS:
        eventually(lambda seat=seat: region.active_or_none(seat), f"someone is {seat}", within_s=120)
    return {seat: region.active(seat) for seat in SEATS}


@pytest.fixture
def user(region: RegionLedger) -> Iterator[User]:
    with User(region) as one:
        yield one


@pytest.fixture
def flavor(region: RegionLedger) -> Iterator[str]:
    with User(region, "admin") as admin:
        yield admin.create_flavor("measured")
        assert admin("DELETE", "/flavors/measured").status_code == 202


def test_every_process_is_ready_and_says_so_to_its_operators(parts: dict[str, Part]) -> None:
    for name, part in parts.items():
        for path in ("/healthz", "/readyz"):
            shown: dict[str, Any] = {}

            def well(part: Part = part, path: str = path, shown: dict[str, Any] = shown) -> bool:
                try:
                    shown.update(json.loads(fetch(part, path)))
                except OSError:
                    return False
                return bool(shown["ok"])

            eventually(well, f"{name} is well: {path}", within_s=120)
        checks = shown["checks"]
        assert checks["kafka"] == checks["steps"] == "ok"
        assert ("store" in checks) == ("clock" in checks) == (not name.startswith("host-"))
        assert ("views" in checks) == name.startswith("gateway-")
        assert (f"host {name}" in checks) == name.startswith("host-")


def test_what_is_counted_when_servers_are_made(
    region: RegionLedger, seats: dict[str, Part], user: User, flavor: str
) -> None:
    gateway, image = region.gateways[0], user.upload_image()
    before = {name: Scrape(part) for name, part in {"gateway": gateway, **seats}.items()}

    made = [user.create_server(image, flavor, f"measured-{number}") for number in range(SERVERS)]
    for server in made:
        user.wait_for(server, "ACTIVE")

    def grown(where: str, name: str, **labels: str) -> float:
        return Scrape({"gateway": gateway, **seats}[where])(name, **labels) - before[where](name, **labels)

    assert grown("gateway", "http_requests_total", method="POST", status="2xx") == SERVERS
    assert grown("gateway", "http_request_seconds_count", method="GET") >= SERVERS
    assert grown("gateway", "http_request_seconds_sum", method="POST") > 0
    assert 1 <= grown("gateway", "commits_total") <= SERVERS
    assert grown("gateway", "flush_commands_sum") == grown("gateway", "commands_recorded_total") == SERVERS
    assert grown("build", "flush_commands_sum") >= SERVERS
    assert grown("orders", "orders_published_total") >= SERVERS
    assert grown("inbox", "reports_total", kind="outcome") == SERVERS
    assert grown("inbox", "events_handled_total", consumer="inbox") >= SERVERS
    for name in FOLLOWERS:
        batches = grown(name, "event_age_seconds_count", consumer=name)
        assert grown(name, "events_handled_total", consumer=name) >= batches >= 1
        assert 0 < grown(name, "event_age_seconds_sum", consumer=name) / batches < SOON_S
    assert grown("inbox", "parked_records") == grown("gateway", "flushes_unavailable_total") == 0

    for server in made:
        user.delete_server(server)
        user.wait_until_gone(server)


def test_a_create_over_quota_is_a_refused_command_at_the_gateway_that_was_asked(
    region: RegionLedger, user: User, flavor: str
) -> None:
    asked, other = (Scrape(gateway) for gateway in region.gateways)
    image, project = user.upload_image(), user.project_id
    with User(region, "admin") as admin:
        admin.set_quota(project, instances=user.quota_use()["instances"])
        answer = user("POST", "/servers", server_body(image, flavor))
        assert admin("DELETE", f"/os-quota-sets/{project}").status_code == 202
    assert answer.status_code == 403, answer.text

    after, beside = (Scrape(gateway) for gateway in region.gateways)
    refused = {"code": "quota.exceeded"}
    assert after("commands_refused_total", **refused) == asked("commands_refused_total", **refused) + 1
    assert beside("commands_refused_total", **refused) == other("commands_refused_total", **refused)
    assert after("http_requests_total", method="POST", status="4xx") >= 1


def test_each_consumer_is_active_in_one_process_and_soon_nothing_lags_or_waits(
    region: RegionLedger, parts: dict[str, Part], seats: dict[str, Part]
) -> None:
    def rested() -> bool:
        shown = {name: Scrape(part) for name, part in parts.items()}
        head = region.position()
        behind = [shown[seats[name].name]("consumer_lag_positions", consumer=name) for name in SEATS]
        behind += [shown[f"projections-{copy}"]("consumer_lag_positions", consumer="views") for copy in "ab"]
        waiting = [shown[seats["deadlines"].name]("requests_waiting")]
        waiting += [shown[agent.name]("agent_orders_waiting", host=agent.name) for agent in region.agents]
        heads = {one("head_position") for name, one in shown.items() if not name.startswith("host-")}
        return not any(behind) and not any(waiting) and heads == {head}

    eventually(rested, "everything is done, and every process sees the same head", within_s=180)
    for name, part in parts.items():
        shown = Scrape(part)
        role = name.partition("-")[0]
        for seat in SEATS:
            plays = SEATS[seat] == role
            active = plays and part is seats[seat]
            assert shown.shows("consumer_active", consumer=seat) == plays
            assert shown("consumer_active", consumer=seat) == active
            assert shown.shows("consumer_lag_seconds", consumer=seat) == active
            assert shown("consumer_lag_seconds", consumer=seat) == 0
            assert shown("consumer_failing", consumer=seat) == 0
        assert shown("consumer_active", consumer="views") == (role == "projections")
        assert shown.shows("head_position") == (role != "host")
        assert shown.shows("requests_waiting") == (part is seats["deadlines"])
        assert shown.shows("agent_orders_waiting", host=name) == (role == "host")


def readiness(part: Part) -> tuple[int, dict[str, str]]:
    try:
        with urllib.request.urlopen(f"{part.metrics_url}/readyz", timeout=60) as answer:
            return answer.status, json.loads(answer.read())["checks"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["checks"]


def test_without_kafka_a_gateway_is_ready_and_a_relay_is_not(region: RegionLedger) -> None:
    nowhere = ("--kafka", "127.0.0.1:1")
    gateway = region.region.add_gateway("gateway-alone", *nowhere)
    relay = region.region.add("relay-alone", ["relay"], *nowhere)
    try:
        region.region.start(gateway.name, relay.name)
        for part, status in ((gateway, 200), (relay, 503)):
            seen: list[dict[str, str]] = []

            def told(part: Part = part, status: int = status, seen: list[dict[str, str]] = seen) -> bool:
                code, checks = readiness(part)
                seen[:] = [checks]
                return code == status and "Kafka" in checks["kafka"]

            eventually(told, f"{part.name} answers {status} and that Kafka is away", within_s=60)
            assert {name for name, said in seen[0].items() if said != "ok"} == {"kafka"}
            eventually(
                lambda part=part: "Kafka does not answer at 127.0.0.1:1, and" in part.logged(),
                f"{part.name} says so",
                within_s=60,
            )
        with User(region, url=gateway.url) as user:
            user.get("/servers/detail")
    finally:
        for part in (gateway, relay):
            part.kill()
            del region.region.parts[part.name]


def test_metrics_are_for_operators_and_not_beside_the_api(region: RegionLedger, user: User) -> None:
    assert user("GET", "/metrics", service="").status_code == 404
    assert user("GET", "/healthz", service="").status_code == 200
    assert user("GET", "/readyz", service="").json()["checks"]["kafka"] == "ok"


def test_the_doctor_finds_a_whole_ledger_well(region: RegionLedger, seats: dict[str, Part]) -> None:
    lines: list[str] = []

    def well() -> bool:
        done = region.command("doctor", "--kafka", region.region.bootstrap, check=False)
        lines[:] = done.stdout.splitlines()
        return done.returncode == 0

    eventually(well, "nothing is wrong", within_s=120)
    assert [line for line in lines if line.startswith("FAIL")] == []
    for seat, part in seats.items():
        assert any(line.startswith(f"ok   seat {seat}: pid {part.pid} at 127.0.0.1 is active") for line in lines)
    for role in ("gateway", "managers", "projections", "relay", "inbox"):
        playing = [
            str(part.pid) for part in region.region.parts.values() if part.name.startswith(role) and part.running
        ]
        told = next(line for line in lines if line.startswith(f"ok   role {role}: "))
        assert len(playing) >= 2
        assert all(f"pid {pid} at" in told for pid in playing)
    for agent in region.agents:
        assert any(
            line.startswith(f"ok   host {agent.name}: enrolled, up since ") and "heard last" in line for line in lines
        )
    assert [line.partition(":")[0] for line in lines if "views" in line] == ["ok   views 1", "ok   views 2"]


def test_a_password_is_in_no_log_and_no_answer(region: RegionLedger, parts: dict[str, Part]) -> None:
    password = conninfo_to_dict(region.region.store_url)["password"]
    assert isinstance(password, str)
    wrong = conninfo.make_conninfo(region.region.store_url, password="not-the-password")
    part = region.region.add("relay-stranger", ["relay"])
    part.environment["COMPUTE_LEDGER_STORE"] = url_of(wrong)
    part.begin()
    try:
        eventually(lambda: "password authentication failed" in part.logged(), "it says why it waits", within_s=120)
        assert "not-the-password" not in part.logged()
    finally:
        part.kill()
        del parts[part.name]
    assert [name for name, one in parts.items() if password in one.logged()] == []
    assert [name for name, one in parts.items() if one.running and password in str(readiness(one))] == []


def url_of(text: str) -> str:
    said = conninfo_to_dict(text)
    return f"postgresql://{said['user']}:{said['password']}@{said['host']}:{said['port']}/{said['dbname']}"
