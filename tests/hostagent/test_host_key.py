"""A host's credential file: read by its owner alone, and refused in one line when it is not what it should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from domain.identifiers import HostName, NodeId, ServiceId
from hostagent.host_key import CredentialInvalid, HostCredential
from hostagent.journal import HostIdentityChanged, Journal

CREDENTIAL = HostCredential(
    service_id=ServiceId(UUID(int=1)),
    host=HostName("alpha"),
    node_id=NodeId(UUID(int=2)),
    epoch=7,
    incarnation="a-ledger",
    key=Ed25519PrivateKey.generate(),
)


def put(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "host.json"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_credential_reads_as_it_was_made(tmp_path: Path) -> None:
    read = HostCredential.load(put(tmp_path, CREDENTIAL.to_json()))

    assert replace(read, key=CREDENTIAL.key) == CREDENTIAL
    assert read.public_key == CREDENTIAL.public_key
    assert read.sign(b"x") == CREDENTIAL.sign(b"x")


def test_a_credential_shows_nothing_of_its_key() -> None:
    secret = orjson.loads(CREDENTIAL.to_json())["private_key"]

    assert "key" not in repr(CREDENTIAL)
    assert secret not in repr(CREDENTIAL)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_one_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(CredentialInvalid, match="open to others"):
        HostCredential.load(put(tmp_path, CREDENTIAL.to_json(), mode))


def test_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialInvalid, match="cannot be read"):
        HostCredential.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("path", ["service_id", "host", "node_id", "epoch", "incarnation", "private_key"])
def test_one_that_lacks_something_is_refused_and_its_key_not_shown(tmp_path: Path, path: str) -> None:
    plain = orjson.loads(CREDENTIAL.to_json())
    secret = plain["private_key"]
    for damaged in ({k: v for k, v in plain.items() if k != path}, {**plain, path: [1]}):
        if path in ("host", "incarnation") and path in damaged:
            continue
        with pytest.raises(CredentialInvalid) as refused:
            HostCredential.load(put(tmp_path, orjson.dumps(damaged)))
        assert secret not in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"-----BEGIN PRIVATE KEY-----", b"\xff\xfe"])
def test_what_is_no_credential_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CredentialInvalid, match="enroll the host again"):
        HostCredential.load(put(tmp_path, content))


def test_a_new_journal_becomes_the_hosts_and_counts_on_from_its_last_session(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    CREDENTIAL.take_up(journal)
    journal.set_fact("epoch", "9")
    CREDENTIAL.take_up(journal)

    assert [journal.fact(name, "") for name in ("host", "service_id", "compute_id", "epoch")] == [
        "alpha",
        str(UUID(int=1)),
        str(UUID(int=2)),
        "9",
    ]


def test_a_new_journal_begins_after_the_session_it_was_enrolled_in(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    CREDENTIAL.take_up(journal)

    assert journal.fact("epoch", "0") == "7"


@pytest.mark.parametrize("name", ["host", "service_id", "compute_id"])
def test_another_hosts_journal_is_left_alone(tmp_path: Path, name: str) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.fact(name, "another")

    with pytest.raises(HostIdentityChanged):
        CREDENTIAL.take_up(journal)
