"""Whatever is asked, in whatever order things happen, die and come back: what the ledger promises holds at every step,
and everything comes to rest.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid5

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from commands.event_store import StoreUnavailable
from commands.log.port import REPORTS, Message
from commands.states import kind_of
from domain.errors import DomainError
from domain.identifiers import InstanceId, StreamId, category_of
from domain.instance.events import InstancePurged
from domain.instance.state import Instance, PowerState, VmState
from domain.quota import Quota
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
DRIVER_CALLS = ("create", "power_on", "power_off", "reboot", "destroy", "observe_guest")
DRIVER_ERRORS = (DriverError, HypervisorUnreachable)


class AnyOrderOfThings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ledger-"))
        defaults = {"key_pairs": 100, **LIMITS}
        self.ledger = Ledger(
            self.directory, HOSTS, size=HostSize(vcpus=5, memory_mib=4096), views=True, quota_defaults=defaults
        )
        self.ledger.with_flavors()
        self.others = {c.name: c for c in self.ledger.command_side().consumers}  # a second, active by accident
        self.states: dict[StreamId, Any] = {}
        self.versions: dict[StreamId, int] = {}
        self.position = 0
        self.asked: list[tuple[Any, Any]] = []

    @initialize()
    def both_hosts_are_up(self) -> None:
        self.ledger.settle()

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.ledger.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    # what users ask

    def ask(self, command: Any) -> None:
        command_id = self.ledger.command_id()
        self.asked.append((command, command_id))
        with suppress(DomainError, StoreUnavailable):
            self.ledger.ask(command, command_id)

    def choose(self, data: st.DataObject) -> InstanceId:
        return data.draw(st.sampled_from(sorted(self.instances(), key=lambda i: i.int)), label="instance")

    @rule(count=st.integers(1, 3), large=st.booleans())
    def create(self, count: int, large: bool) -> None:
        ids = [InstanceId(uuid5(NAMES, f"{len(self.asked)}/{n}")) for n in range(count)]
        self.ask(create_command(ids, flavor=LARGE if large else SMALL))

    @precondition(lambda self: self.instances())
    @rule(data=st.data(), what=st.sampled_from(("start", "stop", "reboot", "hard reboot", "delete", "delete")))
    def use(self, data: st.DataObject, what: str) -> None:
        instance_id = self.choose(data)
        act: dict[str, Callable[[], Any]] = {
            "start": lambda: self.ledger.start(instance_id),
            "stop": lambda: self.ledger.stop(instance_id),
            "reboot": lambda: self.ledger.reboot(instance_id),
            "hard reboot": lambda: self.ledger.reboot(instance_id, hard=True),
            "delete": lambda: self.ledger.delete(instance_id),
        }
        with suppress(DomainError, StoreUnavailable):
            act[what]()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def send_a_command_again(self, data: st.DataObject) -> None:
        command, command_id = data.draw(st.sampled_from(self.asked))
        with suppress(DomainError, StoreUnavailable):
            self.ledger.ask(command, command_id)

    # what goes on

    @rule(name=st.sampled_from((*COMPONENTS, *HOSTS, "views")))
    def step(self, name: str) -> None:
        with suppress(StoreUnavailable):
            self.ledger.step(name)

    @rule()
    def settle(self) -> None:
        self.ledger.faults.heal()
        self.ledger.settle()

    @rule(seconds=st.sampled_from((1, 12, 70, 400)))
    def time_passes(self, seconds: int) -> None:
        self.ledger.clock.advance(seconds)

    @rule(name=st.sampled_from(COMPONENTS))
    def a_second_process_steps_too(self, name: str) -> None:
        with suppress(StoreUnavailable):
            self.others[name].step()

    @rule(data=st.data())
    def a_report_arrives_again(self, data: st.DataObject) -> None:
        reports = self.ledger.messages(REPORTS)
        if reports:
            report = data.draw(st.sampled_from(list(reports)))
            self.ledger.log.publish([Message(REPORTS, report.key, report.value)])

    # what goes wrong

    @rule(name=st.sampled_from(HOSTS))
    def a_host_freezes_or_thaws(self, name: str) -> None:
        host = self.ledger.hosts[name]
        host.paused = not host.paused

    @rule(name=st.sampled_from(HOSTS))
    def an_agent_restarts(self, name: str) -> None:
        self.ledger.hosts[name].restart()

    @rule(names=st.lists(st.sampled_from(COMPONENTS), unique=True))
    def components_restart(self, names: list[str]) -> None:
        self.ledger.restart(*names)

    @rule(
        name=st.sampled_from(COMPONENTS),
        call=st.sampled_from(("transaction", "commit", "publish")),
        when=st.sampled_from(("before", "after")),
        skip=st.integers(0, 1),
    )
    def a_component_dies(self, name: str, call: str, when: str, skip: int) -> None:
        self.ledger.faults.crash(call, when, skip=skip)
        with suppress(Crash, StoreUnavailable):
            for _ in range(3):
                self.ledger.step(name)
        self.ledger.restart(name)

    @rule(when=st.sampled_from(("before", "after")))
    def the_next_commit_has_no_answer(self, when: str) -> None:
        self.ledger.faults.crash("transaction", when, error=StoreUnavailable("told to fail"))

    @rule(
        name=st.sampled_from(HOSTS),
        call=st.sampled_from((*DRIVER_CALLS, "begin", "settle")),
        when=st.sampled_from(("before", "after")),
    )
    def an_agent_dies_at_work(self, name: str, call: str, when: str) -> None:
        host = self.ledger.hosts[name]
        host.faults.crash(call, when)
        for part in (*COMPONENTS, name):
            with suppress(StoreUnavailable, Crash):
                self.ledger.step(part)
        host.restart()

    @rule(
        name=st.sampled_from(HOSTS),
        call=st.sampled_from(DRIVER_CALLS),
        when=st.sampled_from(("before", "after")),
        error=st.sampled_from(DRIVER_ERRORS),
    )
    def a_hypervisor_fails(self, name: str, call: str, when: str, error: type[Exception]) -> None:
        self.ledger.hosts[name].faults.crash(call, when, error=error("told to fail"))

    @precondition(lambda self: self.guests())
    @rule(data=st.data(), power=st.sampled_from((PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.CRASHED)))
    def someone_switches_a_guest(self, data: st.DataObject, power: PowerState) -> None:
        name, instance_id = data.draw(st.sampled_from(self.guests()))
        self.ledger.hosts[name].switch_power(instance_id, power)

    @rule(name=st.sampled_from(sorted(VIEWS)))
    def a_view_is_rebuilt(self, name: str) -> None:
        rebuild(self.directory / "views.db", self.ledger.log, VIEWS[name]())

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
        self.history_goes_on_and_folds()
        self.no_claim_is_without_its_instance_or_beyond_the_inventory()
        self.the_quota_counts_what_lives()
        self.no_guest_is_made_twice_or_runs_on_two_hosts()

        for instance in self.instances().values():
            assert instance.task_state is None, f"{instance.task_state} hangs: {ledger.history_of(instance.id)}"
            assert not instance.purge_pending, "its host is back"
            self._is_as_its_guest(instance)
        live = {i.id for i in self.instances().values() if not i.deleted}
        assert {instance_id for _, instance_id in self.guests()} <= live, "no guest outlives its instance"
        self._views_are_what_a_rebuild_makes()

    def _is_as_its_guest(self, instance: Instance) -> None:
        if instance.vm_state not in (VmState.ACTIVE, VmState.STOPPED):
            return
        assert instance.residence is not None
        power = self.ledger.hosts[instance.residence.host].guests()[instance.id]
        assert (power == PowerState.RUNNING) is (instance.vm_state is VmState.ACTIVE), self.ledger.history_of(
            instance.id
        )

    def _views_are_what_a_rebuild_makes(self) -> None:
        path = self.directory / "views.db"
        live = dump(path)
        for make in VIEWS.values():
            rebuild(path, self.ledger.log, make())
        assert dump(path) == live


TestAnyOrderOfThings = AnyOrderOfThings.TestCase
TestAnyOrderOfThings.settings = settings(max_examples=60, stateful_step_count=40)
