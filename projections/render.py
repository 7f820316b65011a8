"""JSON made once, when a row changes, and joined when it is read.

A row keeps its answer in parts, one for each step in which the API's shape grew; a reader concatenates those that its
microversion shows. URLs depend on the request, so their beginnings are written as single control characters, which JSON
text cannot otherwise hold, and replaced in the finished answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

VERSIONED = "\x01"  # stands for ".../v2.1"
BOOKMARK = "\x02"  # stands for the URL above it


def members(**fields: Any) -> str:
    """Members of a JSON object, each with a comma before it."""
    return "," + orjson.dumps(fields).decode()[1:-1] if fields else ""


def member(name: str, value: Any) -> str:
    return f",{orjson.dumps(name).decode()}:{orjson.dumps(value).decode()}"


def raw(name: str, json: str) -> str:
    return f',"{name}":{json}'


def links(kind: str, identifier: str) -> str:
    """The links of one thing, as JSON; `identifier` is safe in a URL."""
    return (
        f'[{{"rel":"self","href":"{VERSIONED}/{kind}/{identifier}"}},'
        f'{{"rel":"bookmark","href":"{BOOKMARK}/{kind}/{identifier}"}}]'
    )


def bookmark(kind: str, identifier: str) -> str:
    return f'[{{"rel":"bookmark","href":"{BOOKMARK}/{kind}/{identifier}"}}]'


def zulu(time: datetime | None) -> str | None:
    """Whole seconds with a Z, as most of Nova's views show a time."""
    return None if time is None else time.isoformat()[:19] + "Z"


def precise(time: datetime | None) -> str | None:
    """Microseconds and no zone, as Nova shows the times of actions, launches and services."""
    return None if time is None else time.isoformat(timespec="microseconds")[:26]
