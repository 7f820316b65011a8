"""Who may do what by default, and what an operator's policy.yaml changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway import policy as policy_module
from gateway.faults import Fault
from gateway.operations import operations_and_rules
from gateway.policy import Policy, PolicyInvalid
from tests.support.compute_api import ADMIN, MEMBER, NOBODY, OTHER_PROJECT, PROJECT, READER, credentials

OPERATIONS, RULES = operations_and_rules()
POLICY = Policy()
START = "os_compute_api:servers:start"
SHOW = "os_compute_api:servers:show"
CALLERS = {
    "nobody": credentials(NOBODY),
    "reader": credentials(READER),
    "member": credentials(MEMBER),
    "manager": credentials(("manager", *MEMBER)),
    "service": credentials(("service",)),
    "admin": credentials(ADMIN),
}
ALLOWED = {
    "any_authenticated": {"nobody", "reader", "member", "manager", "service", "admin"},
    "owner_user": {"nobody", "reader", "member", "manager", "service", "admin"},
    "project_reader": {"reader", "member", "manager", "admin"},
    "project_member": {"member", "manager", "admin"},
    "project_manager": {"manager", "admin"},
    "service": {"service", "admin"},
    "admin": {"admin"},
    "nobody": set(),
}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_lets_those_pass_who_have_its_role(rule: str) -> None:
    passed = {name for name, caller in CALLERS.items() if POLICY.allows(rule, caller)}
    assert passed == ALLOWED[RULES[rule]]


def test_every_operation_for_some_but_not_all_has_a_rule() -> None:
    for operation in OPERATIONS:
        assert operation.rule is None or operation.rule in RULES


def test_a_denial_names_the_rule() -> None:
    with pytest.raises(Fault) as denied:
        POLICY.require(START, credentials(READER))
    assert denied.value.status == 403
    assert denied.value.message == f"Policy doesn't allow {START} to be performed."


@pytest.mark.parametrize(("roles", "allowed"), [(MEMBER, False), (ADMIN, True)])
def test_another_project_is_for_admins(roles: tuple[str, ...], allowed: bool) -> None:
    assert POLICY.allows(SHOW, credentials(roles))
    assert POLICY.allows(SHOW, credentials(roles), project_id=PROJECT)
    assert POLICY.allows(SHOW, credentials(roles), project_id=OTHER_PROJECT) is allowed


def test_another_users_key_pairs_are_for_admins() -> None:
    rule = "os_compute_api:os-keypairs:show"
    assert POLICY.allows(rule, credentials(NOBODY), user_id="user")
    assert not POLICY.allows(rule, credentials(MEMBER), user_id="other")
    assert POLICY.allows(rule, credentials(ADMIN), user_id="other")


def test_a_token_without_a_project_does_nothing_in_projects() -> None:
    for target in (None, "None", "", PROJECT):
        assert not POLICY.allows(SHOW, credentials(MEMBER, project_id=None), project_id=target)


def test_a_token_for_the_system_is_not_for_projects() -> None:
    assert not POLICY.allows(SHOW, credentials(ADMIN, project_id=None, system_scope=True))


def test_a_rule_that_does_not_exist_lets_nobody_pass() -> None:
    assert not POLICY.allows("os_compute_api:servers:levitate", credentials(ADMIN))


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert Policy(tmp_path).allows(START, credentials(MEMBER))


def test_a_file_overrides_rules_and_may_have_its_own(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        f'"operators": "role:operator or user_id:root-user"\n"{START}": "rule:operators"\n'
        f'"{SHOW}": "project_id:{OTHER_PROJECT}"\n'
    )
    policy = Policy(tmp_path)
    assert not policy.allows(START, credentials(ADMIN))
    assert policy.allows(START, credentials(("operator",)))
    assert policy.allows(START, credentials(NOBODY, user_id="root-user"))
    assert not policy.allows(START, credentials(NOBODY, user_id="other"))
    assert policy.allows(SHOW, credentials(NOBODY, project_id=OTHER_PROJECT))
    assert not policy.allows(SHOW, credentials(ADMIN, project_id=PROJECT))
    assert policy.allows("os_compute_api:servers:stop", credentials(MEMBER))


@pytest.mark.parametrize(
    "content",
    [
        "][",
        "- a\n- b\n",
        f'"{START}": "role:member and"\n',
        f'"{START}": "rule:missing"\n',
        f'"{START}": 1\n',
    ],
)
def test_a_file_that_cannot_be_understood_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "policy.yaml").write_text(content)
    with pytest.raises(PolicyInvalid, match=r"policy\.yaml"):
        Policy(tmp_path)


def test_an_edit_is_seen_and_a_broken_one_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "LOOK_AGAIN_S", 0.0)
    file = tmp_path / "policy.yaml"
    policy = Policy(tmp_path)
    assert policy.allows(START, credentials(MEMBER))
    file.write_text(f'"{START}": "!"\n')
    assert not policy.allows(START, credentials(MEMBER))
    file.write_text("][ broken")
    assert not policy.allows(START, credentials(MEMBER))
    file.unlink()
    assert policy.allows(START, credentials(MEMBER))


def test_a_rule_that_nothing_asks_for_is_pointed_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "policy.yaml").write_text('"os_compute_api:servers:strat": "!"\n')
    Policy(tmp_path)
    assert "nothing asks for the rule os_compute_api:servers:strat" in caplog.text


def test_a_decision_is_made_once_for_all_with_the_same_roles() -> None:
    asked: list[str] = []
    policy = Policy()
    original = policy._ask
    policy._ask = lambda rule, *more: asked.append(rule) or original(rule, *more)  # type: ignore[method-assign,func-returns-value]
    for user in ("a", "b", "c"):
        for project in (PROJECT, OTHER_PROJECT):
            assert policy.allows(SHOW, credentials(MEMBER, user_id=user, project_id=project))
    assert asked == [SHOW]
    assert time.monotonic() < policy._look_again_at
