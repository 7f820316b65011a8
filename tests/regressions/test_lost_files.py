"""Files of a data directory that were lost, damaged, or put back without the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.http_client import User
from tests.support.hypervisors import eventually
from tests.support.ledger_process import DidNotStart, LedgerProcess, running_ledger


def begun(ledger: LedgerProcess) -> str:
    """A ledger with one active server; its id."""
    with User(ledger, "admin") as admin, User(ledger) as user:
        flavor = admin.create_flavor("small")
        server = user.create_server(user.upload_image(), flavor)
        user.wait_for(server, "ACTIVE")
    return server


def refused(ledger: LedgerProcess) -> str:
    with pytest.raises(DidNotStart) as refusal:
        ledger.start()
    [line] = refusal.value.errors.splitlines()
    assert refusal.value.code == 1
    return line


def remove(directory: Path, name: str) -> None:
    for path in directory.glob(f"{name}*"):
        path.unlink()


def test_a_host_whose_journal_is_lost_is_the_same_host(tmp_path: Path) -> None:
    with running_ledger(tmp_path) as ledger:
        server = begun(ledger)
        ledger.stop()
        remove(ledger.host_directory(), "journal.db")
        ledger.start()

        with User(ledger, "admin") as admin, User(ledger) as user:
            assert len(admin.get("/os-services")["services"]) == 1
            assert len(admin.get("/os-hypervisors")["hypervisors"]) == 1
            user.delete_server(server)
            user.wait_until_gone(server)


def test_another_master_key_is_never_made_in_place_of_a_lost_one(tmp_path: Path) -> None:
    with running_ledger(tmp_path) as ledger:
        server = begun(ledger)
        ledger.stop()
        key = ledger.directory / "vault.key"
        kept = key.read_bytes()
        key.unlink()
        assert "vault.key is missing" in refused(ledger)
        assert not key.exists()

        key.write_bytes(b"k" * 32)
        assert "not the key" in refused(ledger)

        key.write_bytes(kept)
        ledger.start()
        with User(ledger) as user:
            user.delete_server(server)
            user.wait_until_gone(server)


def test_a_ledger_put_back_without_the_files_beside_it_is_refused(tmp_path: Path) -> None:
    with running_ledger(tmp_path) as ledger:
        ledger.stop()
        shutil.copy(ledger.directory / "ledger.db", tmp_path / "older.db")
        ledger.start()
        begun(ledger)
        ledger.stop()
        remove(ledger.directory, "ledger.db")
        shutil.copy(tmp_path / "older.db", ledger.directory / "ledger.db")

        assert "put the whole directory back" in refused(ledger)


def test_views_that_tell_of_a_future_are_built_again(tmp_path: Path) -> None:
    with running_ledger(tmp_path) as ledger:
        ledger.stop()
        for name in ("ledger.db", "messages.db"):
            shutil.copy(ledger.directory / name, tmp_path / name)
        ledger.start()
        begun(ledger)
        ledger.stop()
        for name in ("ledger.db", "messages.db"):
            remove(ledger.directory, name)
            shutil.copy(tmp_path / name, ledger.directory / name)
        ledger.start()

        with User(ledger) as user:
            assert user.servers() == []


def test_views_that_cannot_be_read_are_built_again(tmp_path: Path) -> None:
    with running_ledger(tmp_path) as ledger:
        server = begun(ledger)
        ledger.stop()
        remove(ledger.directory, "views.db")
        (ledger.directory / "views.db").write_bytes(b"\xff no views \x00" * 1000)
        ledger.start()

        with User(ledger) as user:
            eventually(lambda: [s["id"] for s in user.servers()] == [server], "the server is shown again")


@pytest.mark.parametrize("file", ["messages.db", "hosts/1/journal.db"])
def test_a_damaged_file_that_holds_more_than_views_is_named(tmp_path: Path, file: str) -> None:
    with running_ledger(tmp_path) as ledger:
        ledger.stop()
        remove(ledger.directory, file)
        (ledger.directory / file).write_bytes(b"\xff damaged \x00" * 1000)

        assert file in refused(ledger)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("changes-since=9999-12-31T23:59:59-23:00", 400),
        ("changes-since=0001-01-01T00:00:00%2B23:00", 400),
        ("tags=" + ",".join(f"t{n}" for n in range(3000)), 200),
        ("not-tags-any=" + "a," * 3000, 200),
    ],
    ids=["after the calendar", "before the calendar", "many tags", "the same tag"],
)
def test_a_list_that_asks_for_much_is_no_server_error(tmp_path: Path, query: str, status: int) -> None:
    with running_ledger(tmp_path) as ledger, User(ledger) as user:
        assert user("GET", f"/servers?{query}").status_code == status
