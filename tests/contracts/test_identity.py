"""What every identity must do; then what the standalone one does besides with its files."""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commands.neighbours.identity import Identity
from commands.neighbours.standalone.accounts import Accounts, AccountsInvalid, User
from commands.neighbours.standalone.identity import LoginRefused, Scope, StandaloneIdentity
from commands.neighbours.standalone.passwords import (
    MEMORY_COST_KIB,
    NOBODYS_HASH,
    TIME_COST,
    hash_password,
    password_matches,
)

AUTH_URL = "http://127.0.0.1:8774/identity/v3"
LIFETIME_S = 3600


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(tmp_path: Path, clock: Clock) -> Callable[[], StandaloneIdentity]:
    return lambda: StandaloneIdentity(tmp_path, auth_url=AUTH_URL, token_lifetime_s=LIFETIME_S, clock=clock)


@pytest.fixture
def standalone(start: Callable[[], StandaloneIdentity]) -> StandaloneIdentity:
    return start()


def user(identity: StandaloneIdentity, name: str) -> User:
    return identity.accounts.users_by_name[name]


def project_id(identity: StandaloneIdentity, name: str) -> str:
    return identity.accounts.projects_by_name[name].id


def token_of(identity: StandaloneIdentity, name: str) -> str:
    token, _ = identity.issue(user(identity, name), Scope(project_id=project_id(identity, name)), ("password",))
    return token


def alter_user(identity: StandaloneIdentity, name: str, **changes: object) -> None:
    def altered(accounts: Accounts) -> Accounts:
        after: User = replace(accounts.users_by_name[name], **changes)  # type: ignore[arg-type]
        return replace(accounts, users={**accounts.users, after.id: after})

    identity.change_accounts(altered)


# the port


@pytest.fixture
def identity_and_token(standalone: StandaloneIdentity) -> tuple[Identity, str]:
    return standalone, token_of(standalone, "demo")


def test_a_valid_token_says_who_asks_and_for_which_project(identity_and_token: tuple[Identity, str]) -> None:
    identity, token = identity_and_token
    credentials = identity.validate(token)
    assert credentials is not None
    assert (credentials.user_name, credentials.project_name) == ("demo", "demo")
    assert credentials.roles == ("member", "reader")
    assert identity.validate(token) == credentials


def test_what_is_no_token_is_nobodys(identity_and_token: tuple[Identity, str]) -> None:
    identity, token = identity_and_token
    for other in ("", "nonsense", token[:-2], token + "A", "\N{SNOWMAN}", "\udc80"):
        assert identity.validate(other) is None


def test_a_project_is_there_or_not(identity_and_token: tuple[Identity, str]) -> None:
    identity, token = identity_and_token
    credentials = identity.validate(token)
    assert credentials is not None
    assert credentials.project_id is not None
    assert identity.project_exists(credentials.project_id)
    assert not identity.project_exists("0" * 32)


# tokens of the standalone identity


def test_a_token_outlives_a_restart(start: Callable[[], StandaloneIdentity]) -> None:
    before = start()
    token = token_of(before, "admin")
    assert start().validate(token) == before.validate(token)


def test_a_token_expires(standalone: StandaloneIdentity, clock: Clock) -> None:
    token = token_of(standalone, "demo")
    clock.now += LIFETIME_S - 1
    assert standalone.validate(token)
    clock.now += 1
    assert standalone.validate(token) is None


def test_a_token_made_from_a_token_expires_with_it(standalone: StandaloneIdentity, clock: Clock) -> None:
    demo = user(standalone, "demo")
    _, parent = standalone.issue(demo, Scope(), ("password",))
    clock.now += 100
    _, child = standalone.issue(demo, Scope(project_id=project_id(standalone, "demo")), ("password", "token"), parent)
    assert child.expires_at == parent.expires_at
    assert child.audit_ids[-1] == parent.audit_id


def test_a_revoked_token_stays_revoked_after_a_restart(start: Callable[[], StandaloneIdentity]) -> None:
    identity = start()
    token, other = token_of(identity, "demo"), token_of(identity, "demo")
    identity.validate(token)
    identity.revoke(token)
    assert identity.validate(token) is None
    assert identity.validate(other) is not None
    assert start().validate(token) is None


def test_a_revocation_is_forgotten_once_its_token_has_expired(
    start: Callable[[], StandaloneIdentity], tmp_path: Path, clock: Clock
) -> None:
    identity = start()
    identity.revoke(token_of(identity, "demo"))
    clock.now += LIFETIME_S
    start()
    assert (tmp_path / "revoked_tokens").read_bytes() == b""


def test_another_password_voids_the_tokens_given_before(standalone: StandaloneIdentity) -> None:
    token = token_of(standalone, "demo")
    assert standalone.validate(token)
    alter_user(standalone, "demo", password_hash=hash_password("another"))
    assert standalone.validate(token) is None


