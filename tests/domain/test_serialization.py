"""What is recorded reads back as it was, shows nothing personal in plain, and stays readable for ever."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import orjson
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from commands.states import STREAM_KINDS
from domain import serialization
from domain.flavor import FlavorSpec
from domain.instance.events import InstanceCreateRequested, InstanceScheduled, KeypairUsed, NetworkRequest
from domain.keypair import KeypairCreated
from domain.marks import ERASED, Personal
from domain.serialization import (
    EVENTS,
    WIRE_NAMES,
    UnknownEventType,
    decode_event,
    encode_event,
    from_plain,
    shape_of,
    to_plain,
)
from tests.history.pin import DIRECTORY, golden_file, pinned_form
from tests.support.decisions import FLAVOR, create_requested, scheduled
from tests.support.samples import anything, sample

FORMS = sorted(EVENTS)


def through_json(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def recorded_and_read(event: Any) -> Any:
    name, plain, personal = encode_event(event)
    return decode_event(name, through_json(plain), through_json(personal))


@pytest.mark.parametrize("wire_name", FORMS)
def test_an_event_reads_back_as_it_was_recorded(wire_name: str) -> None:
    event = sample(EVENTS[wire_name])

    assert recorded_and_read(event) == event


@pytest.mark.parametrize("wire_name", FORMS)
@settings(max_examples=15)
@for_all(data=st.data())
def test_any_event_reads_back_as_it_was_recorded(wire_name: str, data: st.DataObject) -> None:
    event = data.draw(anything(EVENTS[wire_name]))

    assert recorded_and_read(event) == event


@pytest.mark.parametrize("wire_name", FORMS)
def test_no_personal_value_is_in_the_plain_part(wire_name: str) -> None:
    cls = EVENTS[wire_name]

    _, plain, personal = encode_event(sample(cls))

    marked = personal_fields(cls)
    assert not set(marked) & set(plain)
    assert {name for of_subject in personal.values() for name in of_subject} == set(marked)


def test_what_a_user_wrote_into_a_create_is_nowhere_in_its_plain_part() -> None:
    private = replace(
        create_requested,
        name="private name",
        hostname="private-host",
        description="private words",
        keypair=KeypairUsed(name="private key", type="ssh", public_key="private@home"),
        networks=(NetworkRequest(fixed_ip="192.0.2.99"),),
        metadata={"who": "private data"},
        tags=("private tag",),
        access_ipv4="192.0.2.99",
        access_ipv6="2001:db8::99",
    )

    _, plain, personal = encode_event(private)

    shown = orjson.dumps(plain).decode()
    assert "private" not in shown
    assert "99" not in shown
    assert set(personal) == {private.user_id}


@pytest.mark.parametrize("wire_name", [name for name in FORMS if name in ("keypair.created", "instance.scheduled")])
def test_an_erased_subject_reads_as_erased_and_all_else_stays(wire_name: str) -> None:
    event = sample(EVENTS[wire_name])
    name, plain, personal = encode_event(event)

    erased = decode_event(name, through_json(plain), dict.fromkeys(personal))

    for field in fields(event):
        if field.name in personal_fields(type(event)):
            assert getattr(erased, field.name) in (ERASED, (), {}, None)
        else:
            assert getattr(erased, field.name) == getattr(event, field.name)


def test_an_erased_create_still_tells_what_was_claimed_and_by_whom() -> None:
    name, plain, personal = encode_event(sample(InstanceCreateRequested))

    erased = decode_event(name, plain, dict.fromkeys(personal))

    assert (erased.name, erased.hostname, erased.description) == (ERASED, ERASED, None)
    assert (erased.metadata, erased.tags, erased.keypair, erased.networks) == ({}, (), None, ())
    assert erased.flavor == sample(InstanceCreateRequested).flavor


def test_the_addresses_of_a_guest_are_personal() -> None:
    _, plain, personal = encode_event(scheduled)

    assert "interfaces" not in plain
    assert personal[scheduled.user_id]["interfaces"]


def test_a_type_of_a_newer_release_stops_its_reader() -> None:
    with pytest.raises(UnknownEventType, match=r"instance\.teleported"):
        decode_event("instance.teleported", {}, {})


def test_an_old_form_is_lifted_step_by_step_to_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        serialization.LIFTS, "instance.halted", lambda plain: ("instance.halted_2", {**plain, "power_state": 4})
    )
    monkeypatch.setitem(serialization.LIFTS, "instance.halted_2", lambda plain: ("instance.stopped", plain))

    lifted = decode_event("instance.halted", {"instance_id": str(UUID(int=1))}, {})

    assert lifted == decode_event("instance.stopped", {"instance_id": str(UUID(int=1)), "power_state": 4}, {})


def test_a_field_that_came_later_reads_as_its_default_in_older_records() -> None:
    name, plain, personal = encode_event(create_requested)
    del plain["disk_config"]

    assert decode_event(name, plain, personal) == create_requested


def test_a_record_that_lacks_what_it_always_had_is_damaged() -> None:
    name, plain, personal = encode_event(create_requested)
    del plain["flavor"]

    with pytest.raises(ValueError, match="lacks flavor"):
        decode_event(name, plain, personal)


def test_a_field_of_a_newer_release_is_passed_over() -> None:
    name, plain, personal = encode_event(create_requested)

    assert decode_event(name, {**plain, "colour": "blue"}, personal) == create_requested


def test_a_whole_number_is_recorded_as_it_will_be_read() -> None:
    flavor = replace(FLAVOR, rxtx_factor=1)

    assert orjson.dumps(to_plain(flavor)) == orjson.dumps(to_plain(from_plain(FlavorSpec, to_plain(flavor))))


@pytest.mark.parametrize("wire_name", FORMS)
def test_the_form_of_an_event_is_the_one_that_was_pinned(wire_name: str) -> None:
    assert pinned_form(wire_name) == json.loads(golden_file(wire_name).read_text()), (
        "a form on disk changed: see tests/history/pin.py"
    )


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.json")), ids=lambda path: path.stem)
def test_every_form_that_was_ever_pinned_can_still_be_read(path: Any) -> None:
    form = json.loads(path.read_text())

    decode_event(form["type"], form["plain"], form["personal"])


def test_wire_names_and_classes_are_one_to_one() -> None:
    assert len(WIRE_NAMES) == len(EVENTS)
    assert all(name.partition(".")[0] in STREAM_KINDS for name in EVENTS)


@pytest.mark.parametrize("kind", sorted(STREAM_KINDS))
@settings(max_examples=25)
@for_all(data=st.data())
def test_any_state_reads_back_from_its_snapshot(kind: str, data: st.DataObject) -> None:
    state = data.draw(anything(STREAM_KINDS[kind].state))

    assert from_plain(type(state), through_json(to_plain(state))) == state


def test_a_shape_changes_with_a_field_however_deep() -> None:
    @dataclass
    class Inner:
        a: int

    @dataclass
    class OtherInner:
        a: int
        b: int = 0

    OtherInner.__name__ = "Inner"
    shapes = []
    for inner in (Inner, OtherInner):

        @dataclass
        class Outer:
            inner: tuple[inner, ...]  # type: ignore[valid-type]

        Outer.__annotations__["inner"] = tuple[inner, ...]
        shapes.append(shape_of(Outer))

    assert shapes[0] != shapes[1]


def test_a_choice_between_two_types_cannot_be_recorded() -> None:
    @dataclass
    class Ambiguous:
        what: str

    Ambiguous.__annotations__["what"] = int | str

    with pytest.raises(TypeError, match=r"only X \| None"):
        to_plain(Ambiguous("x"))


def test_words_are_recorded_by_their_value() -> None:
    class Word(StrEnum):
        YES = "yes"

    @dataclass
    class Said:
        word: Word

    Said.__annotations__["word"] = Word

    assert to_plain(Said(Word.YES)) == {"word": "yes"}
    assert from_plain(Said, {"word": "yes"}) == Said(Word.YES)


def personal_fields(cls: type) -> list[str]:
    hints = get_type_hints(cls, include_extras=True)
    return [
        name
        for name, hint in hints.items()
        if get_origin(hint) is Annotated and any(isinstance(mark, Personal) for mark in get_args(hint)[1:])
    ]


def test_names_keys_and_addresses_are_marked_personal() -> None:
    assert set(personal_fields(InstanceCreateRequested)) == {
        "name",
        "hostname",
        "description",
        "networks",
        "keypair",
        "access_ipv4",
        "access_ipv6",
        "metadata",
        "tags",
    }
    assert set(personal_fields(KeypairCreated)) == {"name", "public_key", "fingerprint"}
    assert personal_fields(InstanceScheduled) == ["interfaces"]
