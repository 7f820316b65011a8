"""What is handed to the appender: commands with their cause, in units that commit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commands.vault import Payload
from domain.errors import DomainError
from domain.identifiers import StreamId, VaultRef, instance_stream
from domain.recorded import Cause, RecordedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One command. The same `cause.command_id` is the same command, however often it is sent."""

    command: Any
    cause: Cause
    payloads: Mapping[VaultRef, Payload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A consumer's step along the ledger, or along a topic; moved only if it still stands at `old`."""

    consumer: str
    old: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Commands decided one after another in one flush; a refused one does not harm the others.

    `move` is made in the same transaction, unless a command was refused with one of `retry_on`: then its consumer has to
    ask again, and what was accepted is recognised by its id.
    """

    asks: Sequence[Ask]
    move: Move | None = None
    retry_on: tuple[type[DomainError], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    position: int  # of its last event, or the head where it made none
    events: tuple[RecordedEvent, ...] = ()
    repeated: bool = False  # it had been done before; its events are not given again


Outcome = Accepted | DomainError


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    outcomes: tuple[Outcome, ...]
    moved: bool
    head: int


def streams_named(command: Any) -> Iterator[StreamId]:
    """The instances that a command is about, by itself or in a report: its decision is going to read them."""
    about = getattr(command, "report", command)
    for instance_id in getattr(about, "instance_ids", ()):
        yield instance_stream(instance_id)
    instance_id = getattr(about, "instance_id", None)
    if instance_id is not None:
        yield instance_stream(instance_id)