@pytest.mark.parametrize("change", [{"roles": {}}, {"enabled": False}])
def test_a_user_who_lost_a_role_or_was_turned_off_has_no_token_any_more(
    standalone: StandaloneIdentity, change: dict[str, object]
) -> None:
    token = token_of(standalone, "demo")
    assert standalone.validate(token)
    alter_user(standalone, "demo", **change)
    assert standalone.validate(token) is None


def test_a_role_more_shows_in_the_tokens_given_before(standalone: StandaloneIdentity) -> None:
    token = token_of(standalone, "demo")
    alter_user(standalone, "demo", roles={project_id(standalone, "demo"): ("member", "service")})
    credentials = standalone.validate(token)
    assert credentials is not None
    assert "service" in credentials.roles


def test_a_token_is_refused_where_its_user_has_no_role(standalone: StandaloneIdentity) -> None:
    for scope in (Scope(project_id=project_id(standalone, "admin")), Scope(system=True)):
        with pytest.raises(LoginRefused):
            standalone.issue(user(standalone, "demo"), scope, ("password",))
    _, claims = standalone.issue(user(standalone, "admin"), Scope(system=True), ("password",))
    assert claims.system


# passwords and files


def test_only_the_right_password_of_a_user_that_is_there_logs_in(standalone: StandaloneIdentity) -> None:
    alter_user(standalone, "demo", password_hash=hash_password("right"))
    demo = user(standalone, "demo")
    assert standalone.log_in(demo, "right") == demo
    for who, password in ((demo, "wrong"), (None, "right"), (replace(demo, enabled=False), "right")):
        with pytest.raises(LoginRefused):
            standalone.log_in(who, password)


def test_nobody_is_checked_at_the_cost_of_somebody() -> None:
    assert f"m={MEMORY_COST_KIB},t={TIME_COST},p=1" in NOBODYS_HASH
    assert f"m={MEMORY_COST_KIB},t={TIME_COST},p=1" in hash_password("x")
    assert not password_matches(None, "x")


def test_everything_is_as_it_was_after_a_restart(start: Callable[[], StandaloneIdentity], tmp_path: Path) -> None:
    accounts = start().accounts
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert start().accounts == accounts
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_its_files_are_for_their_owner_only_and_hold_no_password_but_in_clouds_yaml(
    standalone: StandaloneIdentity, tmp_path: Path
) -> None:
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"identity.toml", "token.key", "clouds.yaml", "revoked_tokens", "identity.lock"}
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = (tmp_path / "clouds.yaml").read_text().splitlines()
    passwords = [line.split('"')[1] for line in lines if "password:" in line]
    assert len(set(passwords)) == 2
    assert not any(word in (tmp_path / "identity.toml").read_text() for word in passwords)
    assert standalone.log_in(user(standalone, "admin"), passwords[0])


def test_another_address_is_written_to_clouds_yaml_and_nothing_else_there_changes(
    standalone: StandaloneIdentity, tmp_path: Path
) -> None:
    clouds = tmp_path / "clouds.yaml"
    theirs = "  elsewhere:\n    auth:\n      auth_url: https://elsewhere/v3\n"
    clouds.write_text(clouds.read_text() + theirs)
    before = clouds.read_text()
    StandaloneIdentity(tmp_path, auth_url="http://new:1/identity/v3")
    assert clouds.read_text() == before.replace(AUTH_URL, "http://new:1/identity/v3")


def test_an_operators_edit_is_picked_up_while_running(standalone: StandaloneIdentity, tmp_path: Path) -> None:
    token = token_of(standalone, "demo")
    assert standalone.validate(token)
    file = tmp_path / "identity.toml"
    file.write_text(file.read_text() + '\n[projects.research]\nid = "research-id"\n')
    assert standalone.project_exists("research-id")
    assert standalone.validate(token)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ("[users", "not TOML"),
        ("[projects.x]\nname = 1\n", "unknown key 'name'"),
        ('[users.x]\nid = "x"\npassword_hash = "secret"\n', "password_hash is not an argon2 hash"),
        ('[projects.a]\nid = "1"\n[projects.b]\nid = "1"\n', "an id is used twice"),
        (f"[users.x]\nid = 'x'\npassword_hash = '{NOBODYS_HASH}'\nroles = {{ y = [] }}\n", "no project 'y'"),
        (f"[users.x]\nid = 'x'\npassword_hash = '{NOBODYS_HASH}'\nsystem_roles = ['y']\n", "no role 'y'"),
    ],
)
def test_a_broken_edit_is_one_clear_line_and_what_was_said_before_stays_in_force(
    start: Callable[[], StandaloneIdentity],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    complaint: str,
) -> None:
    identity = start()
    token, accounts = token_of(identity, "demo"), identity.accounts
    (tmp_path / "identity.toml").write_text(broken)
    with caplog.at_level(logging.ERROR):
        assert identity.validate(token)
        assert identity.accounts == accounts
    (record,) = caplog.records
    assert complaint in record.getMessage()
    assert "\n" not in record.getMessage()
    assert "secret" not in record.getMessage()
    with pytest.raises(AccountsInvalid, match=complaint):
        identity.change_accounts(lambda before: before)
    assert (tmp_path / "identity.toml").read_text() == broken
    with pytest.raises(AccountsInvalid, match=complaint):
        start()


