"""A recorded event ↔ the bytes of its record in the store. Personal fields are sealed by subject on the way in."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from eventsourcing.persistence import StoredEvent

from commands.event_store import StoredRecord, Transaction
from commands.vault import Vault
from domain.identifiers import StreamId
from domain.recorded import Cause, RecordedEvent
from domain.serialization import decode_event, encode_event


class RecordDamaged(Exception):
    """A record does not decode; the message names its position."""


class Records:
    def __init__(self, vault: Vault, incarnation: str) -> None:
        self._vault = vault
        self._incarnation = incarnation

    def encode(
        self,
        transaction: Transaction,
        stream: StreamId,
        version: int,
        time: datetime,
        cause: Cause,
        event: Any,
    ) -> StoredEvent:
        wire_name, plain, personal = encode_event(event)
        body: dict[str, Any] = {
            "time": time,
            "incarnation": self._incarnation,
            "command": cause.command_id,
            "request": cause.request_id,
            "user": cause.user_id,
            "project": cause.project_id,
            "causation": cause.causation,
            "event": plain,
        }
        if personal:
            body["sealed"] = {
                subject: base64.b64encode(
                    self._vault.seal_in(transaction, subject, orjson.dumps(fields), f"{stream}/{version}")
                ).decode()
                for subject, fields in personal.items()
            }
        return StoredEvent(originator_id=stream, originator_version=version, topic=wire_name, state=orjson.dumps(body))

    def decode(self, record: StoredRecord) -> RecordedEvent:
        """The event again; of an erased subject, with its fields erased.

        Raises:
            UnknownEventType: a newer release wrote it.
            RecordDamaged: the bytes are not what was written.
        """
        try:
            body = orjson.loads(record.state)
            personal = {
                subject: self._open(subject, sealed, f"{record.stream}/{record.version}")
                for subject, sealed in body.get("sealed", {}).items()
            }
            cause = Cause(
                command_id=UUID(body["command"]),
                request_id=body["request"],
                user_id=body["user"],
                project_id=body["project"],
                causation=body["causation"],
            )
            return RecordedEvent(
                position=record.position,
                stream=record.stream,
                version=record.version,
                type=record.wire_name,
                time=datetime.fromisoformat(body["time"]),
                cause=cause,
                event=decode_event(record.wire_name, body["event"], personal),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordDamaged(f"record {record.position} ({record.wire_name}) does not decode: {error}") from error

    def time_of(self, record: StoredRecord) -> datetime:
        """When it was recorded; opens nothing that is sealed."""
        return datetime.fromisoformat(orjson.loads(record.state)["time"])

    def _open(self, subject: str, sealed: str, bound_to: str) -> dict[str, Any] | None:
        data = self._vault.open(subject, base64.b64decode(sealed), bound_to)
        return None if data is None else orjson.loads(data)
