"""The heartbeats that say something: a host's own word, of its present session, and newer than the last one of it.

Heard from now on only, and remembered in memory: a beat is never an event, and says nothing once it is old.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from commands.host_keys import HostKeys, NotVerified
from commands.log.port import HEARTBEATS, LogRecord, Messages
from commands.log.reader import TopicReader
from commands.log.reports import Beat, decode_beat
from commands.log.signed import HEARTBEAT, read_envelope
from commands.metrics import REPORTS_REFUSED
from commands.refused import Refused
from domain.identifiers import ServiceId


class Heartbeats:
    def __init__(self, the_log: Messages, keys: HostKeys | None, of_present: Callable[[Beat], bool]) -> None:
        """`of_present`: whether a beat is of its host's present session. Without keys every beat is believed.

        Raises:
            LogUnavailable
        """
        self._log = the_log
        self._reader = TopicReader(the_log, HEARTBEATS, the_log.end(HEARTBEATS))
        self._keys = keys
        self._of_present = of_present
        self._last: dict[ServiceId, Beat] = {}
        self._refused = Refused("heartbeat", REPORTS_REFUSED)

    def listen(self, limit: int) -> list[Beat]:
        records = self._reader.read(limit)
        self._reader.took(records)  # one that cannot be read is not worth a second look
        return [beat for record in records if (beat := self._read(record)) is not None]

    def heard_all(self) -> bool:
        """Whether there is no beat that has yet to be listened to.

        Raises:
            LogUnavailable: there may be.
        """
        return self._log.end(HEARTBEATS) <= self._reader.offset

    def _read(self, record: LogRecord) -> Beat | None:
        """What the record's key says is nobody's word."""
        value = record.value or b""
        host = ""
        try:
            signed = read_envelope(value)
            if signed is not None and self._keys is not None:
                host = self._keys.verify(HEARTBEAT, signed).host
            elif self._keys is not None:
                self._refused.note("unsigned", "", f"what came under {record.key[:64]!r} is in nobody's name")
                return None
            beat = decode_beat(value if signed is None else signed.body)
        except NotVerified as refusal:
            self._refused.note(refusal.reason, refusal.host, str(refusal))
            return None
        except ValueError as error:
            self._refused.note("undecodable", "", f"under {record.key[:64]!r}: {error}")
            return None
        if signed is not None and beat.service_id != signed.service_id:
            self._refused.note("not_yours", host, f"it beats for service {beat.service_id}")
            return None
        if not self._of_present(beat):
            said = f"session {beat.epoch} of this host is not the one that is recorded"
            self._refused.note("superseded", host, said, logging.INFO)
            return None
        if _is_old(beat, self._last.get(beat.service_id)):
            said = f"beat {beat.sequence} of session {beat.epoch} was heard before"
            self._refused.note("repeated", host, said, logging.INFO)
            return None
        self._last[beat.service_id] = beat
        return beat


def _is_old(beat: Beat, last: Beat | None) -> bool:
    if last is None or beat.epoch != last.epoch:
        return last is not None and beat.epoch < last.epoch
    return beat.session == last.session and beat.sequence <= last.sequence
