"""Views are thrown away and built again, beside the live ones and to the same bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from commands.host_aggregate import AddAggregateHost, CreateAggregate
from commands.log.store_log import StoreLog
from commands.quota import SetQuotaClassLimits
from commands.server_group import CreateServerGroup
from commands.vault import Vault
from domain.flavor import FlavorAccessGranted, FlavorExtraSpecsSet
from domain.identifiers import FLAVOR_CATALOG, ServerGroupId
from domain.recorded import RecordedEvent
from domain.server_group import GroupPolicy
from hostagent.drivers.protocol import DriverError
from projections.catalogue import VIEWS, projections
from projections.flavors import Flavors
from projections.rebuild import rebuild
from projections.servers import Servers
from projections.views import Views, connect, create, real_names, writing
from tests.support.ledger import LARGE, PROJECT, SMALL, USER, Crash, Ledger
from tests.support.samples import sample
from tests.support.views import dump


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger in which a little of everything has happened."""
    made = Ledger(tmp_path, ("alpha", "beta"), views=True).with_flavors()
    made.settle()
    made.ask(SetQuotaClassLimits(class_name="default", limits={"key_pairs": 7}))
    made.ask(CreateAggregate(aggregate_uuid=UUID(int=1), name="attic", availability_zone="attic"))
    beta = made.hosts["beta"]
    made.ask(AddAggregateHost(aggregate_id=1, host=beta.name, service_id=beta.agent.service_id))
    group = ServerGroupId(UUID(int=2))
    made.ask(
        CreateServerGroup(
            server_group_id=group, project_id=PROJECT, user_id=USER, name="web", policy=GroupPolicy.SOFT_AFFINITY
        )
    )
    made.hosts["alpha"].faults.crash("create", error=DriverError("no"))
    ids = made.running(4, scheduler_hints={"group": (str(group),)})
    made.stop(ids[0])
    made.reboot(ids[1])
    made.settle()
    made.start(ids[0])
    made.delete(ids[2])
    made.settle()
    made.hosts["beta"].paused = True
    made.pass_time(100, step_s=20)
    made.running(1, requested_host="nowhere", metadata={"a": "b"})
    yield made
    made.close()


def path(ledger: Ledger) -> Path:
    return ledger.directory / "views.db"


def generations(ledger: Ledger) -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(path(ledger))) as db:
        return {v: (g, p) for v, g, p in db.execute("SELECT view, generation, position FROM view_generations")}


def tables_of(ledger: Ledger) -> set[str]:
    with closing(sqlite3.connect(path(ledger))) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_rebuilt_view_is_the_live_one_byte_for_byte(ledger: Ledger, name: str) -> None:
    live = dump(path(ledger))

    rebuild(path(ledger), ledger.log, VIEWS[name]())

    assert dump(path(ledger)) == live
    assert generations(ledger)[name] == (2, ledger.store.head())


def test_a_view_built_by_a_process_that_decodes_every_record_is_the_same(ledger: Ledger, tmp_path: Path) -> None:
    elsewhere = StoreLog(
        ledger.store, Vault(ledger.store, (tmp_path / "vault.key").read_bytes()), tmp_path / "other.db"
    )
    views = Views(tmp_path / "other-views.db", elsewhere, projections())
    while views.step():
        pass

    assert dump(tmp_path / "other-views.db") == dump(path(ledger))
    views.close()
    elsewhere.close()


@pytest.mark.parametrize("at_most", [1, 2, 3, 7, 50])
def test_it_makes_no_difference_how_events_are_cut_into_batches(ledger: Ledger, tmp_path: Path, at_most: int) -> None:
    ledger.log.at_most = at_most
    views = Views(tmp_path / "other-views.db", ledger.log, projections())
    while views.step():
        pass

    assert dump(tmp_path / "other-views.db") == dump(path(ledger))
    views.close()


