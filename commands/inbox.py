"""Reports from hosts to the appender. A report is recorded once, however often it arrives, and only if it is about a
guest that is or was that host's; a refused one is logged.
"""

from __future__ import annotations

import logging
from uuid import UUID, uuid5

from commands.appender import Appender
from commands.command import Ask, Move, Unit
from commands.compute_service import RegisterHost
from commands.event_store import EventStore
from commands.instance.outcome import RecordObservation, RecordOutcome
from commands.log.port import REPORTS, Log, LogRecord
from commands.log.reports import decode_report
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.errors import DomainError, ReportSuperseded
from domain.identifiers import RequestId
from domain.recorded import Cause

log = logging.getLogger(__name__)

BATCH = 200
_COMMANDS = UUID("c1a3b0a7-3b63-4d0e-9a0a-4f2f6a5d7e02")


class Inbox:
    name = "inbox"

    def __init__(self, the_log: Log, appender: Appender, store: EventStore) -> None:
        self._log = the_log
        self._appender = appender
        self._store = store
        self._position = -1

    def wait(self, timeout_s: float) -> None:
        self._log.wait(REPORTS, self._position, timeout_s)

    def step(self) -> bool:
        if self._position < 0:
            self._position = self._store.position(self.name)
        records = self._log.read(REPORTS, self._position, BATCH)
        if not records:
            return False
        asks = [ask for record in records if (ask := _ask(record)) is not None]
        move = Move(consumer=self.name, old=self._position, new=records[-1].offset)
        result = self._appender.execute(Unit(asks=asks, move=move))
        for outcome in result.outcomes:
            if isinstance(outcome, ReportSuperseded):
                log.info("report not recorded: %s", outcome)
            elif isinstance(outcome, DomainError):
                log.warning("report refused (%s): %s", outcome.code, outcome)
        self._position = move.new if result.moved else -1
        return True


def _ask(record: LogRecord) -> Ask | None:
    try:
        report = decode_report(record.value or b"")
    except ValueError as error:
        log.error("report at offset %d of %s does not decode: %s", record.offset, record.key, error)
        return None
    match report:
        case HostReport():
            name = f"host/{report.service_id}/{report.epoch}"
            return _of(RegisterHost(report=report), name)
        case OutcomeReport():
            return _of(RecordOutcome(report=report), f"outcome/{report.service_id}/{report.report_id}")
        case ObservationReport():
            return _of(RecordObservation(report=report), f"observation/{report.service_id}/{report.report_id}")


def _of(command: object, name: str) -> Ask:
    command_id = uuid5(_COMMANDS, name)
    return Ask(command=command, cause=Cause(command_id=command_id, request_id=RequestId(f"req-{command_id}")))
