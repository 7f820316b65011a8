"""What a host has begun and done outlives its agent."""

from __future__ import annotations

from pathlib import Path

from commands.orders import Act
from hostagent.journal import NOTHING, Entry, Journal
from tests.support.decisions import INSTANCE, OTHER


def opened(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def test_a_guest_nobody_spoke_of_has_an_empty_entry(tmp_path: Path) -> None:
    assert opened(tmp_path).entry(INSTANCE) == NOTHING


def test_what_was_begun_and_settled_is_known_after_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.took([(INSTANCE, 4, 2)])
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


def test_a_guest_that_is_wanted_no_more_is_forgotten_and_the_others_are_not(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for instance_id in (INSTANCE, OTHER):
        journal.begin(instance_id, Act.SPAWN, 2)

    journal.forget(INSTANCE)
    journal.forget(INSTANCE)
    journal.close()

    assert set(opened(tmp_path).entries()) == {OTHER}


def test_a_fact_is_what_it_was_first_until_it_is_set(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert journal.fact("host", "alpha") == "alpha"
    assert journal.fact("host", "beta") == "alpha"
    journal.set_fact("epoch", "1")
    journal.set_fact("epoch", "2")
    journal.close()

    again = opened(tmp_path)
    assert (again.fact("host", "gamma"), again.fact("epoch", "0")) == ("alpha", "2")
