"""Secrets and personal data after a whole life: looked for in every byte the ledger left on disk, and in all it logged.

A canary is a text that occurs nowhere else. Each test looks for canaries in the forms in which they could have been
written: as they are, in base64 at any offset, in hexadecimal, as JSON escapes them, and in UTF-16.
"""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support.http_client import User
from tests.support.hypervisors import BOOT_LIMIT_S, GuestImages, PrivateLibvirtd, eventually
from tests.support.ledger_process import LedgerProcess, running_ledger

SECRETS = {
    "user data": "canary-9f27-user-data",
    "given password": "canary-41c8-given-password",
    "changed password": "canary-5d10-changed-password",
    "file": "canary-d0a3-file-content",
    "file path": "/etc/canary-5b6e-file-path",
}
PERSONAL = {
    "server name": "canary-77aa-server-name",
    "hostname": "canary-60be-hostname",
    "description": "canary-2c19-description",
    "metadata value": "canary-e4d5-metadata-value",
    "metadata key": "canary-8a01-metadata-key",
    "tag": "canary-b3f2-tag",
    "key name": "canary-19cc-key-name",
    "key comment": "canary-f6e7-key-comment",
    "other server name": "canary-a55a-other-server",
    "new name": "canary-c0b1-new-name",
    "lock reason": "canary-97e2-lock-reason",
    "new metadata": "canary-3ad8-new-metadata",
    "new tag": "canary-0fb9-new-tag",
}


@dataclass(frozen=True, slots=True)
class Life:
    """What is left of a ledger that saw a whole life, while it runs on."""

    ledger: LedgerProcess
    generated_passwords: tuple[str, ...]
    tokens: tuple[str, ...]
    kept: str  # a server with all canaries that was not deleted

    @property
    def secrets(self) -> dict[str, str]:
        made = {f"password {number}": text for number, text in enumerate(self.generated_passwords)}
        return SECRETS | made | {f"token {number}": text for number, text in enumerate(self.tokens)}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with running_ledger(tmp_path_factory.mktemp("secrets")) as ledger, User(ledger, "admin") as admin:
        flavor = admin.create_flavor("tiny")
        with User(ledger) as user:
            image = user.upload_image()
            passwords, kept = lived(user, flavor, image)
            refused(user, flavor, image)
            tokens = (user.token, admin.token)
        ledger.stop()
        ledger.start()  # what a start writes is looked at too
        yield Life(ledger, passwords, tokens, kept)


def lived(user: User, flavor: str, image: str) -> tuple[tuple[str, ...], str]:
    """The passwords that were made for servers, and the id of the server that is left."""
    key = {"keypair": {"name": PERSONAL["key name"], "public_key": public_key(PERSONAL["key comment"])}}
    assert user("POST", "/os-keypairs", key).status_code == 201
    servers = [create(user, flavor, image, version) for version in ("2.96", "2.1", "2.96")]
    answer = user("POST", "/servers", {"server": base(flavor, image, PERSONAL["other server name"])})
    generated = answer.json()["server"]["adminPass"]
    servers.append(answer.json()["server"]["id"])
    for server in servers:
        user.wait_for(server, "ACTIVE")
        user.get(f"/servers/{server}")
        assert user("POST", f"/servers/{server}/action", {"os-getConsoleOutput": {}}).status_code == 200
    user.act(servers[0], "os-stop")
    user.wait_for(servers[0], "SHUTOFF")
    user.act(servers[0], "os-start")
    user.wait_for(servers[0], "ACTIVE")
    user.act(servers[1], "reboot", {"type": "HARD"})
    user.wait_for(servers[1], "ACTIVE")
    changed(user, servers[1])
    user.servers(name=PERSONAL["server name"])
    user.get(f"/os-keypairs/{PERSONAL['key name']}")
    for server in servers[:2]:
        user.delete_server(server)
        user.wait_until_gone(server)
    return (generated,), servers[2]


