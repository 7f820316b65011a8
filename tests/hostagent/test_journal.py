"""What a host has begun and done outlives its agent."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from commands.orders import Act
from hostagent.journal import NOTHING, Entry, Journal
from tests.support.decisions import INSTANCE, OTHER

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def opened(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def test_a_guest_nobody_spoke_of_has_an_empty_entry(tmp_path: Path) -> None:
    assert opened(tmp_path).entry(INSTANCE) == NOTHING


def test_what_was_begun_and_settled_is_known_after_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.took(INSTANCE, 4, 2)
    journal.begin(INSTANCE, Act.POWER_OFF, 4)
    journal.close()
    begun = opened(tmp_path)
    assert begun.entry(INSTANCE) == Entry(generation=4, epoch=2, begun=Act.POWER_OFF, begun_revision=4)

    begun.settle(INSTANCE, 4, b"a report")
    begun.close()

    again = opened(tmp_path).entry(INSTANCE)
    assert (again.begun, again.settled_revision, again.outcome) == (Act.POWER_OFF, 4, b"a report")


def test_a_new_act_does_not_lose_the_last_outcome(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.begin(INSTANCE, Act.SPAWN, 2)
    journal.settle(INSTANCE, 2, b"spawned")

    journal.begin(INSTANCE, Act.POWER_OFF, 4)

    entry = journal.entry(INSTANCE)
    assert (entry.begun, entry.begun_revision, entry.settled_revision, entry.outcome) == (
        Act.POWER_OFF,
        4,
        2,
        b"spawned",
    )


def test_of_a_guest_that_is_wanted_no_more_it_is_kept_that_it_ended_and_with_which_order(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for instance_id in (INSTANCE, OTHER):
        journal.took(instance_id, 4, 2)
        journal.begin(instance_id, Act.SPAWN, 2)
        journal.settle(instance_id, 2, b"a report")

    journal.end(INSTANCE, NOW)
    journal.end(INSTANCE, NOW + timedelta(hours=1))
    journal.close()

    kept = opened(tmp_path)
    assert kept.entry(INSTANCE) == Entry(generation=4, epoch=2, ended=NOW)
    assert kept.entry(OTHER).ended is None


def test_an_order_that_was_taken_and_never_begun_ends_for_good_too(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.took(INSTANCE, 7, 2)
    journal.end(INSTANCE, NOW)
    journal.close()

    assert opened(tmp_path).entry(INSTANCE) == Entry(generation=7, epoch=2, ended=NOW)


def test_of_a_guest_nobody_spoke_of_no_end_is_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.end(INSTANCE, NOW)

    assert journal.entries() == {}


def test_another_residency_of_the_same_guest_begins_from_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.took(INSTANCE, 4, 2)
    journal.begin(INSTANCE, Act.SPAWN, 2)
    journal.settle(INSTANCE, 2, b"a report")
    journal.end(INSTANCE, NOW)

    journal.took(INSTANCE, 9, 3)

    assert journal.entry(INSTANCE) == Entry(generation=9, epoch=3)


def test_an_act_that_ends_after_its_guest_was_given_up_does_not_bring_it_back(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.took(INSTANCE, 4, 2)
    journal.begin(INSTANCE, Act.PURGE, 4)
    journal.end(INSTANCE, NOW)
    journal.settle(INSTANCE, 4, b"late")
    journal.close()

    kept = opened(tmp_path).entry(INSTANCE)
    assert (kept.ended, kept.generation) == (NOW, 4)


def test_what_ended_a_week_ago_is_forgotten(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for instance_id, days in ((INSTANCE, 8), (OTHER, 6)):
        journal.took(instance_id, 4, 2)
        journal.end(instance_id, NOW - timedelta(days=days))

    journal.forget_ended(NOW)
    journal.close()

    assert set(opened(tmp_path).entries()) == {OTHER}


def test_a_journal_from_before_ends_were_kept_is_read_and_goes_on(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    old.executescript(
        "CREATE TABLE host (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE guests (instance_id TEXT PRIMARY KEY, generation INTEGER NOT NULL, epoch INTEGER NOT NULL, begun TEXT,"
        "begun_revision INTEGER NOT NULL, settled_revision INTEGER NOT NULL, outcome BLOB) WITHOUT ROWID;"
    )
    old.execute("INSERT INTO guests VALUES (?, 4, 2, 'power_off', 4, 2, ?)", (str(INSTANCE), b"a report"))
    old.close()

    journal = opened(tmp_path)
    assert journal.entry(INSTANCE) == Entry(
        generation=4, epoch=2, begun=Act.POWER_OFF, begun_revision=4, settled_revision=2, outcome=b"a report"
    )
    journal.end(INSTANCE, NOW)
    journal.close()

    again = opened(tmp_path)
    assert again.entry(INSTANCE).ended == NOW


def test_a_fact_is_what_it_was_first_until_it_is_set(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert journal.fact("host", "alpha") == "alpha"
    assert journal.fact("host", "beta") == "alpha"
    journal.set_fact("epoch", "1")
    journal.set_fact("epoch", "2")
    journal.close()

    again = opened(tmp_path)
    assert (again.fact("host", "gamma"), again.fact("epoch", "0")) == ("alpha", "2")
