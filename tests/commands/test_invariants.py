"""Whatever is asked, in whatever order things happen, die and come back: what the ledger promises holds at every step,
and everything comes to rest.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commands.event_store import StoreUnavailable
from commands.instance.attributes import UpdateInstance
from commands.instance.lock import LockInstance, UnlockInstance
from commands.instance.metadata import SetMetadata
from commands.instance.reset import ResetInstanceState
from commands.instance.suspension import PauseInstance, ResumeInstance, SuspendInstance, UnpauseInstance
from commands.log.port import REPORTS, Message
from commands.states import kind_of
from domain.errors import DomainError
from domain.identifiers import InstanceId, StreamId, category_of
from domain.instance.events import InstancePurged
from domain.instance.state import Instance, PowerState, VmState
from domain.quota import DEFAULT_LIMITS, Quota
from domain.resource_provider import ProviderTree
from hostagent.drivers.fake_controls import history, ran_twice
from hostagent.drivers.protocol import DriverError, HypervisorUnreachable
from projections.catalogue import VIEWS
from projections.rebuild import rebuild
from tests.support.ledger import (
    COMPONENTS,
    LARGE,
    NAMES,
    PROJECT,
    SMALL,
    Crash,
    HostSize,
    Ledger,
    create_command,
    require_within_capacity,
)
from tests.support.views import dump

HOSTS = ("alpha", "beta")
LIMITS = {"instances": 6, "cores": 10, "ram": 6144}
DRIVER_CALLS = (
    "create",
    "create",
    "create",
    "destroy",
    "destroy",
    "power_on",
    "power_off",
    "reboot",
    "pause",
    "suspend",
    "resume",
    "observe_guest",
)


Choices = dict[str, tuple[Any, ...]]
Happening = tuple[str, dict[str, Any]]

NTH, WHEN = (0, 1, 2, 3, 4, 5), ("before", "after")

# What can happen: methods of the machine below, with what each may be called with. Named twice is twice as likely.
ASKS: tuple[tuple[str, Choices], ...] = (
    ("create", {"count": (1, 2, 3), "large": (False, True)}),
    ("start", {"nth": NTH}),
    ("stop", {"nth": NTH}),
    ("reboot", {"nth": NTH, "hard": (False, True)}),
    ("delete", {"nth": NTH}),
    ("hold_or_let_go_on", {"nth": NTH, "kind": (PauseInstance, UnpauseInstance, SuspendInstance, ResumeInstance)}),
    ("write_on", {"nth": NTH, "value": ("1", "2")}),
    ("lock_or_unlock", {"nth": NTH, "locked": (False, True)}),
    ("give_up", {"nth": NTH}),
    ("ask_again", {"nth": NTH}),
)
GOES_ON: tuple[tuple[str, Choices], ...] = (
    ("settle", {}),
    ("settle", {}),
    ("step", {"name": (*COMPONENTS, *HOSTS, "views")}),
    ("step", {"name": (*COMPONENTS, *HOSTS, "views")}),
    ("time_passes", {"seconds": (1, 12, 70, 400)}),
    ("a_second_process_steps_too", {"name": COMPONENTS}),
    ("a_report_arrives_again", {"nth": NTH}),
    ("a_view_is_rebuilt", {"name": tuple(sorted(VIEWS))}),
)
GOES_WRONG: tuple[tuple[str, Choices], ...] = (
    ("a_host_freezes_or_thaws", {"name": HOSTS}),
    ("a_host_is_silent_until_it_is_down", {"name": HOSTS}),
    ("an_agent_restarts", {"name": HOSTS}),
    ("components_restart", {"names": ((), ("build", "inbox"), ("orders", "deadlines"))}),
    (
        "a_component_dies",
        {"name": COMPONENTS, "call": ("transaction", "commit", "publish"), "when": WHEN, "skip": (0, 1)},
    ),
    ("the_next_commit_has_no_answer", {"when": WHEN}),
    ("an_agent_dies_at_work", {"name": HOSTS, "call": (*DRIVER_CALLS, "begin", "settle"), "when": WHEN}),
    (
        "a_hypervisor_fails",
        {"name": HOSTS, "call": DRIVER_CALLS, "when": WHEN, "error": (DriverError, HypervisorUnreachable)},
    ),
    (
        "someone_switches_a_guest",
        {"nth": NTH, "power": (PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.CRASHED, PowerState.PAUSED)},
    ),
)


def any_of(table: tuple[tuple[str, Choices], ...]) -> st.SearchStrategy[Happening]:
    return st.one_of(
        *(
            st.tuples(st.just(name), st.fixed_dictionaries({k: st.sampled_from(v) for k, v in choices.items()}))
            for name, choices in table
        )
    )


class AnyOrderOfThings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ledger-"))
        defaults = {**DEFAULT_LIMITS, **LIMITS}
        self.ledger = Ledger(
            self.directory, HOSTS, size=HostSize(vcpus=5, memory_mib=4096), views=True, quota_defaults=defaults
        )
        self.ledger.with_flavors()
        side = self.ledger.command_side()  # a second one, active by accident
        self.others = {name: make() for name, make in side.consumers.items()}
        self.states: dict[StreamId, Any] = {}
        self.versions: dict[StreamId, int] = {}
        self.position = 0
        self.asked: list[tuple[Any, UUID]] = []

    @initialize(count=st.integers(0, 3))
    def both_hosts_are_up_and_some_guests_run(self, count: int) -> None:
        self.ledger.settle()
        if count:
            self.create(count, large=False)
            self.ledger.settle()

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.ledger.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    # what users ask

    @rule(what=any_of(ASKS))
    def someone_asks(self, what: Happening) -> None:
        self.happen(what)

    def create(self, count: int, large: bool) -> None:
        ids = [InstanceId(uuid5(NAMES, f"{len(self.asked)}/{n}")) for n in range(count)]
        self.ask(create_command(ids, flavor=LARGE if large else SMALL))

    def start(self, nth: int) -> None:
        self.of_some_instance(nth, self.ledger.start)

    def stop(self, nth: int) -> None:
        self.of_some_instance(nth, self.ledger.stop)

    def reboot(self, nth: int, hard: bool) -> None:
        self.of_some_instance(nth, lambda instance_id: self.ledger.reboot(instance_id, hard=hard))

    def delete(self, nth: int) -> None:
        self.of_some_instance(nth, self.ledger.delete)

    def hold_or_let_go_on(self, nth: int, kind: Any) -> None:
        self.of_some_instance(nth, lambda i: self.ledger.ask(kind(instance_id=i, project_id=PROJECT)))

    def write_on(self, nth: int, value: str) -> None:
        def write(instance_id: InstanceId) -> None:
            self.ledger.ask(SetMetadata(instance_id=instance_id, project_id=PROJECT, items={"key": value}))
            self.ledger.ask(UpdateInstance(instance_id=instance_id, project_id=PROJECT, changes={"name": value}))

        self.of_some_instance(nth, write)

    def lock_or_unlock(self, nth: int, locked: bool) -> None:
        def ask(instance_id: InstanceId) -> None:
            asked = {"instance_id": instance_id, "project_id": PROJECT, "by_project": PROJECT}
            self.ledger.ask(LockInstance(**asked) if locked else UnlockInstance(**asked, override=False))

        self.of_some_instance(nth, ask)

    def give_up(self, nth: int) -> None:
        """An administrator sets a server's state to error."""
        self.of_some_instance(
            nth, lambda i: self.ledger.ask(ResetInstanceState(instance_id=i, project_id=None, vm_state="error"))
        )

    def ask_again(self, nth: int) -> None:
        if self.asked:
            self.ask(*self.asked[nth % len(self.asked)])

    def ask(self, command: Any, command_id: UUID | None = None) -> None:
        if command_id is None:
            self.asked.append((command, command_id := self.ledger.command_id()))
        with suppress(DomainError, StoreUnavailable):
            self.ledger.ask(command, command_id)

    def of_some_instance(self, nth: int, ask: Callable[[InstanceId], Any]) -> None:
        live = sorted((i.id for i in self.instances().values() if not i.deleted), key=lambda i: i.int)
        if live:
            with suppress(DomainError, StoreUnavailable):
                ask(live[nth % len(live)])

    # what goes on

    @rule(what=any_of(GOES_ON))
    def something_goes_on(self, what: Happening) -> None:
        self.happen(what)

    def step(self, name: str) -> None:
        with suppress(StoreUnavailable):
            self.ledger.step(name)

    def settle(self) -> None:
        self.ledger.faults.heal()
        self.ledger.settle()

    def time_passes(self, seconds: int) -> None:
        self.ledger.clock.advance(seconds)

    def a_second_process_steps_too(self, name: str) -> None:
        with suppress(StoreUnavailable):
            self.others[name].step()

    def a_report_arrives_again(self, nth: int) -> None:
        reports = self.ledger.messages(REPORTS)
        if reports:
            report = reports[-1 - nth % len(reports)]
            self.ledger.log.publish([Message(REPORTS, report.key, report.value)])

    def a_view_is_rebuilt(self, name: str) -> None:
        rebuild(self.directory / "views.db", self.ledger.log, VIEWS[name]())

    # what goes wrong

    @rule(what=any_of(GOES_WRONG))
    def something_goes_wrong(self, what: Happening) -> None:
        self.happen(what)

    def a_host_freezes_or_thaws(self, name: str) -> None:
        host = self.ledger.hosts[name]
        host.paused = not host.paused

    def a_host_is_silent_until_it_is_down(self, name: str) -> None:
        self.ledger.faults.heal()
        self.ledger.hosts[name].paused = True
        for _ in range(2):
            self.ledger.clock.advance(45)
            self.ledger.settle()

    def an_agent_restarts(self, name: str) -> None:
        self.ledger.hosts[name].restart()

    def components_restart(self, names: tuple[str, ...]) -> None:
        self.ledger.restart(*names)

    def a_component_dies(self, name: str, call: str, when: str, skip: int) -> None:
        self.ledger.faults.crash(call, when, skip=skip)
        with suppress(Crash, StoreUnavailable):
            for _ in range(3):
                self.ledger.step(name)
        self.ledger.restart(name)

    def the_next_commit_has_no_answer(self, when: str) -> None:
        self.ledger.faults.crash("transaction", when, error=StoreUnavailable("told to fail"))

    def an_agent_dies_at_work(self, name: str, call: str, when: str) -> None:
        host = self.ledger.hosts[name]
        host.faults.crash(call, when)
        for part in (*COMPONENTS, name):
            with suppress(StoreUnavailable, Crash):
                self.ledger.step(part)
        host.restart()

    def a_hypervisor_fails(self, name: str, call: str, when: str, error: type[Exception]) -> None:
        self.ledger.hosts[name].faults.crash(call, when, error=error("told to fail"))

    def someone_switches_a_guest(self, nth: int, power: PowerState) -> None:
        if guests := self.guests():
            name, instance_id = guests[nth % len(guests)]
            self.ledger.hosts[name].switch_power(instance_id, power)

    def happen(self, what: Happening) -> None:
        name, arguments = what
        getattr(self, name)(**arguments)

    # what holds

    def instances(self) -> dict[InstanceId, Instance]:
        return {s.id: s for stream, s in self.states.items() if category_of(stream) == "instance"}

    def guests(self) -> list[tuple[str, InstanceId]]:
        return [
            (name, i) for name, host in self.ledger.hosts.items() for i in sorted(host.guests(), key=lambda i: i.int)
        ]

    @invariant()
    def history_goes_on_and_folds(self) -> None:
        for record in self.ledger.history(self.position):
            assert record.version == self.versions.get(record.stream, 0) + 1
            before = self.states.get(record.stream)
            if isinstance(before, Instance) and before.deleted:
                assert isinstance(record.event, InstancePurged), "deleted stays deleted"
                assert before.purge_pending, "purged once"
            self.states[record.stream] = kind_of(record.stream).evolve(before, record.event)
            self.versions[record.stream] = record.version
            self.position = record.position

    @invariant()
    def no_claim_is_without_its_instance_or_beyond_the_inventory(self) -> None:
        claims = {}
        for state in self.states.values():
            if isinstance(state, ProviderTree):
                require_within_capacity(state)
                for consumer_id in state.claims:
                    assert consumer_id not in claims, "one claim, on one host"
                    claims[consumer_id] = state.node_id
        placed = {
            i.id: i.residence.node_id
            for i in self.instances().values()
            if i.residence is not None and (not i.deleted or i.purge_pending)
        }
        assert claims == placed

    @invariant()
    def the_quota_counts_what_lives(self) -> None:
        live = [i for i in self.instances().values() if not i.deleted]
        for state in self.states.values():
            if isinstance(state, Quota):
                assert state.project_id == PROJECT
                assert state.used["instances"] == len(live) <= LIMITS["instances"]
                assert state.used["cores"] == sum(i.request.flavor.vcpus for i in live) <= LIMITS["cores"]
                assert state.used["ram"] == sum(i.request.flavor.memory_mib for i in live) <= LIMITS["ram"]

    @invariant()
    def no_guest_is_made_twice_or_runs_on_two_hosts(self) -> None:
        for host in self.ledger.hosts.values():
            there: set[InstanceId] = set()
            for entry in history(host.hypervisor):
                if entry.did == "create":
                    assert entry.instance_id not in there
                    there.add(entry.instance_id)
                elif entry.did == "destroy":
                    there.discard(entry.instance_id)
        assert not ran_twice(host.hypervisor for host in self.ledger.hosts.values())

    def comes_to_rest(self) -> None:
        ledger = self.ledger
        ledger.faults.heal()
        for host in ledger.hosts.values():
            host.paused = False
            host.faults.heal()
        ledger.settle()
        ledger.pass_time(200, step_s=20)
        self.check()

        for instance in self.instances().values():
            assert instance.task_state is None, f"{instance.task_state} hangs: {ledger.history_of(instance.id)}"
            assert not instance.purge_pending, "its host is back"
            self._is_as_its_guest(instance)
        live = {i.id for i in self.instances().values() if not i.deleted}
        assert {instance_id for _, instance_id in self.guests()} <= live, "no guest outlives its instance"
        self._views_are_what_a_rebuild_makes()

    def _is_as_its_guest(self, instance: Instance) -> None:
        if instance.vm_state not in (VmState.ACTIVE, VmState.PAUSED, VmState.STOPPED):
            return
        assert instance.residence is not None
        power = self.ledger.hosts[instance.residence.host].guests()[instance.id]
        is_off = power in (PowerState.SHUTDOWN, PowerState.CRASHED)
        assert is_off is (instance.vm_state is VmState.STOPPED), self.ledger.history_of(instance.id)

    def _views_are_what_a_rebuild_makes(self) -> None:
        path = self.directory / "views.db"
        live = dump(path)
        for make in VIEWS.values():
            rebuild(path, self.ledger.log, make())
        assert dump(path) == live

    def check(self) -> None:
        self.history_goes_on_and_folds()
        self.no_claim_is_without_its_instance_or_beyond_the_inventory()
        self.the_quota_counts_what_lives()
        self.no_guest_is_made_twice_or_runs_on_two_hosts()


TestAnyOrderOfThings = AnyOrderOfThings.TestCase
TestAnyOrderOfThings.settings = settings(max_examples=25, stateful_step_count=30)


@pytest.mark.parametrize("seed", range(25))
def test_a_long_run_of_things_that_happen_by_chance(seed: int) -> None:
    """The same, evenly mixed; a run is repeated from its seed."""
    chance, machine = Random(seed), AnyOrderOfThings()
    try:
        machine.both_hosts_are_up_and_some_guests_run(2)
        for _ in range(60):
            name, choices = chance.choice(chance.choice((ASKS, ASKS, GOES_ON, GOES_ON, GOES_WRONG)))
            machine.happen((name, {k: chance.choice(v) for k, v in choices.items()}))
            machine.check()
    finally:
        machine.teardown()
