"""From a create to a claimed host, though every step be taken twice, die half-way, or find another faster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from commands.command import Unit
from commands.compute_service import DisableService, MarkServiceDown
from commands.event_store import StoreUnavailable
from commands.host_aggregate import AddAggregateHost, CreateAggregate
from commands.instance.schedule import Choice, ScheduleInstance
from commands.neighbours.networks import NetworkNotFound
from commands.process_managers.build import BuildManager
from commands.server_group import CreateServerGroup
from commands.snapshots import Snapshots
from domain.errors import ClaimDoesNotFit
from domain.identifiers import InstanceId, ProjectId, ServerGroupId
from domain.instance.events import AttachedInterface
from domain.instance.state import TaskState, VmState
from domain.resources import VCPU
from domain.server_group import GroupPolicy
from hostagent.drivers.protocol import DriverError
from tests.support.decisions import REASON
from tests.support.ledger import (
    LARGE,
    PROJECT,
    USER,
    Crash,
    FakeNetworks,
    HostSize,
    Ledger,
    create_command,
    require_nothing_leaked,
)

ONE, TWO, THREE = (InstanceId(UUID(int=n)) for n in (1, 2, 3))


def step_to_the_end(ledger: Ledger, name: str = "build") -> None:
    while ledger.step(name):
        pass


def residence_of(ledger: Ledger, instance_id: InstanceId) -> str | None:
    residence = ledger.instance(instance_id).residence
    return None if residence is None else residence.host


def scheduled(ledger: Ledger, instance_id: InstanceId) -> int:
    return ledger.history_of(instance_id).count("scheduled")


def test_an_instance_is_claimed_and_placed(ledger: Ledger) -> None:
    [instance_id] = ledger.create()

    step_to_the_end(ledger)

    assert ledger.instance(instance_id).task_state is TaskState.SPAWNING
    assert set(ledger.provider("alpha").claims) == {instance_id}
    require_nothing_leaked(ledger)


def test_a_scheduling_is_caused_by_its_create(ledger: Ledger) -> None:
    [instance_id] = ledger.create()
    step_to_the_end(ledger)

    created = next(r for r in ledger.history() if r.type == "instance.create_requested")
    placed = next(r for r in ledger.history() if r.type == "instance.scheduled")

    assert placed.cause.causation == created.position
    assert placed.cause.request_id == created.cause.request_id
    assert placed.event.reason.candidates[0].host == "alpha"
    assert placed.event.instance_id == instance_id


def test_many_are_spread_over_the_hosts_of_one_batch(two_hosts: Ledger) -> None:
    ids = two_hosts.create(6)

    two_hosts.step("build")

    placed = [two_hosts.instance(i).residence for i in ids]
    assert sorted(r.host for r in placed if r is not None) == ["alpha"] * 3 + ["beta"] * 3


def test_a_batch_takes_no_more_than_fits_and_says_why_to_the_rest(ledger: Ledger) -> None:
    ids = ledger.create(3, flavor=LARGE)  # of four processors each, on a host of eight

    step_to_the_end(ledger)

    states = [ledger.instance(i).vm_state for i in ids]
    assert states == [VmState.BUILDING, VmState.BUILDING, VmState.ERROR]
    assert "CapacityFilter: 0 of 1 hosts left" in (ledger.instance(ids[2]).fault or "")
    require_nothing_leaked(ledger)


def test_without_hosts_a_create_fails_with_a_reason(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path, ()).with_flavors()
    [instance_id] = ledger.create()
    ledger.settle()

    assert "no host is registered" in (ledger.instance(instance_id).fault or "")
    ledger.delete(instance_id)
    ledger.settle()
    assert ledger.quota().used["instances"] == 0
    ledger.close()


def test_a_step_taken_again_by_a_manager_that_knows_nothing_is_taken_once(ledger: Ledger) -> None:
    ids = ledger.create(2)
    step_to_the_end(ledger)
    with ledger.store.transaction() as transaction:  # as a store that lost nothing but the place
        assert transaction.move_position("build", ledger.store.position("build"), 0)

    ledger.restart("build")
    step_to_the_end(ledger)

    assert [scheduled(ledger, i) for i in ids] == [1, 1]
    require_nothing_leaked(ledger)


@pytest.mark.parametrize("at_most", [1, 2, 3, 7])
def test_it_makes_no_difference_how_many_events_are_read_at_once(two_hosts: Ledger, at_most: int) -> None:
    two_hosts.log.at_most = at_most
    ids = two_hosts.running(4)

    assert all(two_hosts.instance(i).vm_state is VmState.ACTIVE for i in ids)
    require_nothing_leaked(two_hosts)


def test_two_managers_active_at_once_place_each_instance_once(two_hosts: Ledger) -> None:
    one, other = (two_hosts.command_side().consumers["build"]() for _ in range(2))
    ids = []
    for _ in range(4):
        ids += two_hosts.create(2)
        one.step()
        other.step()
        other.step()
    while one.step() or other.step():
        pass

    assert [scheduled(two_hosts, i) for i in ids] == [1] * 8
    require_nothing_leaked(two_hosts)


@pytest.mark.parametrize("call", ["transaction", "commit"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_manager_that_dies_at_its_commit_is_taken_over(ledger: Ledger, call: str, when: str) -> None:
    ids = ledger.create(2)
    ledger.faults.crash(call, when)
    try:
        step_to_the_end(ledger)
    except Crash:
        ledger.restart("build")

    step_to_the_end(ledger)

    assert [scheduled(ledger, i) for i in ids] == [1, 1]
    require_nothing_leaked(ledger)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_an_answer_is_settled_and_the_manager_goes_on(ledger: Ledger, when: str) -> None:
    ids = ledger.create(2)
    ledger.faults.crash("transaction", when, error=StoreUnavailable("the connection broke"))
    try:
        step_to_the_end(ledger)
    except StoreUnavailable:
        step_to_the_end(ledger)

    assert [scheduled(ledger, i) for i in ids] == [1, 1]
    assert ledger.provider("alpha").providers[ledger.hosts["alpha"].agent.node_id].used[VCPU] == 2
    require_nothing_leaked(ledger)


class Interrupted(BuildManager):
    """Something happens between the choice and the claim."""

    meanwhile: Any = None

    def _place(self, *args: Any) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super()._place(*args)


def interrupted(ledger: Ledger) -> Interrupted:
    manager = Interrupted(
        ledger.log, ledger.appender, ledger.store, ledger.records, Snapshots(ledger.vault), FakeNetworks()
    )
    ledger.parts["build"] = manager
    step_to_the_end(ledger)
    return manager


def test_an_instance_deleted_between_its_choice_and_its_claim_is_claimed_nothing(ledger: Ledger) -> None:
    manager = interrupted(ledger)
    [instance_id] = ledger.create()
    manager.meanwhile = lambda: ledger.delete(instance_id)

    step_to_the_end(ledger)

    assert ledger.history_of(instance_id) == ["create_requested", "deleted"]
    require_nothing_leaked(ledger)


def test_a_choice_that_was_filled_meanwhile_is_made_again(two_hosts: Ledger) -> None:
    ledger = two_hosts
    ledger.running(requested_host="beta")  # so that alpha has the most room
    manager = interrupted(ledger)

    def another_scheduler_fills_alpha() -> None:
        agent = ledger.hosts["alpha"].agent
        alpha = Choice(
            host=ledger.hosts["alpha"].name,
            node_id=agent.node_id,
            service_id=agent.service_id,
            availability_zone="nova",
        )
        for instance_id in (TWO, THREE):
            ledger.ask(create_command([instance_id], flavor=LARGE))
            ledger.ask(ScheduleInstance(instance_id=instance_id, attempt=1, choices=(alpha,), reason=REASON))

    manager.meanwhile = another_scheduler_fills_alpha
    ledger.ask(create_command([ONE], flavor=LARGE))

    step_to_the_end(ledger)

    assert residence_of(ledger, TWO) == residence_of(ledger, THREE) == "alpha"
    assert residence_of(ledger, ONE) == "beta"
    require_nothing_leaked(ledger)


@pytest.mark.parametrize("what", ["down", "disabled"])
def test_a_chosen_host_that_goes_away_meanwhile_is_not_chosen_for_ever(ledger: Ledger, what: str) -> None:
    service_id = ledger.hosts["alpha"].agent.service_id
    command: Any = (
        MarkServiceDown(service_id=service_id, epoch=1, reason="silent")
        if what == "down"
        else DisableService(service_id=service_id)
    )
    manager = interrupted(ledger)
    manager.meanwhile = lambda: ledger.ask(command)
    [instance_id] = ledger.create()

    step_to_the_end(ledger)

    assert "ComputeFilter: 0 of 1 hosts left" in (ledger.instance(instance_id).fault or "")
    require_nothing_leaked(ledger)


def test_a_host_that_cannot_start_it_is_given_back_and_another_tried(two_hosts: Ledger) -> None:
    two_hosts.running(requested_host="beta")  # so that alpha has the most room
    two_hosts.hosts["alpha"].faults.crash("create", error=DriverError("no disk left"))

    [instance_id] = two_hosts.running()

    assert two_hosts.history_of(instance_id) == [
        "create_requested",
        "scheduled",
        "spawn_failed",
        "scheduled",
        "spawned",
    ]
    assert residence_of(two_hosts, instance_id) == "beta"
    assert two_hosts.hosts["alpha"].guests() == {}
    require_nothing_leaked(two_hosts)


def test_after_every_host_has_failed_its_user_sees_the_last_reason(two_hosts: Ledger) -> None:
    for host in two_hosts.hosts.values():
        host.faults.crash("create", error=DriverError(f"{host.name} has no disk left"))

    [instance_id] = two_hosts.running()

    instance = two_hosts.instance(instance_id)
    assert instance.vm_state is VmState.ERROR
    assert "has no disk left" in (instance.fault or "")
    assert two_hosts.history_of(instance_id).count("spawn_failed") == 2
    assert all(not host.guests() for host in two_hosts.hosts.values())
    require_nothing_leaked(two_hosts)


def test_no_more_than_three_hosts_are_tried(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path, ("alpha", "beta", "gamma", "delta")).with_flavors()
    ledger.settle()
    for host in ledger.hosts.values():
        host.faults.crash("create", error=DriverError("no"))

    [instance_id] = ledger.running()

    assert scheduled(ledger, instance_id) == 3
    assert ledger.instance(instance_id).vm_state is VmState.ERROR
    require_nothing_leaked(ledger)
    ledger.close()


def test_a_forced_host_is_taken_whatever_its_zone_and_though_disabled(two_hosts: Ledger) -> None:
    two_hosts.ask(DisableService(service_id=two_hosts.hosts["beta"].agent.service_id))

    [instance_id] = two_hosts.running(availability_zone="nova", forced_host="beta")

    residence = two_hosts.instance(instance_id).residence
    assert residence is not None
    assert residence.host == "beta"


def test_a_host_asked_for_is_not_taken_when_it_is_disabled(two_hosts: Ledger) -> None:
    two_hosts.ask(DisableService(service_id=two_hosts.hosts["beta"].agent.service_id))

    [instance_id] = two_hosts.running(requested_host="beta")

    assert two_hosts.instance(instance_id).vm_state is VmState.ERROR


def test_what_is_given_back_can_be_claimed_again(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path, size=HostSize(vcpus=4)).with_flavors()
    ledger.settle()
    for _ in range(5):
        [instance_id] = ledger.running(flavor=LARGE)
        assert ledger.instance(instance_id).vm_state is VmState.ACTIVE
        ledger.delete(instance_id)
        ledger.settle()
    require_nothing_leaked(ledger)
    ledger.close()


def test_commands_of_a_manager_may_be_mixed_with_others(ledger: Ledger) -> None:
    asks = [ledger.as_ask(replace(create_command([InstanceId(UUID(int=n))]), name=f"n{n}")) for n in range(1, 6)]
    ledger.appender.flush([Unit(asks=(ask,)) for ask in asks])

    ledger.settle()

    assert all(i.vm_state is VmState.ACTIVE for i in ledger.instances().values())
    require_nothing_leaked(ledger)


def test_a_network_that_refuses_by_now_ends_in_an_outcome_and_holds_up_nobody(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [refused] = ledger.create(1)

    def plan(*_: object) -> tuple[AttachedInterface, ...]:
        raise NetworkNotFound("gone")

    with monkeypatch.context() as patch:
        patch.setattr(FakeNetworks, "plan", plan)
        step_to_the_end(ledger)
    [other] = ledger.running(1)

    assert ledger.instance(refused).vm_state is VmState.ERROR
    assert "gone" in (ledger.instance(refused).fault or "")
    assert ledger.instance(other).vm_state is VmState.ACTIVE
    require_nothing_leaked(ledger)


# server groups


def with_group(ledger: Ledger, policy: GroupPolicy, **more: Any) -> dict[str, tuple[str, ...]]:
    """The hint of a new group."""
    group_id = ServerGroupId(UUID(int=77))
    command = CreateServerGroup(
        server_group_id=group_id, project_id=PROJECT, user_id=USER, name="web", policy=policy, **more
    )
    ledger.ask(command)
    return {"group": (str(group_id),)}


def test_servers_of_one_batch_are_kept_apart(two_hosts: Ledger) -> None:
    ids = two_hosts.create(3, scheduler_hints=with_group(two_hosts, GroupPolicy.ANTI_AFFINITY))

    step_to_the_end(two_hosts)

    assert sorted(str(residence_of(two_hosts, i)) for i in ids) == ["None", "alpha", "beta"]
    [fault] = [fault for i in ids if (fault := two_hosts.instance(i).fault)]
    assert "ServerGroupAntiAffinityFilter: 0 of 2 hosts left" in fault
    require_nothing_leaked(two_hosts)


def test_a_place_that_a_member_leaves_is_free_for_another(two_hosts: Ledger) -> None:
    hint = with_group(two_hosts, GroupPolicy.ANTI_AFFINITY)
    first, second = two_hosts.running(2, scheduler_hints=hint)
    left = residence_of(two_hosts, first)
    two_hosts.delete(first)
    two_hosts.settle()

    [third] = two_hosts.running(1, scheduler_hints=hint)

    assert residence_of(two_hosts, third) == left
    assert residence_of(two_hosts, second) != left


def test_two_a_host_are_not_too_many_where_the_rule_says_so(two_hosts: Ledger) -> None:
    hint = with_group(two_hosts, GroupPolicy.ANTI_AFFINITY, max_server_per_host=2)
    ids = two_hosts.running(4, scheduler_hints=hint)

    assert sorted(str(residence_of(two_hosts, i)) for i in ids) == ["alpha", "alpha", "beta", "beta"]


def test_servers_of_one_batch_are_kept_together(two_hosts: Ledger) -> None:
    ids = two_hosts.create(4, scheduler_hints=with_group(two_hosts, GroupPolicy.AFFINITY))

    step_to_the_end(two_hosts)

    assert len({residence_of(two_hosts, i) for i in ids}) == 1


def test_a_soft_policy_refuses_nobody(two_hosts: Ledger) -> None:
    ids = two_hosts.running(3, scheduler_hints=with_group(two_hosts, GroupPolicy.SOFT_ANTI_AFFINITY))

    assert {residence_of(two_hosts, i) for i in ids} == {"alpha", "beta"}


def test_of_two_managers_at_once_neither_breaks_anti_affinity(two_hosts: Ledger) -> None:
    """The second goes by columns that do not know of the first one's choice."""
    hint = with_group(two_hosts, GroupPolicy.ANTI_AFFINITY)
    one, two = two_hosts.create(1, scheduler_hints=hint)[0], two_hosts.create(1, scheduler_hints=hint)[0]
    [alpha] = [h for name, h in two_hosts.hosts.items() if name == "alpha"]
    choice = Choice(
        host=alpha.name, node_id=alpha.agent.node_id, service_id=alpha.agent.service_id, availability_zone="nova"
    )
    for instance_id in (one, two):
        with suppress(ClaimDoesNotFit):
            two_hosts.ask(ScheduleInstance(instance_id=instance_id, attempt=1, choices=(choice,), reason=REASON))

    assert residence_of(two_hosts, one) == "alpha"
    assert residence_of(two_hosts, two) is None
    step_to_the_end(two_hosts)
    assert residence_of(two_hosts, two) == "beta"


