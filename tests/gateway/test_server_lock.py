"""Locks: whose they are, whom they stop, who lifts them; and states that an administrator sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compute_api import OTHER_PROJECT
from tests.support.servers import Servers

GUARDED: list[tuple[str, Any]] = [
    ("os-start", None),
    ("os-stop", None),
    ("reboot", {"type": "HARD"}),
    ("pause", None),
    ("unpause", None),
    ("suspend", None),
    ("resume", None),
    ("forceDelete", None),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


@pytest.mark.parametrize(("action", "value"), GUARDED)
def test_a_locked_server_is_not_acted_on_but_by_administrators(api: Servers, action: str, value: Any) -> None:
    server = api.made()
    api.done(server, "lock")

    assert api.refused(lambda: api.act(server, action, value)) == (409, f"Instance {server} is locked")
    answer = api.act(server, action, value, token="admin")
    assert answer.status_code == 202 or "is in vm_state" in answer.text


def test_a_locked_server_is_not_deleted_but_by_administrators(api: Servers) -> None:
    server = api.made()
    api.done(server, "lock")

    refusal = api.refused(lambda: api("DELETE", f"/servers/{server}", token="member"))

    assert refusal == (409, f"Instance {server} is locked")
    assert api("DELETE", f"/servers/{server}", token="admin").status_code == 204


def test_a_server_is_locked_with_a_reason_and_unlocked(api: Servers) -> None:
    server = api.made()
    assert api.show(server, version="2.73")["locked"] is False

    api.done(server, "lock", {"locked_reason": "do not touch"}, version="2.73")
    shown = api.show(server, token="reader", version="2.73")
    assert (shown["locked"], shown["locked_reason"]) == (True, "do not touch")
    assert "locked_reason" not in api.show(server, version="2.72")
    assert "locked" not in api.show(server, version="2.8")

    api.done(server, "unlock")
    shown = api.show(server, version="2.73")
    assert (shown["locked"], shown["locked_reason"]) == (False, None)
    assert api.act(server, "os-stop").status_code == 202


def test_before_2_73_what_comes_with_a_lock_is_not_looked_at(api: Servers) -> None:
    server = api.made()

    api.done(server, "lock", {"locked_reason": 7}, version="2.72")

    assert api.show(server, version="2.73")["locked_reason"] is None


@pytest.mark.parametrize("value", [{"locked_reason": ""}, {"locked_reason": "a" * 256}, {"why": "x"}, "x", []])
def test_a_reason_that_is_none_is_refused_from_2_73(api: Servers, value: Any) -> None:
    server = api.made()

    assert api.refused(lambda: api.act(server, "lock", value, version="2.73"))[0] == 400


def test_an_owner_locks_once_an_administrator_anew(api: Servers) -> None:
    server = api.others()
    api.done(server, "lock", {"locked_reason": "first"}, token="admin", version="2.73")
    assert api.instance(server).locked_by == "admin"

    api.done(server, "lock", {"locked_reason": "second"}, token="admin", version="2.73")
    assert api.show(server, version="2.73")["locked_reason"] == "second"
    api.done(server, "lock", token="admin", version="2.73")
    assert api.show(server, version="2.73")["locked_reason"] == "second", "a reason stays where none is given"

    own = api.made()
    api.done(own, "lock")
    before = api.recorded()
    api.done(own, "lock", {"locked_reason": "again"}, version="2.73")
    assert api.recorded() == before
    assert api.instance(own).locked_by == "owner"


def test_an_administrators_lock_is_not_its_owners_to_lift(api: Servers) -> None:
    server = api.made(project_id=OTHER_PROJECT)
    api.done(server, "lock", token="admin")  # of another project

    assert api.refused(lambda: api.act(server, "unlock", token="stranger")) == (
        403,
        "Policy doesn't allow os_compute_api:os-lock-server:unlock:unlock_override to be performed.",
    )
    api.done(server, "unlock", token="admin")
    assert api.instance(server).locked_by is None

    api.done(server, "lock", token="stranger")
    assert api.instance(server).locked_by == "owner"
    api.done(server, "unlock", token="admin")
    assert api.instance(server).locked_by is None


def test_servers_are_found_by_their_locks(api: Servers) -> None:
    for name in ("free", "held"):
        api.done(api.made(name=name), "lock" if name == "held" else "unlock")

    assert api.listed("locked=true", version="2.73", token="member") == ["held"]
    assert api.listed("locked=0", version="2.73", token="member") == ["free"]
    assert set(api.listed("locked=true", version="2.72", token="member")) == {"free", "held"}
    assert api.listed("sort_key=locked&sort_dir=asc", version="2.73") == ["free", "held"]
    assert api.refused(lambda: api("GET", "/servers?locked=perhaps", version="2.73"))[0] == 400


@pytest.mark.parametrize("action", ["lock", "unlock"])
def test_whose_server_and_who_may(api: Servers, action: str) -> None:
    theirs, own = api.others(), api.made()

    assert api.refused(lambda: api.act(theirs, action)) == (404, f"Instance {theirs} could not be found.")
    assert api.refused(lambda: api.act(own, action, token="reader")) == (
        403,
        f"Policy doesn't allow os_compute_api:os-lock-server:{action} to be performed.",
    )


# os-resetState, forceDelete


def test_an_administrator_says_what_state_a_server_is_in(api: Servers) -> None:
    server = api.made()

    api.done(server, "os-resetState", {"state": "error"}, token="admin")
    assert api.show(server)["status"] == "ERROR"
    api.done(server, "os-resetState", {"state": "active"}, token="admin")
    assert (api.show(server)["status"], api.show(server)["OS-EXT-STS:power_state"]) == ("ACTIVE", 1)


def test_a_server_that_is_off_does_not_stay_active_because_somebody_says_so(api: Servers) -> None:
    server = api.made()
    api.done(server, "os-stop")

    api.done(server, "os-resetState", {"state": "active"}, token="admin")

    assert (api.show(server)["status"], api.show(server)["OS-EXT-STS:power_state"]) == ("SHUTOFF", 4)


def test_a_reset_ends_a_request_that_waits_and_its_outcome_comes_too_late(api: Servers) -> None:
    server = api.made()
    api.act(server, "os-stop")
    for part in ("orders", "alpha"):
        api.ledger.step(part)  # the guest is off; the ledger has yet to hear of it

    api.act(server, "os-resetState", {"state": "error"}, token="admin")
    assert api.show(server)["OS-EXT-STS:task_state"] is None
    api.ledger.settle()

    assert "stopped" not in api.ledger.history_of(api.instance(server).id)
    assert (api.show(server)["status"], api.show(server)["OS-EXT-STS:power_state"]) == ("ERROR", 4)
    assert api.ledger.parts["deadlines"].waiting == 0  # type: ignore[attr-defined]


def test_a_server_that_was_reset_while_it_was_made_can_be_deleted(api: Servers) -> None:
    for step in (False, True):
        server = api.made(settled=False)
        if step:
            api.ledger.step("build")
        api.act(server, "os-resetState", {"state": "error"}, token="admin")
        api.ledger.settle()
        assert api.show(server)["status"] == "ERROR"

        assert api("DELETE", f"/servers/{server}", token="member").status_code == 204
        api.ledger.settle()

        assert api.instance(server).deleted
        assert not api.ledger.hosts["alpha"].guests()
    assert api.ledger.quota(api.instance(server).project_id).used["instances"] == 0


def test_a_reset_is_for_administrators_and_to_two_states(api: Servers) -> None:
    server = api.made()

    assert api.refused(lambda: api.act(server, "os-resetState", {"state": "error"})) == (
        403,
        "Policy doesn't allow os_compute_api:os-admin-actions:reset_state to be performed.",
    )
    for value in ({"state": "stopped"}, {}, None, {"state": "error", "why": "x"}):
        refusal = api.refused(lambda value=value: api.act(server, "os-resetState", value, token="admin"))
        assert refusal[0] == 400


def test_force_delete_deletes(api: Servers) -> None:
    server, theirs = api.made(), api.others()

    assert api.refused(lambda: api.act(theirs, "forceDelete"))[0] == 404
    assert api.refused(lambda: api.act(server, "forceDelete", token="reader"))[0] == 403
    api.done(server, "forceDelete")

    assert api("GET", f"/servers/{server}").status_code == 404
    assert len(api.ledger.hosts["alpha"].guests()) == 1


def test_nothing_is_put_into_a_guest_to_tell_it_its_network(api: Servers) -> None:
    server = api.made()
    before = api.recorded()

    answer = api.act(server, "injectNetworkInfo", token="admin")

    assert (answer.status_code, answer.content, api.recorded()) == (202, b"", before)
    assert api.refused(lambda: api.act(server, "injectNetworkInfo", token="member"))[0] == 403
    missing = "7f0e8c1e-0000-4000-8000-000000000000"
    assert api.refused(lambda: api.act(missing, "injectNetworkInfo", token="admin"))[0] == 404
