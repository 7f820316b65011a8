"""Stopped and started again: everything is as it was. And a start that cannot be says why, in one line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from tests.support.http_client import SETTLED, User, server_body
from tests.support.hypervisors import eventually
from tests.support.ledger_process import DidNotStart, LedgerProcess, children_of, running_ledger

STOPS_WITHIN_S = 30  # two on an idle machine
WRITERS, WRITES_EACH = 8, 25
LARGE_QUOTA = """\
[quota]
instances = 1000
cores = 1000
ram = 1000000
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerProcess]:
    with running_ledger(tmp_path_factory.mktemp("restart"), hosts=2, settings=LARGE_QUOTA) as process:
        yield process


def everything(admin: User, user: User) -> dict[str, Any]:
    """What both users can see, without what tells of the time or of the address."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            hidden = ("links", "updated_at", "href", "servers_links")
            return {key: plain(inner) for key, inner in value.items() if key not in hidden}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    seen = {}
    for path in ("/servers/detail", "/flavors/detail", "/os-keypairs", "/limits", f"/os-quota-sets/{user.project_id}"):
        seen[path] = plain(user.get(path))
    for server in seen["/servers/detail"]["servers"]:
        path = f"/servers/{server['id']}/os-instance-actions"
        seen[path] = plain(user.get(path))
    for path in ("/os-hypervisors/detail", "/os-services", "/servers/detail?all_tenants=1"):
        seen[path] = plain(admin.get(path))
    seen["images"] = plain(user.get("/images", service="/image/v2"))
    seen["projects"] = plain(admin.get("/projects", service="/identity/v3"))
    return seen


def test_a_stop_is_clean_and_a_start_finds_everything_as_it_was(ledger: LedgerProcess) -> None:
    with User(ledger, "admin", version="2.87") as admin, User(ledger) as user:
        flavor, image = admin.create_flavor("tiny"), user.upload_image()
        user("POST", "/os-keypairs", {"keypair": {"name": "mine"}}, version="2.91").raise_for_status()
        admin.set_quota(user.project_id, metadata_items=5)
        more = {"metadata": {"role": "web"}, "key_name": "mine", "user_data": "aGVsbG8="}
        servers = [user.create_server(image, flavor, f"server-{number}", **more) for number in range(4)]
        for server in servers:
            user.wait_for(server, "ACTIVE")
        user.act(servers[0], "os-stop")
        user.wait_for(servers[0], "SHUTOFF")
        user.delete_server(servers[1])
        user.wait_until_gone(servers[1])
        before, events = everything(admin, user), ledger.position()
        tokens = admin.token, user.token

    pid, url = ledger.pid, ledger.url
    assert children_of(pid) == set()
    started = monotonic()
    assert ledger.stop() == 0
    assert monotonic() - started < STOPS_WITHIN_S
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(httpx.TransportError):
        httpx.get(url)

    ledger.start()
    with User(ledger, "admin", version="2.87") as admin, User(ledger) as user:
        admin.token, user.token = tokens  # given out before the stop
        assert everything(admin, user) == before
        assert ledger.position() <= events + 2  # no more is recorded than that both hosts came up
        user.act(servers[0], "os-start")
        assert user.wait_for(servers[0], "ACTIVE")["name"] == "server-0"
        user.act(servers[2], "reboot", {"type": "HARD"})
        user.wait_for(servers[2], "ACTIVE")
        assert user("POST", f"/servers/{servers[3]}/action", {"os-getConsoleOutput": {}}).status_code == 200
    assert ledger.command("verify").stdout.endswith(", 0 wrong\n")


def test_nothing_accepted_is_lost_in_a_stop_under_load(ledger: LedgerProcess) -> None:
    with User(ledger, "admin") as admin, User(ledger) as user:
        flavor, image = admin.create_flavor("for the load"), user.upload_image()
        accepted: list[str] = []

        def create_until_it_ends() -> None:
            while True:
                try:
                    answer = user("POST", "/servers", server_body(image, flavor, "under load"))
                except httpx.TransportError:
                    return  # the ledger has ended
                if answer.status_code == 503:
                    return  # it is about to
                assert answer.status_code == 202, answer.text
                accepted.append(answer.json()["server"]["id"])

        with ThreadPoolExecutor(4) as clients:
            working = [clients.submit(create_until_it_ends) for _ in range(4)]
            eventually(lambda: len(accepted) > 20, "servers are being made")
            assert ledger.stop() == 0
            for future in working:
                future.result()
    ledger.start()
    with User(ledger) as user:
        statuses = {server["id"]: server["status"] for server in user.servers()}
        assert set(accepted) <= set(statuses)
        for server in accepted:
            user.wait_for(server, *SETTLED)
            user.delete_server(server)
        for server in accepted:
            user.wait_until_gone(server)


def test_a_read_includes_every_write_that_was_answered_before_it(ledger: LedgerProcess) -> None:
    """200 writes, each followed by reads of others and of the same thread."""
    written, lock = set[str](), threading.Lock()
    with User(ledger, "admin") as admin, User(ledger) as user:
        image, flavor = user.upload_image(), admin.create_flavor("read your writes")

        def listed(*, at_least: set[str], without: set[str]) -> None:
            found = {server["id"] for server in user.servers()}
            assert at_least <= found
            assert not without & found

        def write_and_read(number: int) -> None:
            for step in range(WRITES_EACH):
                with lock:
                    known = set(written)
                if step % 5 == 4:
                    name = f"flavor-{number}-{step}"
                    admin.create_flavor(name)
                    assert user("GET", f"/flavors/{name}").status_code == 200
                    listed(at_least=known, without=set())
                    continue
                server = user.create_server(image, flavor, f"server-{number}-{step}")
                with lock:
                    written.add(server)
                assert user.server(server)["name"] == f"server-{number}-{step}"
                listed(at_least=known | {server}, without=set())

        with ThreadPoolExecutor(WRITERS) as threads:
            for done in [threads.submit(write_and_read, number) for number in range(WRITERS)]:
                done.result()
        for server in written:
            user.wait_for(server, *SETTLED)
            user.delete_server(server)
        eventually(lambda: not written & {server["id"] for server in user.servers()}, "all are gone", within_s=60)
        assert user.quota_use()["instances"] == len(user.servers())


def refusal(start: Callable[[], object]) -> DidNotStart:
    """How a start that cannot be ends: with one line, and no traceback."""
    with pytest.raises(DidNotStart) as refused:
        start()
    (line,) = refused.value.errors.splitlines()
    assert line.startswith("compute-ledger: ")
    return refused.value


def test_a_second_process_on_the_same_directory_is_refused(ledger: LedgerProcess) -> None:
    second = LedgerProcess(ledger.directory.parent, hosts=2)
    second.log_file = ledger.directory.parent / "second.log"
    refused = refusal(second.start)
    assert refused.code == 1
    assert f"{ledger.directory} is in use by another compute-ledger process" in refused.errors
    with User(ledger) as user:
        user.servers()  # the first one goes on


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("[fake]\nvcpu = 4\n", "[fake] has no option vcpu (perhaps vcpus)"),
        ("[fakes]\nvcpus = 4\n", "there is no section [fakes] (perhaps [fake])"),
        ("[fake]\nvcpus = many\n", "[fake] vcpus: "),
        ("[fake]\nvcpus = 0\n", "[fake] vcpus: "),
        ("[DEFAULT]\ncpu_allocation_ratio = nan\n", "cpu_allocation_ratio: not a finite number"),
        ("vcpus\n", "compute-ledger.conf"),
        ("\udcff\udcfe", "compute-ledger.conf"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(tmp_path: Path, settings: str, told: str) -> None:
    ledger = LedgerProcess(tmp_path, settings="x")
    (tmp_path / "compute-ledger.conf").write_bytes(settings.encode(errors="surrogateescape"))
    refused = refusal(ledger.start)
    assert refused.code == 2
    assert told in refused.errors
    assert not ledger.directory.exists()


def test_a_taken_port_is_named_in_one_line(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = refusal(LedgerProcess(tmp_path, listen=address).start)
    assert refused.code == 2
    assert f"cannot listen on {address}: Address already in use" in refused.errors


@pytest.mark.parametrize("address", ["here", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:²", "192.0.2.1:0"])
def test_an_address_that_is_none_is_named_in_one_line(tmp_path: Path, address: str) -> None:
    refused = refusal(LedgerProcess(tmp_path, listen=address).start)
    assert refused.code == 2
    assert address in refused.errors


@pytest.mark.parametrize("file", ["identity.toml", "token.key", "vault.key", "ledger.db"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, file: str) -> None:
    with running_ledger(tmp_path) as ledger:
        assert ledger.stop() == 0
        (ledger.directory / file).write_bytes(b"\xff damaged \x00" * 100)
        refused = refusal(ledger.start)
        assert refused.code == 1
        assert file in refused.errors or file == "ledger.db"  # SQLite's own words


def test_a_host_keeps_its_name_when_there_are_fewer_of_them(tmp_path: Path) -> None:
    with running_ledger(tmp_path, hosts=2) as ledger:
        with User(ledger, "admin") as admin:
            first, second = admin.get("/os-services")["services"]
        ledger.stop()
        ledger.arguments[ledger.arguments.index("--hosts") + 1] = "1"
        ledger.start()
        eventually(lambda: ledger.recorded("service.came_up") == 3, "the first host is up again")
        with User(ledger, "admin") as admin:
            services = {service["id"]: service["host"] for service in admin.get("/os-services")["services"]}
        assert services == {first["id"]: first["host"], second["id"]: second["host"]}


def test_a_hypervisor_that_is_not_there_is_named_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("libvirt")
    uri = f"test+unix:///default?socket={tmp_path}/nobody"
    refused = refusal(LedgerProcess(tmp_path, driver="test", libvirt_uri=uri).start)
    assert refused.code == 1
    assert uri in refused.errors


def test_a_directory_stays_with_its_driver(tmp_path: Path) -> None:
    with running_ledger(tmp_path, driver="fake"):
        pass
    refused = refusal(LedgerProcess(tmp_path, driver="test").start)
    assert refused.code == 1
    assert "--driver fake" in refused.errors


def test_a_configuration_file_that_is_not_there_is_named_in_one_line(tmp_path: Path) -> None:
    ledger = LedgerProcess(tmp_path)
    ledger.arguments += ["--config-file", str(tmp_path / "none.conf")]
    refused = refusal(ledger.start)
    assert refused.code == 2
    assert "none.conf" in refused.errors