def changed(user: User, server: str) -> None:
    """All that can be changed of a server with words of its user's."""
    path = f"/servers/{server}"
    assert user("PUT", path, {"server": {"name": PERSONAL["new name"]}}).status_code == 200
    assert user("POST", f"{path}/metadata", {"metadata": {"key": PERSONAL["new metadata"]}}).status_code == 200
    assert user("PUT", f"{path}/tags/{PERSONAL['new tag']}", None).status_code == 201
    user.act(server, "changePassword", {"adminPass": SECRETS["changed password"]})
    user.wait_for(server, "ACTIVE")
    user.act(server, "lock", {"locked_reason": PERSONAL["lock reason"]})
    user.act(server, "unlock")


def create(user: User, flavor: str, image: str, version: str) -> str:
    server = base(flavor, image, PERSONAL["server name"]) | {
        "adminPass": SECRETS["given password"],
        "user_data": base64.b64encode(SECRETS["user data"].encode()).decode(),
        "key_name": PERSONAL["key name"],
        "metadata": {PERSONAL["metadata key"]: PERSONAL["metadata value"]},
    }
    if version == "2.1":
        contents = base64.b64encode(SECRETS["file"].encode()).decode()
        server |= {"personality": [{"path": SECRETS["file path"], "contents": contents}], "networks": []}
    else:
        more = {"hostname": PERSONAL["hostname"], "description": PERSONAL["description"], "tags": [PERSONAL["tag"]]}
        server |= more
    answer = user("POST", "/servers", {"server": server}, version=version)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["server"]["id"])


def base(flavor: str, image: str, name: str) -> dict[str, object]:
    return {"name": name, "imageRef": image, "flavorRef": flavor, "networks": "auto"}


def refused(user: User, flavor: str, image: str) -> None:
    """Requests that fail are logged and answered too."""
    body = base(flavor, image, PERSONAL["server name"]) | {"adminPass": SECRETS["given password"]}
    for wrong in ({"flavorRef": "none"}, {"bogus": 1}, {"key_name": PERSONAL["key name"] + "-none"}, {"name": None}):
        assert user("POST", "/servers", {"server": body | wrong}).status_code == 400
    assert user("GET", f"/servers?name={PERSONAL['server name']}&bogus=1").status_code == 400
    assert user("GET", f"/os-keypairs/{PERSONAL['key name']}-none").status_code == 404
    assert user("GET", f"/servers/{PERSONAL['server name']}").status_code == 404
    assert user("GET", "/servers", headers={"X-Auth-Token": user.token + "x"}).status_code == 401


def public_key(comment: str) -> str:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{text.decode()} {comment}"


