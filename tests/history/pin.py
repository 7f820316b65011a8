"""The golden files: one for each event form the store may hold, written from fixed values.

`python -m tests.history.pin` writes those that are missing or differ. Do it only for a form that no tagged release has
written, and have the difference reviewed: what is recorded is history, and never changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson

from domain.serialization import EVENTS, encode_event
from tests.support.samples import sample

DIRECTORY = Path(__file__).parent


def golden_file(wire_name: str) -> Path:
    return DIRECTORY / f"{wire_name}.json"


def pinned_form(wire_name: str) -> dict[str, Any]:
    """What the store would hold of a sample of this event, before anything is sealed."""
    name, plain, personal = encode_event(sample(EVENTS[wire_name]))
    form: dict[str, Any] = orjson.loads(orjson.dumps({"type": name, "plain": plain, "personal": personal}))
    return form


def text_of(form: dict[str, Any]) -> str:
    return json.dumps(form, indent=2, sort_keys=True) + "\n"


def main() -> None:
    for wire_name in EVENTS:
        golden_file(wire_name).write_text(text_of(pinned_form(wire_name)))


if __name__ == "__main__":
    main()
