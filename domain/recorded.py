"""An event once it is history: with its place, its time and its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from domain.identifiers import ProjectId, RequestId, StreamId, UserId

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Who asked, and through what. `causation` is the position of the event that led to the command, if one did."""

    command_id: UUID
    request_id: RequestId
    user_id: UserId | None = None
    project_id: ProjectId | None = None
    causation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    position: int  # in the whole ledger; positions grow, and may have holes
    stream: StreamId
    version: int  # in its stream: 1, 2, 3, …
    type: str  # the wire name
    time: datetime  # UTC, microseconds; never runs backwards along positions
    cause: Cause
    event: Any


def fold(evolve: Callable[[S | None, E], S], state: S | None, events: Iterable[E]) -> S | None:
    for event in events:
        state = evolve(state, event)
    return state
