"""Nothing hangs: silent hosts are down until they are heard of, and requests past their deadline say so."""

from __future__ import annotations

import pytest

from commands.event_store import StoreUnavailable
from commands.log.port import LogUnavailable
from domain.instance.state import TaskState, VmState
from tests.support.ledger import Crash, Ledger, require_nothing_leaked


def service_events(ledger: Ledger) -> list[str]:
    return [
        r.type.removeprefix("service.") for r in ledger.history() if r.type in ("service.came_up", "service.went_down")
    ]


def freeze(ledger: Ledger, name: str = "alpha") -> None:
    ledger.hosts[name].paused = True


def thaw(ledger: Ledger, name: str = "alpha") -> None:
    ledger.hosts[name].paused = False


def test_a_host_that_beats_stays_up(ledger: Ledger) -> None:
    ledger.pass_time(600)

    assert service_events(ledger) == ["came_up"]


def test_a_host_that_falls_silent_is_down_once_after_its_time(ledger: Ledger) -> None:
    ledger.pass_time(10)
    freeze(ledger)

    ledger.pass_time(55)
    assert service_events(ledger) == ["came_up"]
    ledger.pass_time(300)
    assert service_events(ledger) == ["came_up", "went_down"]


def test_while_nobody_can_be_heard_nobody_counts_as_silent(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What carries the beats is away, for longer than a host may be silent: that says nothing about hosts."""

    def away(*_: object) -> int:
        raise LogUnavailable("it is away")

    ledger.pass_time(10)
    with monkeypatch.context() as patched:
        patched.setattr(ledger.log, "end", away)
        freeze(ledger)  # it cannot beat either
        ledger.pass_time(300)
        assert service_events(ledger) == ["came_up"]

    ledger.pass_time(50)
    assert service_events(ledger) == ["came_up"]  # it has its whole time again
    ledger.pass_time(60)
    assert service_events(ledger) == ["came_up", "went_down"]


def test_a_host_that_is_heard_of_again_is_up_again_however_often(ledger: Ledger) -> None:
    for _ in range(3):
        freeze(ledger)
        ledger.pass_time(90)
        thaw(ledger)
        ledger.pass_time(20)

    assert service_events(ledger) == ["came_up"] + ["went_down", "came_up"] * 3
    [instance_id] = ledger.running()
    assert ledger.instance(instance_id).vm_state is VmState.ACTIVE


def test_a_machine_that_slept_goes_on_by_itself(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.clock.advance(8 * 3600)  # all of it slept, and all of it wakes up
    ledger.settle()
    ledger.pass_time(30)

    ledger.stop(instance_id)
    ledger.settle()

    assert ledger.instance(instance_id).vm_state is VmState.STOPPED
    assert service_events(ledger)[-1] == "came_up"


def test_the_beats_of_a_session_that_was_replaced_do_not_count(ledger: Ledger) -> None:
    old = ledger.hosts["alpha"].agent
    ledger.hosts["alpha"].restart()
    ledger.settle()
    freeze(ledger)
    for _ in range(10):
        ledger.clock.advance(10)
        old._reporter.beat(1, old._session.id)
        ledger.settle()

    assert service_events(ledger) == ["came_up", "came_up", "went_down"]


@pytest.mark.parametrize("seconds", [61, 86_400, -61, -86_400])
def test_a_clock_that_is_set_makes_no_host_silent_and_hides_none_that_is(ledger: Ledger, seconds: float) -> None:
    ledger.pass_time(20)
    ledger.clock.set_by(seconds)
    ledger.pass_time(120)
    assert service_events(ledger) == ["came_up"]

    freeze(ledger)
    ledger.pass_time(40)
    ledger.clock.set_by(seconds)
    ledger.pass_time(15)
    assert service_events(ledger) == ["came_up"]
    ledger.pass_time(20)
    assert service_events(ledger) == ["came_up", "went_down"]


def test_a_manager_that_starts_gives_every_host_its_whole_time(ledger: Ledger) -> None:
    ledger.pass_time(10)
    freeze(ledger)
    ledger.pass_time(50)
    ledger.restart("deadlines")

    ledger.pass_time(55)
    assert service_events(ledger) == ["came_up"]
    ledger.pass_time(20)
    assert service_events(ledger) == ["came_up", "went_down"]


def test_a_manager_that_starts_far_along_the_ledger_still_knows_who_is_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.process_managers.deadlines.PERSIST_EVERY", 1)
    ledger.running(2)
    freeze(ledger)
    assert ledger.store.position("deadlines") == ledger.store.head()
    ledger.restart("deadlines")

    ledger.pass_time(120)

    assert service_events(ledger) == ["came_up", "went_down"]


def test_a_request_past_its_deadline_is_of_unknown_outcome_once(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)

    ledger.pass_time(290)
    assert not ledger.instance(instance_id).overdue
    ledger.pass_time(600)

    assert ledger.instance(instance_id).overdue
    assert ledger.instance(instance_id).task_state is TaskState.POWERING_OFF, "nothing is assumed"
    assert ledger.history_of(instance_id).count("outcome_unknown") == 1


@pytest.mark.parametrize("seconds", [-86_400, -200, 200, 86_400])
def test_a_clock_that_is_set_moves_no_deadline(ledger: Ledger, seconds: float) -> None:
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)
    ledger.settle()
    ledger.clock.set_by(seconds)

    ledger.pass_time(290)
    assert not ledger.instance(instance_id).overdue
    ledger.pass_time(20)
    assert ledger.instance(instance_id).overdue
    [unknown] = [r.event for r in ledger.history() if r.type == "instance.outcome_unknown"]
    assert 300 <= unknown.waited_s <= 310


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_where_a_manager_that_starts_has_another_clock_a_deadline_comes_all_the_same(
    ledger: Ledger, ahead_s: float
) -> None:
    """Early where its clock is ahead: that settles nothing. Never later than the whole time after its start."""
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)
    ledger.settle()
    ledger.clock.set_by(ahead_s)
    ledger.restart("deadlines")

    ledger.pass_time(305)

    assert ledger.instance(instance_id).overdue
    thaw(ledger)
    ledger.pass_time(90)
    assert ledger.instance(instance_id).vm_state is VmState.STOPPED


def test_a_late_report_settles_what_was_overdue(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)
    ledger.pass_time(400)
    thaw(ledger)
    ledger.pass_time(90)

    instance = ledger.instance(instance_id)
    assert (instance.vm_state, instance.task_state, instance.overdue) == (VmState.STOPPED, None, False)


def test_a_settled_request_has_no_deadline(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    ledger.stop(instance_id)
    ledger.settle()

    ledger.pass_time(2000, step_s=50)

    assert "outcome_unknown" not in ledger.history_of(instance_id)


def test_a_deadline_is_not_forgotten_by_a_manager_that_starts_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.process_managers.deadlines.PERSIST_EVERY", 1)
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)
    ledger.settle()
    ledger.running(2)
    ledger.restart("deadlines")

    ledger.pass_time(400)

    assert ledger.instance(instance_id).overdue


def test_a_delete_waiting_for_a_host_that_went_away_ends_for_its_user(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.delete(instance_id)
    ledger.pass_time(400)

    instance = ledger.instance(instance_id)
    assert instance.deleted
    assert instance.purge_pending
    assert ledger.quota().used["instances"] == 0
    assert set(ledger.provider("alpha").claims) == {instance_id}, "held until its host denies it"


def test_a_host_that_comes_back_purges_what_was_deleted_while_it_was_away(ledger: Ledger) -> None:
    [kept, one, two] = ledger.running(3)
    freeze(ledger)
    ledger.delete(one)
    ledger.pass_time(120)
    ledger.delete(two)
    ledger.pass_time(300)
    assert set(ledger.hosts["alpha"].guests()) == {kept, one, two}

    thaw(ledger)
    ledger.pass_time(90)

    assert set(ledger.hosts["alpha"].guests()) == {kept}
    assert ledger.history_of(one)[-1] == ledger.history_of(two)[-1] == "purged"
    require_nothing_leaked(ledger)


def test_a_purge_that_failed_before_its_host_went_away_is_done_when_it_is_back(ledger: Ledger) -> None:
    from hostagent.drivers.protocol import DriverError

    [instance_id] = ledger.running()
    ledger.hosts["alpha"].faults.crash("destroy", error=DriverError("busy"))
    ledger.delete(instance_id)
    ledger.settle()
    assert ledger.instance(instance_id).vm_state is VmState.ERROR
    freeze(ledger)
    ledger.pass_time(120)
    ledger.delete(instance_id)
    thaw(ledger)
    ledger.pass_time(90)

    assert ledger.history_of(instance_id)[-3:] == ["delete_failed", "deleted", "purged"]
    assert ledger.hosts["alpha"].guests() == {}
    require_nothing_leaked(ledger)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [Crash("dead"), StoreUnavailable("gone")])
def test_a_manager_that_fails_at_its_commit_says_it_once_all_the_same(
    ledger: Ledger, when: str, error: BaseException
) -> None:
    [instance_id] = ledger.running()
    freeze(ledger)
    ledger.stop(instance_id)
    ledger.settle()
    ledger.clock.advance(301)
    ledger.faults.crash("transaction", when, error=error)
    try:
        ledger.step("deadlines")
    except Crash:
        ledger.restart("deadlines")
    except StoreUnavailable:
        pass

    ledger.pass_time(130)

    assert ledger.history_of(instance_id).count("outcome_unknown") == 1
    assert service_events(ledger) == ["came_up", "went_down"]


def test_two_managers_active_at_once_say_it_once(ledger: Ledger) -> None:
    [instance_id] = ledger.running()
    other = ledger.command_side().consumers["deadlines"]()
    freeze(ledger)
    ledger.stop(instance_id)
    for _ in range(80):
        ledger.clock.advance(5)
        other.step()
        ledger.settle()

    assert ledger.history_of(instance_id).count("outcome_unknown") == 1
    assert service_events(ledger) == ["came_up", "went_down"]