def forms(canary: str) -> set[bytes]:
    """The ways in which a text may be written."""
    raw = canary.encode()
    found = {raw, raw.hex().encode(), canary.encode("utf-16-le"), canary.encode("utf-16-be")}
    for offset in range(3):  # base64, at any place among other bytes
        encoded = base64.b64encode(b"\0" * offset + raw)
        start = -(-offset * 4 // 3)
        found.add(encoded[start : len(encoded) - 4])
    return found


def holding(directory: Path, canaries: dict[str, str]) -> dict[str, set[str]]:
    """Which files under a directory hold which canaries."""
    found: dict[str, set[str]] = {}
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for name, canary in canaries.items():
            if any(form in content for form in forms(canary)):
                found.setdefault(str(file.relative_to(directory)), set()).add(name)
    return found


def test_the_canaries_would_be_found(life: Life, tmp_path: Path) -> None:
    for name, canary in (life.secrets | PERSONAL).items():
        for number, form in enumerate(forms(canary)):
            (tmp_path / "file").write_bytes(b"x" * (7 + number) + form + b"y" * 9)
            assert holding(tmp_path, {name: canary}) == {"file": {name}}
        (tmp_path / "file").write_bytes(base64.b64encode(b"before" + canary.encode() + b"after"))
        assert holding(tmp_path, {name: canary}) == {"file": {name}}


def test_no_secret_is_on_disk_in_the_clear(life: Life) -> None:
    assert holding(life.ledger.directory, life.secrets) == {}


def test_secrets_are_sealed_in_the_vault_and_go_with_their_server(life: Life) -> None:
    path = life.ledger.directory / "ledger.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        owners = {owner for (owner,) in database.execute("SELECT owner FROM vault_payloads")}
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert f"instance:{life.kept}" in owners
    assert len(owners) == 2  # of the two servers that are left
    assert {"stored_events", "commands_done", "snapshots", "vault_keys", "vault_payloads"} <= tables


def test_names_keys_and_metadata_are_not_in_the_ledger_in_the_clear(life: Life) -> None:
    found = holding(life.ledger.directory, PERSONAL)
    assert {file for file in found if file.startswith("ledger.db")} == set()
    # A view can be dropped; a host's orders are its own, as are its guests: nothing else may hold them.
    assert {file.partition(".db")[0] for file in found if not file.startswith("hosts/")} <= {"views", "messages"}


def test_the_log_shows_neither_secrets_nor_personal_data(life: Life) -> None:
    logged = life.ledger.log_file.parent
    found = {file: names for file, names in holding(logged, life.secrets | PERSONAL).items() if "data/" not in file}
    assert found == {}
    assert life.ledger.log_file.stat().st_size > 1000  # there is a log to speak of


def test_listing_events_shows_no_secret(life: Life) -> None:
    listed = life.ledger.command("events", "--limit", "100000").stdout
    assert PERSONAL["server name"] in listed  # an operator may see these, and is told so
    shown = {name for name, canary in life.secrets.items() for form in forms(canary) if form in listed.encode()}
    assert shown == set()


def test_files_are_for_their_owner_alone(life: Life) -> None:
    assert life.ledger.directory.stat().st_mode & 0o077 == 0
    for name in ("vault.key", "token.key", "identity.toml", "clouds.yaml"):
        assert (life.ledger.directory / name).stat().st_mode & 0o077 == 0


@pytest.mark.qemu
def test_a_real_guest_has_its_secrets_on_its_own_config_drive_and_nowhere_else(
    libvirtd: PrivateLibvirtd, guest_images: GuestImages, tmp_path: Path
) -> None:
    with (
        running_ledger(tmp_path, driver="libvirt", libvirt_uri=libvirtd.qemu_uri) as ledger,
        User(ledger, "admin") as admin,
        User(ledger) as user,
    ):
        flavor = admin.create_flavor("tiny", ram=128)
        kernel = user.upload_image("kernel", guest_images.kernel.read_bytes())
        ramdisk = user.upload_image("ramdisk", guest_images.ramdisk.read_bytes())
        boot = {"kernel_id": kernel, "ramdisk_id": ramdisk, "os_command_line": "console=ttyS0 no_timer_check"}
        image = user.upload_image("disk", guest_images.blank.read_bytes(), **boot, disk_format="qcow2")
        key = {"keypair": {"name": PERSONAL["key name"], "public_key": public_key(PERSONAL["key comment"])}}
        assert user("POST", "/os-keypairs", key).status_code == 201
        server = create(user, flavor, image, "2.1")
        user.wait_for(server, "ACTIVE", within_s=BOOT_LIMIT_S)
        secrets = SECRETS | {"token": user.token}
        own = f"hosts/1/instances/{server}/"
        found = holding(ledger.directory, secrets)
        assert {file for file in found if not file.startswith(own)} == set()
        assert set().union(*found.values()) == set(SECRETS) - {"changed password"}  # here none is
        assert ledger.directory.stat().st_mode & 0o077 == 0
        user.delete_server(server)
        user.wait_until_gone(server, within_s=BOOT_LIMIT_S)
        eventually(lambda: holding(ledger.directory, secrets) == {}, "all of it is gone with the guest")
        assert holding(tmp_path, SECRETS) == {}
