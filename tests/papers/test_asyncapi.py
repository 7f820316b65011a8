"""docs/asyncapi.yaml is what the code says, and what the code writes is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator

from commands.event_store import StoredRecord
from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import layout
from commands.log.relay import TOPICS as MADE_BY_THE_RELAY
from commands.log.relay import cloud_event
from commands.log.reports import Beat, encode_beat, encode_report
from commands.log.signed import REPORT, seal
from commands.orders import Order
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.identifiers import ServiceId, StreamId
from domain.serialization import EVENTS, to_plain
from tests.history.pin import pinned_form
from tests.papers.asyncapi import A_HOST, DOCUMENT, TOPICS, document, text
from tests.papers.events_document import HEADERS
from tests.support.samples import sample

BODY = {
    "time": "2030-01-02T03:04:05+00:00",
    "incarnation": "an incarnation",
    "command": "df603ff9-d085-51a0-8298-ac70fef989b3",
    "request": "req-1",
    "user": None,
    "project": None,
    "causation": 7,
}


def valid(value: Any, schema: dict[str, Any]) -> None:
    Draft202012Validator({"components": document()["components"], **schema}).validate(value)


def payload(message: str) -> dict[str, Any]:
    schema: dict[str, Any] = document()["components"]["messages"][message]["payload"]
    return schema


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name == "$ref")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from references(inner)


def test_the_document_of_topics_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == text(), "make papers"
    assert yaml.safe_load(text()) == document()


def test_it_has_every_topic() -> None:
    assert set(TOPICS) == {*MADE_BY_THE_RELAY, *A_HOST}
    for topic in TOPICS:
        layout(topic, KafkaOptions(bootstrap=""))


def test_its_references_lead_somewhere_and_nothing_is_there_in_vain() -> None:
    made = document()
    found = set(references(made))
    for reference in found:
        place: Any = made
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    components = {f"#/components/{kind}/{name}" for kind, named in made["components"].items() for name in named}
    assert components - found == set()


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_as_it_is_published_has_the_form(name: str) -> None:
    form = pinned_form(name)
    valid({**BODY, "event": form["plain"], "sealed": {"a user": "c2VhbGVk"}}, payload(name))
    shown = payload(name)["allOf"][1]["properties"]["event"]
    assert set(shown["properties"]) == set(form["plain"])
    sealed = {field for fields in form["personal"].values() for field in fields}
    assert shown.get("description", "Sealed: .") == f"Sealed: {', '.join(n for n in order_of(name) if n in sealed)}."


def order_of(name: str) -> list[str]:
    return list(EVENTS[name].__dataclass_fields__)


def test_the_headers_of_an_event_are_those_that_are_described() -> None:
    record = StoredRecord(8, StreamId("instance:1"), 3, "instance.spawned", orjson.dumps(BODY))
    assert [*dict(cloud_event(record)), "prev"] == list(HEADERS)


def test_what_travels_between_ledger_and_hosts_has_the_form() -> None:
    valid(to_plain(sample(Order)), payload("order"))
    for cls in (HostReport, OutcomeReport, ObservationReport):
        body = encode_report(sample(cls))
        valid(orjson.loads(body), {"$ref": "#/components/schemas/Report"})
        valid(orjson.loads(seal(REPORT, Signer(), body)), payload("signedReport"))
    valid(orjson.loads(encode_beat(sample(Beat))), {"$ref": "#/components/schemas/Beat"})


class Signer:
    service_id: ServiceId = sample(Beat).service_id

    def sign(self, data: bytes) -> bytes:
        return b"signed"
