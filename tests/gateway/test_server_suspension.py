"""Pausing, suspending, and back: through the API, down to the hypervisor, and what comes of failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.instance.state import PowerState
from hostagent.drivers.fake_controls import history
from hostagent.drivers.protocol import DriverError
from tests.support.ledger import Crash
from tests.support.servers import Servers

# What is asked, of which status; the task state meanwhile, and the status and the power afterwards.
WAYS = [
    ("pause", (), "pausing", "PAUSED", PowerState.PAUSED),
    ("unpause", ("pause",), "unpausing", "ACTIVE", PowerState.RUNNING),
    ("suspend", (), "suspending", "SUSPENDED", PowerState.SUSPENDED),
    ("resume", ("suspend",), "resuming", "ACTIVE", PowerState.RUNNING),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


def state(api: Servers, server: str) -> tuple[str, str | None, int]:
    shown = api.show(server)
    return shown["status"], shown["OS-EXT-STS:task_state"], shown["OS-EXT-STS:power_state"]


@pytest.mark.parametrize(("action", "before", "task", "status", "power"), WAYS, ids=[way[0] for way in WAYS])
def test_a_server_is_held_and_goes_on(
    api: Servers, action: str, before: tuple[str, ...], task: str, status: str, power: PowerState
) -> None:
    server = api.made()
    for earlier in before:
        api.done(server, earlier)
    begun = api.show(server)["status"]

    answer = api.act(server, action, {"what": "is not looked at"})

    assert (answer.status_code, answer.content) == (202, b"")
    assert state(api, server)[:2] == (begun, task)
    api.ledger.settle()
    assert state(api, server) == (status, None, power)
    assert api.ledger.hosts["alpha"].guests()[api.instance(server).id] == power
    assert [entry.did for entry in history(api.ledger.hosts["alpha"].hypervisor)] == ["create", *before, action]


@pytest.mark.parametrize(("action", "before", "task", "status", "power"), WAYS, ids=[way[0] for way in WAYS])
def test_it_is_an_action_with_its_work(
    api: Servers, action: str, before: tuple[str, ...], task: str, status: str, power: PowerState
) -> None:
    server = api.made()
    for one in (*before, action):
        api.done(server, one)

    newest = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]
    assert newest["action"] == action
    [event] = api.get(f"/servers/{server}/os-instance-actions/{newest['request_id']}")["instanceAction"]["events"]
    assert (event["event"], event["result"]) == (f"compute_{action}_instance", "Success")


@pytest.mark.parametrize(("action", "before", "task", "status", "power"), WAYS, ids=[way[0] for way in WAYS])
def test_a_failure_is_told_and_the_server_is_not_stuck(
    api: Servers, action: str, before: tuple[str, ...], task: str, status: str, power: PowerState
) -> None:
    server = api.made()
    for earlier in before:
        api.done(server, earlier)
    begun = api.show(server)["status"]
    api.ledger.hosts["alpha"].faults.crash(action, error=DriverError("the hypervisor is on fire"))

    api.done(server, action)

    after = begun if action in ("pause", "unpause") else "ERROR"
    assert state(api, server)[:2] == (after, None)
    shown = api.show(server)
    assert ("fault" in shown) is (after == "ERROR")
    newest = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"][0]
    assert (newest["action"], newest["message"]) == (action, "Error")
    [event] = api.get(f"/servers/{server}/os-instance-actions/{newest['request_id']}", version="2.84")[
        "instanceAction"
    ]["events"]
    assert (event["result"], event["details"]) == ("Error", "the hypervisor is on fire")
    api.done(server, "reboot", {"type": "HARD"})
    assert state(api, server) == ("ACTIVE", None, PowerState.RUNNING)


ALLOWED = {"pause": "ACTIVE", "unpause": "PAUSED", "suspend": "ACTIVE", "resume": "SUSPENDED"}


@pytest.mark.parametrize("action", ALLOWED)
@pytest.mark.parametrize("way", [(), ("pause",), ("suspend",), ("os-stop",)], ids=lambda way: "".join(way) or "active")
def test_only_what_its_state_allows(api: Servers, action: str, way: tuple[str, ...]) -> None:
    server = api.made()
    for earlier in way:
        api.done(server, earlier)
    shown = api.show(server)

    if shown["status"] == ALLOWED[action]:
        assert api.act(server, action).status_code == 202
        task = api.show(server)["OS-EXT-STS:task_state"]
        said = f"Cannot '{action}' instance {server} while it is in task_state {task}"
    else:
        said = f"Cannot '{action}' instance {server} while it is in vm_state {shown['OS-EXT-STS:vm_state']}"
    assert api.refused(lambda: api.act(server, action)) == (409, said)


@pytest.mark.parametrize("action", ALLOWED)
def test_whose_server_and_who_may(api: Servers, action: str) -> None:
    theirs, own = api.others(), api.made()

    assert api.refused(lambda: api.act(theirs, action)) == (404, f"Instance {theirs} could not be found.")
    status, said = api.refused(lambda: api.act(own, action, token="reader"))
    assert status == 403
    assert said.startswith("Policy doesn't allow os_compute_api:os-")


@pytest.mark.parametrize("way", [("pause",), ("suspend",)], ids=lambda way: way[0])
def test_a_server_that_is_held_stays_so_while_its_agent_is_away(api: Servers, way: tuple[str, ...]) -> None:
    server, host = api.made(), api.ledger.hosts["alpha"]
    api.done(server, *way)
    before = state(api, server)

    host.restart()
    api.ledger.pass_time(200, step_s=20)

    assert state(api, server) == before
    assert [entry.did for entry in history(host.hypervisor)] == ["create", *way]


@pytest.mark.parametrize(("action", "before"), [(way[0], way[1]) for way in WAYS], ids=[way[0] for way in WAYS])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_that_dies_at_it_ends_it(api: Servers, action: str, before: tuple[str, ...], when: str) -> None:
    server, host = api.made(), api.ledger.hosts["alpha"]
    for earlier in before:
        api.done(server, earlier)
    host.faults.crash(action, when)

    with pytest.raises(Crash):
        api.done(server, action)
    host.restart()
    api.ledger.settle()

    status, power = next((way[3], way[4]) for way in WAYS if way[0] == action)
    assert state(api, server) == (status, None, power)
    assert [entry.did for entry in history(host.hypervisor)] == ["create", *before, action]


@pytest.mark.parametrize(("action", "before"), [(way[0], way[1]) for way in WAYS], ids=[way[0] for way in WAYS])
def test_a_delete_meanwhile_wins(api: Servers, action: str, before: tuple[str, ...]) -> None:
    server = api.made()
    for earlier in before:
        api.done(server, earlier)
    api.act(server, action)

    assert api("DELETE", f"/servers/{server}", token="member").status_code == 204
    api.ledger.settle()

    assert api.instance(server).deleted
    assert not api.ledger.hosts["alpha"].guests()


@pytest.mark.parametrize("action", ALLOWED)
def test_one_that_takes_too_long_is_of_unknown_outcome_until_its_host_says(api: Servers, action: str) -> None:
    server = api.made()
    if action in ("unpause", "resume"):
        api.done(server, {"unpause": "pause", "resume": "suspend"}[action])
    host = api.ledger.hosts["alpha"]
    host.paused = True
    api.act(server, action)

    for _ in range(200):
        api.ledger.clock.advance(20)
        api.ledger.settle()
    assert api.instance(server).overdue
    [newest, *_] = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"]
    assert "outcome unknown" in newest["message"]

    host.paused = False
    api.ledger.pass_time(60)
    assert api.show(server)["OS-EXT-STS:task_state"] is None


def test_a_paused_guest_that_was_switched_off_is_shown_to_be_off(api: Servers) -> None:
    server = api.made()
    api.done(server, "pause")

    api.ledger.hosts["alpha"].switch_power(api.instance(server).id, PowerState.SHUTDOWN)
    api.ledger.settle()

    assert state(api, server) == ("SHUTOFF", None, PowerState.SHUTDOWN)


def test_held_servers_are_found_by_their_status(api: Servers) -> None:
    for name, way in (("running", None), ("paused", "pause"), ("suspended", "suspend")):
        server = api.made(name=name)
        if way:
            api.done(server, way)

    assert api.listed("status=PAUSED", token="member") == ["paused"]
    assert api.listed("status=suspended", token="member") == ["suspended"]
    assert api.listed("vm_state=paused", version="2.83", token="member") == ["paused"]


def test_a_lock_and_a_reset_are_actions_beside_the_one_under_way(api: Servers) -> None:
    server = api.made()
    api.act(server, "pause")
    api.act(server, "lock")
    api.ledger.settle()
    api.done(server, "unlock")
    api.done(server, "os-resetState", {"state": "error"}, token="admin")

    def works(action: Any) -> list[tuple[str, str]]:
        path = f"/servers/{server}/os-instance-actions/{action['request_id']}"
        return [(e["event"], e["result"]) for e in api.get(path)["instanceAction"]["events"]]

    found = api.get(f"/servers/{server}/os-instance-actions")["instanceActions"]
    assert [(one["action"], works(one)) for one in found[:-1]] == [
        ("resetState", []),
        ("unlock", [("api_unlock", "Success")]),
        ("lock", [("api_lock", "Success")]),
        ("pause", [("compute_pause_instance", "Success")]),
    ]
