"""Every role killed and frozen in the middle of many creates, the active process and the one that stands by.

All servers come up, each once, and everything agrees; a process that wakes changes nothing that happened meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from deploy.region import Part, answers
from tests.support.crowd import SETTLED_WITHIN_S, Cloud, Crowd, everything_agrees, fake_guests, settled
from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.region import RegionLedger

SERVERS = 100
SEATS = {"managers": "build", "relay": "relay", "inbox": "inbox"}
numbers = count(1)


@pytest.fixture(scope="module")
def cloud(region: RegionLedger) -> Cloud:
    with User(region, "admin") as admin, User(region) as user:
        return Cloud(region, 2, lambda: fake_guests(region, 2), admin.create_flavor("killed"), user.upload_image())


@pytest.fixture
def users(region: RegionLedger) -> Iterator[list[User]]:
    """One at each gateway, each trying the other when its own does not answer."""
    made = [User(region, url=gateway.url) for gateway in region.gateways]
    yield made
    for user in made:
        user.close()


def victims(region: RegionLedger, role: str) -> tuple[Part, Part]:
    """The active process of a role, and another; where both work at all times, one and the other."""
    match role:
        case "gateway":
            return region.gateways[0], region.gateways[1]
        case "projections":
            return region.part("projections-a"), region.part("projections-b")
        case "agent":
            return region.agents[0], region.agents[1]
    active = region.active(SEATS[role])
    (other,) = (region.part(f"{role}-{copy}") for copy in "ab" if region.part(f"{role}-{copy}") is not active)
    return active, other


@pytest.mark.parametrize("fault", ["killed", "frozen"])
@pytest.mark.parametrize("role", ["gateway", "managers", "projections", "relay", "inbox", "agent"])
def test_in_the_middle_of_a_hundred_creates(cloud: Cloud, users: list[User], role: str, fault: str) -> None:
    region = cloud.ledger
    assert isinstance(region, RegionLedger)
    eventually(
        lambda: all(answers(gateway.url) for gateway in region.gateways), "both gateways are ready", within_s=120
    )
    before = region.recorded("instance.create_requested")
    active, other = victims(region, role)
    crowd = Crowd(*users)
    crowd.create(cloud, SERVERS)

    def accepted(many: int) -> None:
        eventually(
            lambda: region.recorded("instance.create_requested") >= before + many, f"{many} are accepted", within_s=120
        )

    accepted(SERVERS // 4)
    strike(active, fault)
    if role == "gateway":  # clients of the frozen one wait for it
        accepted(SERVERS // 4)
    else:
        accepted(SERVERS * 3 // 4)
    mend(active, fault)
    if role in SEATS:  # whoever is active by now
        active, other = victims(region, role)
    strike(other, fault)
    if role not in ("gateway", "agent"):
        accepted(SERVERS - crowd.unanswered)
    mend(other, fault)
    crowd.wait()

    with User(region) as user:
        servers = settled(user)
        assert set(crowd.accepted) <= set(servers)
        assert len(servers) <= len(crowd.accepted) + crowd.unanswered
        assert Counter(servers.values()).keys() <= {"ACTIVE"}
        everything_agrees(cloud, user, servers)
        for server in servers:
            user.delete_server(server)
        eventually(lambda: user.servers() == [], "all are deleted again", within_s=SETTLED_WITHIN_S)
    eventually(lambda: not fake_guests(region, 2), "the hypervisors hold nothing", within_s=SETTLED_WITHIN_S)


def strike(part: Part, fault: str) -> None:
    if fault == "killed":
        part.kill()
    else:
        part.freeze()


def mend(part: Part, fault: str) -> None:
    if fault == "killed":
        part.start()
    else:
        part.wake()


def test_a_frozen_active_manager_is_replaced_and_woken_changes_nothing(cloud: Cloud, users: list[User]) -> None:
    region = cloud.ledger
    assert isinstance(region, RegionLedger)
    active = region.active("build")
    active.freeze()
    eventually(lambda: region.active_or_none("build") not in (None, active), "another manager is active", within_s=60)
    crowd = Crowd(*users)
    crowd.create(cloud, 20)
    crowd.wait()
    with User(region) as user:
        servers = settled(user)
        position = region.position()
        active.wake()
        eventually(
            lambda: "stands by" in active.logged() or "lost" in active.logged(),
            "it knows that it was replaced",
            within_s=60,
        )
        everything_agrees(cloud, user, servers)
        assert [e["type"] for e in region.events(after=position) if e["type"].startswith("instance.")] == []
        for server in servers:
            user.delete_server(server)
        eventually(lambda: user.servers() == [], "all are deleted again", within_s=SETTLED_WITHIN_S)
