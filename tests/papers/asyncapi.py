"""Makes docs/asyncapi.yaml, of the topics on Kafka, from the code: `python -m tests.papers.asyncapi`.

Topics are those of `commands/log/kafka_topics.py`, the forms of what is on them the classes'. Tests hold the file to this.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import yaml

from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import layout
from commands.log.port import orders_topic, queries_topic
from commands.log.relay import EVENT_TOPICS, KEYED
from commands.log.reports import Beat
from commands.orders import Order
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.marks import Personal
from domain.serialization import EVENTS
from hostagent.drivers.protocol import Diagnostics
from tests.papers.events_document import HEADERS
from tests.papers.repository import ROOT

DOCUMENT = ROOT / "docs" / "asyncapi.yaml"
BINDING = "0.5.0"
ON_ONE_LINE = 100  # characters
Schema = dict[str, Any]

INTRODUCTION = """\
What is on Kafka in a distributed ledger. Readers outside take `instances`, `allocations` or `ledger`; what is on the other
topics is between the ledger and its hosts' agents, and may change with any release. Delivery is at least once;
docs/events.md tells how to read the events. Made by `python -m tests.papers.asyncapi`.
"""

# Topic → what it is for, whether the ledger sends or receives (hosts do the other), the key, the messages.
TOPICS: dict[str, tuple[str, Literal["send", "receive"], str, tuple[str, ...]]] = {
    "ledger": ("Every event, in the order of positions.", "send", "The stream.", ()),
    "instances": ("The events of instances, in order within each stream.", "send", "The stream.", ()),
    "allocations": ("The events of resource providers, likewise.", "send", "The stream.", ()),
    "orders": (
        "What one host is wanted to hold. Personal data of its guests is here unsealed, for this host alone to read.",
        "send",
        "INSTANCE/HOST. A key without a value: the guest's time on this host has ended.",
        ("order",),
    ),
    "queries": ("What one host is asked and nobody records.", "send", "An id that the answer repeats.", ("query",)),
    "answers": ("What hosts answer.", "receive", "The id of the query.", ("answer",)),
    "reports": (
        "What hosts did and saw, signed.",
        "receive",
        "The host's name; readers go by the signature.",
        ("signedReport",),
    ),
    "heartbeats": (
        "Hosts are alive, signed.",
        "receive",
        "The service; readers go by the signature.",
        ("signedHeartbeat",),
    ),
}
A_HOST = {"orders": orders_topic, "queries": queries_topic}


def document() -> Schema:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    schemas: dict[str, Schema] = {}
    messages = {**event_messages(schemas), **host_messages(schemas)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Compute Ledger",
            "version": version,
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {topic: channel(topic) for topic in TOPICS},
        "operations": {
            f"{action} {topic}".replace(" ", "_"): {"action": action, "channel": reference("channels", topic)}
            for topic, (_, action, _, _) in TOPICS.items()
        },
        "components": {"messages": messages, "schemas": dict(sorted(schemas.items()))},
    }


def channel(topic: str) -> Schema:
    said, _, _, carried = TOPICS[topic]
    names = carried or tuple(events_on(topic))
    made: Schema = {"address": topic}
    if topic in A_HOST:
        made["address"] = A_HOST[topic]("{service}")  # type: ignore[arg-type]
        made["parameters"] = {"service": {"description": "The id of the host's compute service."}}
    laid_out = layout(topic, KafkaOptions(bootstrap=""))
    settings = laid_out.settings
    kept: Schema = {"cleanup.policy": [settings["cleanup.policy"]]}
    for name in ("retention.ms", "delete.retention.ms", "max.message.bytes"):
        if name != "delete.retention.ms" or "compact" in settings["cleanup.policy"]:
            kept[name] = int(settings[name])
    made |= {
        "description": said,
        "messages": {name: reference("components", "messages", name) for name in names},
        "bindings": {
            "kafka": {
                "partitions": laid_out.partitions,
                "topicConfiguration": kept,
                "bindingVersion": BINDING,
            }
        },
    }
    return made


def events_on(topic: str) -> list[str]:
    return [name for name in EVENTS if topic == EVENT_TOPICS[0] or KEYED.get(name.partition(".")[0]) == topic]


def event_messages(schemas: dict[str, Schema]) -> dict[str, Schema]:
    schemas["EventHeaders"] = {
        "type": "object",
        "required": list(HEADERS),
        "properties": {name: {"type": "string", "description": said} for name, said in HEADERS.items()},
    }
    schemas["Recorded"] = {
        "type": "object",
        "required": ["time", "incarnation", "command", "request", "user", "project", "causation", "event"],
        "properties": {
            "time": {
                "type": "string",
                "format": "date-time",
                "description": "The ledger's clock; grows with positions.",
            },
            "incarnation": {"type": "string", "description": "Of the ledger."},
            "command": {"type": "string", "format": "uuid", "description": "What led to it."},
            "request": {"type": "string", "description": "The id of the request."},
            "user": {"type": ["string", "null"], "description": "Who asked."},
            "project": {"type": ["string", "null"]},
            "causation": {
                "type": ["integer", "null"],
                "description": "The position of the event that led to the command.",
            },
            "event": {"type": "object", "description": "The fields of the event that are not personal."},
            "sealed": {
                "type": "object",
                "description": "The personal fields, by whose data they are: encrypted, base64.",
                "additionalProperties": {"type": "string"},
            },
        },
    }
    return {
        name: {
            "name": name,
            "headers": reference("components", "schemas", "EventHeaders"),
            "payload": {
                "allOf": [
                    reference("components", "schemas", "Recorded"),
                    {"properties": {"event": event_schema(cls, schemas)}},
                ]
            },
            "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": BINDING}},
        }
        for name, cls in EVENTS.items()
    }


def host_messages(schemas: dict[str, Schema]) -> dict[str, Schema]:
    report = {
        "type": "object",
        "required": ["type", "report"],
        "properties": {"type": {"enum": ["report.host", "report.outcome", "report.observation"]}, "report": {}},
        "anyOf": [
            {"properties": {"type": {"const": name}, "report": schema_of(cls, schemas)}}
            for name, cls in (
                ("report.host", HostReport),
                ("report.outcome", OutcomeReport),
                ("report.observation", ObservationReport),
            )
        ],
    }
    schemas["Report"] = report
    schemas["Signed"] = {
        "type": "object",
        "required": ["service", "signature", "body"],
        "properties": {
            "service": {"type": "string", "format": "uuid"},
            "signature": {"type": "string", "description": "Ed25519, base64 (commands/log/signed.py says of what)."},
            "body": {"type": "string", "contentMediaType": "application/json"},
        },
    }
    payloads: dict[str, Schema] = {
        "order": schema_of(Order, schemas),
        "query": {
            "type": "object",
            "required": ["what", "instance_id"],
            "properties": {
                "what": {"enum": ["console", "diagnostics"]},
                "instance_id": {"type": "string", "format": "uuid"},
            },
        },
        "answer": {
            "type": "object",
            "properties": {
                "console": {"type": "string", "description": "base64"},
                "diagnostics": schema_of(Diagnostics, schemas),
                "error": {"type": "string"},
            },
        },
        "signedReport": signed(reference("components", "schemas", "Report")),
        "signedHeartbeat": signed(schema_of(Beat, schemas)),
    }
    keys = {message: key for _, _, key, carried in TOPICS.values() for message in carried}
    return {
        name: {
            "name": name,
            "payload": payload,
            "bindings": {"kafka": {"key": {"type": "string", "description": keys[name]}, "bindingVersion": BINDING}},
        }
        for name, payload in payloads.items()
    }


def signed(body: Schema) -> Schema:
    return {"allOf": [reference("components", "schemas", "Signed"), {"properties": {"body": {"contentSchema": body}}}]}


def event_schema(cls: type, schemas: dict[str, Schema]) -> Schema:
    """Of the fields that are not personal, and named in words those that are."""
    hints = get_type_hints(cls, include_extras=True)
    personal = [
        field.name
        for field in fields(cls)
        if get_origin(hints[field.name]) is Annotated and isinstance(get_args(hints[field.name])[1], Personal)
    ]
    made = object_schema(cls, schemas, without=personal)
    if personal:
        made["description"] = f"Sealed: {', '.join(personal)}."
    return made


def object_schema(cls: type, schemas: dict[str, Schema], without: list[str] | None = None) -> Schema:
    """A field with a default may be missing in what was written before there was that field."""
    hints = get_type_hints(cls, include_extras=True)
    shown = [field for field in fields(cls) if field.name not in (without or ())]
    required = [field.name for field in shown if field.default is MISSING and field.default_factory is MISSING]
    made: Schema = {"type": "object"}
    if required:
        made["required"] = required
    made["properties"] = {field.name: schema_of(hints[field.name], schemas) for field in shown}
    return made


def schema_of(hint: Any, schemas: dict[str, Schema]) -> Schema:
    """Of a type, as `domain/serialization.py` writes it; classes go into `schemas`."""
    hint = bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (schema_of(one, schemas) for one in args if one is not type(None))
        if "type" in inner and "enum" not in inner:
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin in (tuple, frozenset):
        return {"type": "array", "items": schema_of(args[0], schemas)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], schemas)}
    if is_dataclass(hint):
        assert isinstance(hint, type)
        if hint.__name__ not in schemas:
            schemas[hint.__name__] = {}
            schemas[hint.__name__] = object_schema(hint, schemas)
        return reference("components", "schemas", hint.__name__)
    if issubclass(hint, Enum):
        return {"type": "string", "enum": [member.value for member in hint]}
    return dict(SIMPLE[hint])


SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    UUID: {"type": "string", "format": "uuid"},
    datetime: {"type": "string", "format": "date-time"},
}


def bare(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        else:
            return hint


def reference(*path: str) -> Schema:
    return {"$ref": f"#/{'/'.join(path)}"}


class Writer(yaml.SafeDumper):
    """Short things on one line, texts of several lines as such, nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def write_text(self, value: str) -> yaml.Node:
        return self.represent_scalar(self.DEFAULT_SCALAR_TAG, value, style="|" if "\n" in value else None)

    def write_mapping(self, value: Schema) -> yaml.Node:
        return self.represent_mapping(self.DEFAULT_MAPPING_TAG, value, flow_style=len(str(value)) <= ON_ONE_LINE)

    def write_list(self, value: list[Any]) -> yaml.Node:
        return self.represent_sequence(self.DEFAULT_SEQUENCE_TAG, value, flow_style=len(str(value)) <= ON_ONE_LINE)


Writer.add_representer(str, Writer.write_text)
Writer.add_representer(dict, Writer.write_mapping)
Writer.add_representer(list, Writer.write_list)


def text() -> str:
    return yaml.dump(document(), Dumper=Writer, sort_keys=False, allow_unicode=True, width=120)


def main(path: Path = DOCUMENT) -> None:
    path.write_text(text())


if __name__ == "__main__":
    main()