# another process over the same directory


@pytest.fixture
def other(standalone: StandaloneIdentity, start: Callable[[], StandaloneIdentity]) -> StandaloneIdentity:
    return start()


def test_a_token_of_one_process_is_valid_at_the_others_until_any_of_them_revokes_it(
    standalone: StandaloneIdentity, other: StandaloneIdentity
) -> None:
    for issuer, revoker, third in ((standalone, other, standalone), (standalone, standalone, other)):
        token, unharmed = token_of(issuer, "demo"), token_of(issuer, "demo")
        assert third.validate(token) == revoker.validate(token) is not None
        revoker.revoke(token)
        assert third.validate(token) is None
        assert third.claims(token) is None
        assert third.validate(unharmed)


def test_no_revocation_is_lost_to_another_process_that_drops_the_expired_ones(
    start: Callable[[], StandaloneIdentity], clock: Clock
) -> None:
    first, watching = start(), start()
    revoked = []
    for _ in range(4):
        first.revoke(token_of(first, "demo"))
        clock.now += LIFETIME_S  # the one above has expired, and the next start drops it
        revoked.append(token_of(first, "demo"))
        first.revoke(revoked[-1])
        start()
        clock.now += 1
        revoked.append(token_of(first, "demo"))
        first.revoke(revoked[-1])
        start()
        clock.now -= LIFETIME_S + 1
    clock.now += LIFETIME_S
    for identity in (watching, first, start()):
        assert [identity.validate(token) for token in revoked] == [None] * len(revoked)


def test_a_file_of_revocations_is_not_taken_for_the_one_it_stands_in_for(
    start: Callable[[], StandaloneIdentity], clock: Clock
) -> None:
    first, watching = start(), start()
    for number in range(10):
        clock.now += LIFETIME_S
        start()  # puts an empty file in the place of the last
        token = token_of(first, "demo")
        first.revoke(token)
        if number % 2:  # of three files, a file system gives the last the inode of the first
            assert watching.validate(token) is None


def test_a_revocation_that_a_crash_cut_off_does_not_spoil_the_next_one(
    standalone: StandaloneIdentity, other: StandaloneIdentity, start: Callable[[], StandaloneIdentity], tmp_path: Path
) -> None:
    cut_off, token = token_of(standalone, "demo"), token_of(standalone, "demo")
    claims = standalone.claims(cut_off)
    assert claims is not None
    with (tmp_path / "revoked_tokens").open("a") as file:
        file.write(claims.audit_id[:7])
    assert other.validate(cut_off)
    standalone.revoke(token)
    for identity in (standalone, other, start()):
        assert identity.validate(token) is None
        assert identity.validate(cut_off)


def test_what_was_revoked_stays_so_when_the_file_is_emptied_or_taken_away(
    standalone: StandaloneIdentity, other: StandaloneIdentity, tmp_path: Path
) -> None:
    first, second, third = (token_of(standalone, "demo") for _ in range(3))
    standalone.revoke(first)
    assert other.validate(first) is None
    os.truncate(tmp_path / "revoked_tokens", 0)
    assert other.validate(first) is None
    standalone.revoke(second)
    assert other.validate(second) is None
    (tmp_path / "revoked_tokens").unlink()
    assert other.validate(second) is None
    standalone.revoke(third)
    assert [other.validate(token) for token in (first, second, third)] == [None] * 3


def test_changes_of_accounts_through_several_processes_are_all_kept_and_seen(
    standalone: StandaloneIdentity, other: StandaloneIdentity
) -> None:
    token = token_of(standalone, "demo")
    assert other.validate(token)
    alter_user(standalone, "admin", email="admin@example.org")
    alter_user(other, "demo", description="another's change")
    assert standalone.accounts == other.accounts
    assert user(other, "admin").email == "admin@example.org"
    assert user(standalone, "demo").description == "another's change"
    alter_user(standalone, "demo", enabled=False)
    assert other.validate(token) is None


def test_every_change_of_accounts_is_seen_however_soon_it_follows_and_however_alike_it_is(
    standalone: StandaloneIdentity, other: StandaloneIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    for number in range(10, 60):
        alter_user(standalone, "demo", description=f"{number} a")
        alter_user(standalone, "demo", description=f"{number} b")
        assert user(other, "demo").description == f"{number} b"


def test_a_change_that_cannot_be_read_for_want_of_descriptors_is_read_once_it_can(
    standalone: StandaloneIdentity, other: StandaloneIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_of(standalone, "demo")
    assert other.validate(token)
    alter_user(standalone, "demo", enabled=False)

    def no_descriptor_left(*_: object, **__: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", no_descriptor_left)
        with pytest.raises(OSError, match="Too many"):
            other.validate(token)
    assert other.validate(token) is None
