"""Every view can be thrown away: built again from the events it has the same bytes, and nobody who reads notices."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from projections.catalogue import VIEWS
from tests.support.http_client import SETTLED, User, server_body
from tests.support.hypervisors import eventually
from tests.support.ledger_process import LedgerProcess, running_ledger

SETTINGS = """\
[fake]
vcpus = 4

[DEFAULT]
cpu_allocation_ratio = 2.0

[quota]
instances = 1000
cores = 1000
"""
SLOTS = 16  # on two hosts

Rows = dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    """A ledger with some of everything in its history."""
    with running_ledger(tmp_path_factory.mktemp("rebuild"), hosts=2, settings=SETTINGS) as process:
        with User(process, "admin") as admin, User(process) as user:
            live(admin, user)
        yield process


def live(admin: User, user: User) -> None:
    flavor, large, image = admin.create_flavor("tiny"), admin.create_flavor("large", vcpus=4), user.upload_image()
    private = {"name": "private", "id": "private", "vcpus": 1, "ram": 1, "disk": 1, "os-flavor-access:is_public": False}
    admin("POST", "/flavors", {"flavor": private}).raise_for_status()
    admin("POST", "/flavors/private/os-extra_specs", {"extra_specs": {"hw:cpu_sockets": "1"}}).raise_for_status()
    admin("POST", "/flavors/private/action", {"addTenantAccess": {"tenant": user.project_id}}).raise_for_status()
    admin("PUT", f"/flavors/{large}", {"flavor": {"description": "for few"}}).raise_for_status()
    user("POST", "/os-keypairs", {"keypair": {"name": "mine"}}, version="2.91").raise_for_status()
    user("POST", "/os-keypairs", {"keypair": {"name": "gone"}}, version="2.91").raise_for_status()
    user("DELETE", "/os-keypairs/gone").raise_for_status()
    admin.set_quota(user.project_id, metadata_items=5)
    admin("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"key_pairs": 7}}).raise_for_status()
    attic = {"aggregate": {"name": "attic", "availability_zone": "attic"}}
    admin("POST", "/os-aggregates", attic).raise_for_status()
    host = admin.get("/os-services")["services"][0]["host"]
    admin("POST", "/os-aggregates/1/action", {"add_host": {"host": host}}).raise_for_status()
    group = {"server_group": {"name": "web", "policy": "soft-anti-affinity"}}
    made = user("POST", "/os-server-groups", group).json()["server_group"]["id"]
    more = {"metadata": {"role": "web"}, "tags": ["a"], "key_name": "mine", "user_data": "aGVsbG8="}
    servers = [user.create_server(image, flavor, f"server-{number}", **more) for number in range(SLOTS - 4)]
    body = server_body(image, flavor, "of a group") | {"os:scheduler_hints": {"group": made}}
    user.delete_server(servers.pop())
    servers.append(user("POST", "/servers", body).json()["server"]["id"])
    servers += [user.create_server(image, large, "the last that fits"), user.create_server(image, large, "too many")]
    statuses = {server: user.wait_for(server, *SETTLED)["status"] for server in servers}
    assert list(statuses.values()).count("ERROR") >= 1
    running = [server for server, status in statuses.items() if status == "ACTIVE"]
    user.act(running[0], "os-stop")
    user.wait_for(running[0], "SHUTOFF")
    user.act(running[1], "reboot", {"type": "HARD"})
    user.wait_for(running[1], "ACTIVE")
    user.delete_server(running[2])
    user.wait_until_gone(running[2])
    (service, _) = admin.get("/os-services")["services"]
    disabled = {"status": "disabled", "disabled_reason": "maintenance"}
    admin("PUT", f"/os-services/{service['id']}", disabled).raise_for_status()


def view_rows(ledger: LedgerProcess) -> Rows:
    """Every table of every view, with its rows in order."""
    path = ledger.directory / "views.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        database.execute("BEGIN")
        tables = [name for make in VIEWS.values() for name in make().tables]
        return {table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}


def generations(ledger: LedgerProcess) -> dict[str, int]:
    path = ledger.directory / "views.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        return dict(database.execute("SELECT view, generation FROM view_generations").fetchall())


class Reader:
    """Reads all the time, and keeps what went wrong: an error, or an answer older than one before it."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.newest = 0  # servers that were created and answered
        self.answers = 0
        self.wrong: list[str] = []

    def _read(self) -> None:
        seen = 0
        while not self._stopping.is_set():
            at_least = max(seen, self.newest)
            answer = self._user("GET", "/servers/detail")
            self.answers += 1
            if answer.status_code != 200:
                self.wrong.append(answer.text)
                return
            seen = len(answer.json()["servers"])
            if seen < at_least:
                self.wrong.append(f"{seen} servers, after {at_least}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def reading(user: User) -> Iterator[Reader]:
    """Someone reads while the block runs, and nothing is wrong with any answer."""
    reader = Reader(user)
    reader.newest = len(user.servers())
    reader.start()
    try:
        eventually(lambda: reader.answers > 5, "the reader reads")
        yield reader
        answered = reader.answers
        eventually(lambda: reader.answers > answered + 5 or reader.wrong, "the reader still reads")
    finally:
        reader.stop()
    assert reader.wrong == []


def test_a_rebuilt_view_has_the_same_bytes_while_reads_go_on(ledger: LedgerProcess) -> None:
    before, shown = view_rows(ledger), generations(ledger)
    assert {table for table, rows in before.items() if not rows} == set()  # or this proves nothing
    with User(ledger) as user, reading(user):
        said = ledger.command("rebuild", "all").stdout
    assert [line.partition(":")[0] for line in said.splitlines()] == list(VIEWS)
    assert view_rows(ledger) == before
    assert generations(ledger) == {view: generation + 1 for view, generation in shown.items()}


def test_views_rebuilt_while_writes_go_on_miss_nothing(ledger: LedgerProcess) -> None:
    with User(ledger) as user:
        image, flavor = user.upload_image(), "tiny"
        stopping = threading.Event()
        with reading(user) as reader:

            def write() -> None:
                while not stopping.is_set():
                    user.create_server(image, flavor, "made meanwhile")
                    reader.newest += 1

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for _ in range(2):
                    ledger.command("rebuild", "all")
            finally:
                stopping.set()
                writer.join()
        servers = user.servers()
        assert len(servers) == reader.newest
        eventually(
            lambda: all(server["status"] in (*SETTLED, "SHUTOFF") for server in user.servers()),
            "all servers are settled",
            within_s=120,
        )
    live_rows = view_rows(ledger)
    ledger.command("rebuild", "all")
    assert view_rows(ledger) == live_rows


def test_views_that_were_deleted_are_back_after_a_start(ledger: LedgerProcess) -> None:
    before = view_rows(ledger)
    assert ledger.stop() == 0
    for file in ledger.directory.glob("views.db*"):
        file.unlink()
    ledger.start()
    with User(ledger) as user:
        assert len(user.servers()) > SLOTS  # the first read already waits for all of it
    after = view_rows(ledger)
    assert without_sessions(after) == without_sessions(before)


def without_sessions(rows: Rows) -> Rows:
    """Less what a new session of the hosts changes: when each was last heard of."""
    return {table: content for table, content in rows.items() if table != "services"}
