"""What `compute-ledger` says to an operator who asks for what cannot be: one plain line, and exit code 2."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from tests.support.postgresql import database, postgresql

__all__ = ["database", "postgresql"]

AGENT = ("--role", "agent", "--kafka", "kafka.example:9092", "--credential", "credential.json")
RELAY = ("--role", "relay", "--kafka", "kafka.example:9092")
ANY_PORT = ("--listen", "127.0.0.1:0")
OF_PYTHON = ("Errno", "Traceback", "Value error", "Input should be", "invalid literal", "Error(")


@pytest.fixture(autouse=True)
def nothing_else_is_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("STORE", "KAFKA"):
        monkeypatch.delenv(f"COMPUTE_LEDGER_{name}", raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def refused(*arguments: str) -> str:
    """What was said last."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    said = result.output.strip().splitlines()[-1]
    assert not any(words in result.output for words in OF_PYTHON), result.output
    assert said.startswith(("compute-ledger: ", "Error: ")), result.output
    return said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "here"), "cannot listen on here: it is not HOST:PORT"),
        (("--listen", "..:80"), "cannot listen on ..:80: "),
        (("--listen", "127.0.0.1:65536"), "cannot listen on 127.0.0.1:65536: it is not HOST:PORT"),
        (("--metrics", "9109"), "cannot listen on 9109: it is not HOST:PORT"),
        (("--libvirt-uri", "system"), "--libvirt-uri system is not a URI of libvirt's"),
        (("--hosts", "two"), "'--hosts': 'two' is not a whole number from 1 to 64"),
        (("--hosts", "65"), "'--hosts': '65' is not a whole number from 1 to 64"),
        (("--driver", "xen"), "'--driver': 'xen' is not one of fake, test, libvirt"),
        (("--role", "conductor"), "'--role': 'conductor' is not one of gateway, managers,"),
        (
            (*AGENT, "--gateway", "gateway.example:8774"),
            "--gateway gateway.example:8774 is not http://HOST:PORT or https",
        ),
        ((*AGENT, "--gateway", "http://g:1", "--gateway", "ftp://g"), "--gateway ftp://g is not http://HOST:PORT"),
        ((*AGENT, "--gateway", "https://g:port"), "--gateway https://g:port is not http://HOST:PORT"),
        (AGENT, "the role agent needs --credential FILE and --gateway URL, or [agent] in a file"),
        ((*RELAY[:2], "--kafka", "kafka.example"), "bootstrap_servers is not HOST:PORT, or several with commas"),
        ((*RELAY, "--store", "sqlite:///ledger.db"), "the store's URL is not a URL of PostgreSQL: postgresql://"),
        ((*RELAY, "--store", "postgresql://db.example:port/ledger"), "the store's URL has a port that is none"),
        (
            (*RELAY, "--store", "postgresql://db.example/ledger?sslmode=full"),
            "the store's URL has an sslmode that is none",
        ),
        (RELAY, "there is no store: --store postgresql://…, COMPUTE_LEDGER_STORE, or [database] connection in a"),
        (RELAY[:2], "there is no Kafka: --kafka HOST:PORT, COMPUTE_LEDGER_KAFKA, or [kafka] bootstrap_servers in a"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_at_the_start(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    port = () if "--role" in arguments else ANY_PORT
    assert said in refused("up", "--data", str(tmp_path), *port, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*RELAY, "--listen", "127.0.0.1:0"), "--listen is not used by relay: it is for gateway alone"),
        ((*AGENT, "--hosts", "1"), "--hosts is not used by agent: it is for an embedded ledger, without --role"),
        (
            (*RELAY, "--role", "inbox", "--driver", "fake"),
            "--driver is not used by inbox, relay: it is for agent alone",
        ),
        ((*RELAY, "--libvirt-uri", "qemu:///system"), "--libvirt-uri is not used by relay"),
        ((*RELAY, "--credential", "credential.json"), "--credential is not used by relay"),
        ((*RELAY, "--gateway", "http://g:1"), "--gateway is not used by relay"),
        ((*AGENT, "--store", "postgresql://h/d"), "--store is not used by agent: it is for gateway, inbox, managers,"),
    ],
)
def test_an_option_that_no_role_of_the_process_uses_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused("up", "--data", str(tmp_path), *arguments)


