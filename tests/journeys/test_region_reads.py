"""Through whichever gateway: a read shows every write that was answered before it began."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.http_client import User
from tests.support.region import RegionLedger

OPERATIONS = 10_000
FIELDS = ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members")
WRITES_IN = 4  # one of so many operations


class Counter:
    """A quota that only ever grows. Who writes knows what is next; who reads knows what has been answered."""

    def __init__(self, project_id: str, field: str) -> None:
        self.path = f"/os-quota-sets/{project_id}"
        self.field = field
        self.answered = -1  # no limit, as the region is set up
        self.writing = threading.Lock()

    def write(self, user: User) -> None:
        with self.writing:
            value = self.answered + 1
            answer = user("PUT", self.path, {"quota_set": {self.field: value}})
            assert answer.status_code == 200, answer.text
            self.answered = value

    def read(self, user: User) -> None:
        at_least = self.answered
        seen = user.get(self.path)["quota_set"][self.field]
        assert seen >= at_least, f"{self.field} reads {seen}, and {at_least} had been answered"


def test_ten_thousand_writes_and_reads_on_two_gateways(region: RegionLedger) -> None:
    users = [User(region, "admin", url=gateway.url) for gateway in region.gateways]
    project = users[0].project_id
    before = users[0].get(f"/os-quota-sets/{project}")["quota_set"]
    counters = [Counter(project, field) for field in FIELDS]
    turns = iter(range(OPERATIONS))
    writes = []

    def work(seed: int) -> int:
        chance = random.Random(seed)
        done = 0
        for turn in turns:
            counter, user = chance.choice(counters), users[turn % len(users)]
            if chance.randrange(WRITES_IN) == 0:
                counter.write(user)
                writes.append(turn)
            else:
                counter.read(user)
            done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(work, range(8)))

    assert done == OPERATIONS
    assert len(writes) > OPERATIONS / WRITES_IN / 2
    assert sum(counter.answered + 1 for counter in counters) == len(writes)
    users[0].set_quota(project, **{field: before[field] for field in FIELDS})
    for user in users:
        user.close()


@pytest.mark.parametrize("writer", [0, 1])
def test_a_server_is_seen_at_the_other_gateway_as_soon_as_it_is_accepted(region: RegionLedger, writer: int) -> None:
    at = [User(region, url=gateway.url) for gateway in region.gateways]
    with User(region, "admin") as admin:
        flavor = admin.create_flavor(f"seen-{writer}")
    image = at[writer].upload_image()
    for _ in range(10):
        server = at[writer].create_server(image, flavor)
        assert at[1 - writer].server(server)["id"] == server
        at[1 - writer].delete_server(server)
        at[writer].wait_until_gone(server)
    for user in at:
        user.close()