def test_views_that_are_opened_again_after_every_batch_are_the_same(ledger: Ledger, tmp_path: Path) -> None:
    ledger.log.at_most = 5
    worked = True
    while worked:
        views = Views(tmp_path / "other-views.db", ledger.log, projections())
        worked = views.step()
        views.close()

    assert dump(tmp_path / "other-views.db") == dump(path(ledger))


def test_a_view_remembers_no_more_than_it_may(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projections.servers.REMEMBERED", 1)
    ledger.log.at_most = 2
    views = Views(tmp_path / "other-views.db", ledger.log, projections())
    while views.step():
        pass

    assert dump(tmp_path / "other-views.db")["servers"] == dump(path(ledger))["servers"]
    views.close()


class Meanwhile:
    """The log as a rebuild reads it; something happens between its reads."""

    def __init__(self, ledger: Ledger, *happenings: Any) -> None:
        self._ledger = ledger
        self._happenings = list(happenings)

    def events(self, after: int, limit: int) -> Sequence[RecordedEvent]:
        records = self._ledger.log.events(after, 10)
        if self._happenings:
            self._happenings.pop(0)()
        return records

    def head(self) -> int:
        return self._ledger.log.head()


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_the_live_view_goes_on_while_another_is_built_beside_it(ledger: Ledger, name: str) -> None:
    assert ledger.views is not None

    def more_happens() -> None:
        ledger.create(1)
        for part in ("build", "orders", "alpha", "inbox", "views"):
            ledger.step(part)

    rebuild(path(ledger), Meanwhile(ledger, *[more_happens] * 6), VIEWS[name]())  # type: ignore[arg-type]
    ledger.settle()

    rebuilt = dump(path(ledger))
    rebuild(path(ledger), ledger.log, VIEWS[name]())
    assert dump(path(ledger)) == rebuilt
    assert ledger.views.position == ledger.store.head()


def test_a_view_built_beyond_the_live_one_is_gone_on_from_there(ledger: Ledger) -> None:
    ledger.create(1)
    ledger.settle_without("views")

    rebuild(path(ledger), ledger.log, Servers())
    ahead = generations(ledger)["servers"][1]
    assert ahead > generations(ledger)["flavors"][1]
    ledger.settle()

    assert generations(ledger)["servers"][1] == generations(ledger)["flavors"][1] == ledger.store.head()
    live = dump(path(ledger))
    rebuild(path(ledger), ledger.log, Servers())
    assert dump(path(ledger)) == live


def test_readers_see_a_whole_view_at_every_moment_of_a_rebuild(ledger: Ledger) -> None:
    live = dump(path(ledger))
    seen: list[bool] = []

    rebuild(path(ledger), Meanwhile(ledger, *[lambda: seen.append(dump(path(ledger)) == live)] * 20), Servers())  # type: ignore[arg-type]

    assert len(seen) > 2
    assert all(seen)


def test_a_rebuild_that_was_interrupted_leaves_the_live_view_and_is_begun_again(ledger: Ledger) -> None:
    live = dump(path(ledger))

    def die() -> None:
        raise Crash

    with pytest.raises(Crash):
        rebuild(path(ledger), Meanwhile(ledger, lambda: None, die), Servers())  # type: ignore[arg-type]
    assert dump(path(ledger)) == live
    assert "servers_g2" not in tables_of(ledger)
    assert not list(ledger.directory.glob("*.rebuild-*"))

    rebuild(path(ledger), ledger.log, Servers())
    assert dump(path(ledger)) == live
    assert not {"servers_g1", "servers_g3"} & tables_of(ledger)


def test_a_rebuild_in_another_process_ends_though_the_ledger_goes_on(ledger: Ledger, tmp_path: Path) -> None:
    elsewhere = StoreLog(ledger.store, ledger.vault, tmp_path / "other.db")
    ledger.create(1)  # after that process opened its log: it hears of nothing any more
    ledger.settle()

    rebuild(path(ledger), elsewhere, Servers())

    assert generations(ledger)["servers"] == (2, ledger.store.head())
    elsewhere.close()


class NewForm(Servers):
    form = Servers.form + 1


def test_a_view_of_an_older_form_is_dropped_and_built_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    live = dump(path(ledger))
    assert ledger.views is not None
    ledger.views.close()

    ledger.views = Views(path(ledger), ledger.log, [NewForm(), *projections()[1:]])
    assert ledger.views.position == 0
    ledger.settle()

    assert dump(path(ledger)) == live
    assert "servers_g1" not in tables_of(ledger)


def test_a_new_form_replaces_what_an_interrupted_rebuild_left(ledger: Ledger) -> None:
    with closing(connect(path(ledger))) as db, writing(db):
        create(db, Servers(), 2)
    assert ledger.views is not None
    ledger.views.close()

    ledger.views = Views(path(ledger), ledger.log, [NewForm(), *projections()[1:]])
    ledger.settle()

    assert len(dump(path(ledger))["servers"]) == 5


def test_a_process_that_keeps_some_views_does_not_move_the_others(ledger: Ledger) -> None:
    before = generations(ledger)["flavors"]
    some = Views(path(ledger), ledger.log, [Servers()])
    ledger.create(1)
    some.step()
    some.close()

    assert generations(ledger)["flavors"] == before
    assert generations(ledger)["servers"][1] > before[1]


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_batch_that_fails_after_this_view_took_it_is_taken_again(ledger: Ledger, name: str) -> None:
    class Broken(type(VIEWS[name]())):  # type: ignore[misc]
        broken = False

        def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
            super().apply(db, tables, records)
            if self.broken:
                raise OSError("the disk is full")

    assert ledger.views is not None
    ledger.views.close()
    broken = Broken()
    ledger.views = Views(path(ledger), ledger.log, [broken if v.name == name else v for v in projections()])
    [instance_id] = ledger.running()
    live, position = dump(path(ledger)), ledger.views.position
    broken.broken = True
    ledger.stop(instance_id)
    ledger.settle_without("views")
    for _ in range(3):
        with pytest.raises(OSError, match="full"):
            ledger.views.step()
    assert dump(path(ledger)) == live
    assert ledger.views.position == position

    broken.broken = False
    ledger.settle()
    ledger.start(instance_id)
    ledger.settle()

    settled = dump(path(ledger))
    for make in VIEWS.values():
        rebuild(path(ledger), ledger.log, make())
    assert dump(path(ledger)) == settled


def test_listeners_hear_how_far_readers_can_see(ledger: Ledger) -> None:
    heard: list[int] = []
    assert ledger.views is not None
    ledger.views.on_progress(heard.append)

    ledger.create(1)
    ledger.step("views")

    assert heard == [ledger.store.head()]


def test_a_rebuild_says_how_far_it_is(ledger: Ledger) -> None:
    told: list[tuple[int, int]] = []

    applied = rebuild(path(ledger), ledger.log, Servers(), lambda done, of: told.append((done, of)))

    assert told[-1] == (ledger.store.head(), ledger.store.head())
    assert applied == ledger.store.head()


def test_events_that_no_command_makes_yet_are_shown_too(ledger: Ledger, tmp_path: Path) -> None:
    db = connect(tmp_path / "alone.db")
    flavors = Flavors()
    with writing(db):
        create(db, flavors, 1)
    tables = real_names(flavors, 1)
    made = next(r for r in ledger.history() if r.stream == FLAVOR_CATALOG)
    specs = FlavorExtraSpecsSet(flavor_id=SMALL.flavor_id, extra_specs={"hw:cpu_sockets": "2"})
    granted = replace(sample(FlavorAccessGranted), flavor_id=SMALL.flavor_id)

    flavors.apply(
        db, tables, [made, replace(made, event=specs), replace(made, event=granted), replace(made, event=granted)]
    )

    assert db.execute("SELECT extra_specs FROM flavors_g1").fetchall() == [('{"hw:cpu_sockets":"2"}',)]
    assert db.execute("SELECT COUNT(*) FROM flavor_access_g1").fetchone() == (1,)
    assert LARGE.flavor_id not in {f for (f,) in db.execute("SELECT flavor_id FROM flavors_g1")}
    db.close()