def test_one_that_all_processes_are_told_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTE_LEDGER_STORE", "postgresql://h/d")
    file = tmp_path / "ledger.conf"
    file.write_text("[agent]\ncredential = credential.json\n[libvirt]\nconnection_uri = qemu:///system\n")

    assert "the role agent needs" in refused("up", "--data", str(tmp_path), "--config-file", str(file), *AGENT)


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("[metrics]\nlisten = 9109\n", (), "cannot listen on 9109: it is not HOST:PORT"),
        ("[libvirt]\nconnection_uri = system\n", (), "[libvirt] connection_uri system is not a URI of libvirt's"),
        ("[agent]\ngateways = http://g:1, g:2\n", AGENT, "[agent] gateways g:2 is not http://HOST:PORT"),
        ("[agent]\ngateways = http://g\nca_file = /nowhere\n", AGENT, "[agent] /nowhere holds no certificates"),
        ("[agent]\ngateways = http://g\n[DEFAULT]\nmy_ip = here\n", AGENT, "[DEFAULT] my_ip here is not an IP address"),
        ("[database]\nconnection = mysql://db.example/ledger\n", RELAY, "the store's URL is not a URL of PostgreSQL"),
        ("[api]\nmax_limit = many\n", (), "[api] max_limit: not a number"),
        ("[DEFAULT]\nram_allocation_ratio = many\n", (), "[DEFAULT] ram_allocation_ratio: not a number"),
    ],
)
def test_so_is_one_of_a_file(tmp_path: Path, text: str, arguments: tuple[str, ...], said: str) -> None:
    file = tmp_path / "ledger.conf"
    file.write_text(text)
    port = () if "--role" in arguments else ANY_PORT
    assert said in refused("up", "--data", str(tmp_path), "--config-file", str(file), *port, *arguments)


@pytest.mark.parametrize("roles", [(), RELAY])
def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path, roles: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refused("up", "--data", str(file), *roles).endswith(f"--data {file} is not a directory")
    assert refused("up", "--data", str(file / "in"), *roles).endswith(
        f"--data {file}/in cannot be made: Not a directory"
    )
    assert "/proc/ledger cannot be made: " in refused("up", "--data", "/proc/ledger", *roles)
    assert "/proc/self cannot be written: " in refused("up", "--data", "/proc/self", *roles)


@pytest.mark.parametrize("command", [("list",), ("enroll", "host-1"), ("revoke", "host-1")])
def test_hosts_without_a_store_are_told_where_one_may_be_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    said = refused("host", *command, "--data", str(tmp_path))
    assert (
        "only a distributed ledger has hosts on other machines, and there is no store: --store postgresql://…" in said
    )
    assert "COMPUTE_LEDGER_STORE" in said
    assert "[database] connection" in said


@pytest.mark.parametrize("command", [("host", "list"), ("verify",), ("events",), ("rebuild", "all")])
def test_an_empty_database_is_said_to_hold_no_ledger(database: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--data", str(tmp_path), "--store", database])

    assert result.exit_code == 1
    assert result.output.startswith("compute-ledger: the store holds no ledger yet; the first process that starts")
    assert not (tmp_path / "vault.key").exists()


@pytest.mark.parametrize("command", [("host", "list"), ("verify",), ("doctor", "--kafka", "127.0.0.1:1")])
def test_a_database_that_is_frozen_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # connections stand, and nobody answers
        port = frozen.getsockname()[1]
        url = f"postgresql://u:secret@127.0.0.1:{port}/d"
        result = CliRunner().invoke(app, [*command, "--data", str(tmp_path), "--store", url])

    assert result.exit_code == 1
    assert f"PostgreSQL at 127.0.0.1:{port}: connection timeout expired" in result.output
    assert "secret" not in result.output


@pytest.mark.parametrize(
    "url",
    ["u:secret%@h/d", "u:secret/secret@h/d", "u:secret@secret@h/d", "u:secret@h:port/d", "u:secret@127.0.0.1:1/d"],
)
def test_a_password_is_shown_in_no_message(tmp_path: Path, url: str) -> None:
    (tmp_path / "vault.key").write_bytes(b"k" * 32)
    for command in (("host", "list"), ("verify",), ("doctor", "--kafka", "127.0.0.1:1")):
        result = CliRunner().invoke(app, [*command, "--data", str(tmp_path), "--store", f"postgresql://{url}"])
        assert result.exit_code != 0
        assert "secret" not in result.output
        assert "Traceback" not in result.output