# hints


def test_a_server_is_put_where_another_is_or_is_not(two_hosts: Ledger) -> None:
    [first] = two_hosts.running(1)
    where, named = residence_of(two_hosts, first), (str(first),)

    [beside] = two_hosts.running(1, scheduler_hints={"same_host": named})
    [away] = two_hosts.running(1, scheduler_hints={"different_host": named})

    assert residence_of(two_hosts, beside) == where
    assert residence_of(two_hosts, away) not in (where, None)


def test_a_hint_tells_nothing_of_another_projects_servers(two_hosts: Ledger) -> None:
    [theirs] = two_hosts.running(1, project_id=ProjectId("another-project"))

    [lost] = two_hosts.running(1, scheduler_hints={"same_host": (str(theirs),)})

    assert "SameHostFilter: 0 of 2 hosts left" in (two_hosts.instance(lost).fault or "")


# availability zones


def test_a_zone_is_that_of_the_hosts_aggregate(two_hosts: Ledger) -> None:
    beta = two_hosts.hosts["beta"]
    two_hosts.ask(CreateAggregate(aggregate_uuid=UUID(int=5), name="attic", availability_zone="attic"))
    two_hosts.ask(AddAggregateHost(aggregate_id=1, host=beta.name, service_id=beta.agent.service_id))

    [up] = two_hosts.running(1, pinned_availability_zone="attic")
    [down] = two_hosts.running(1, pinned_availability_zone="nova")

    assert (residence_of(two_hosts, up), residence_of(two_hosts, down)) == ("beta", "alpha")
    residence = two_hosts.instance(up).residence
    assert residence is not None
    assert residence.availability_zone == "attic"
