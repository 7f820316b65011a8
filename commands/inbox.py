"""Reports from hosts to the appender. A report is recorded once, however often it arrives, and only if it is the word of
the host that it speaks of, about a guest that is or was that host's; a refused one is counted and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from commands.appender import Appender
from commands.command import Accepted, Ask, Move, Outcome, Unit, UnitResult
from commands.compute_service import RegisterHost
from commands.event_store import EventStore, StoreUnavailable
from commands.host_keys import HostKeys, NotVerified
from commands.instance.outcome import RecordObservation, RecordOutcome
from commands.log.consumer import Handled
from commands.log.port import REPORTS, Log, LogRecord
from commands.log.reports import decode_report, kind_of_report
from commands.log.signed import REPORT, read_envelope
from commands.metrics import PARKED_RECORDS, REPORTS_REFUSED
from commands.metrics import REPORTS as RECORDED
from commands.refused import Refused
from commands.reports import HostReport, ObservationReport, OutcomeReport, Report
from domain.errors import DomainError, HostRenamed, ReportNotYours, ReportSuperseded
from domain.host_key import HostKey
from domain.identifiers import RequestId
from domain.recorded import Cause
from domain.serialization import UnknownEventType

log = logging.getLogger(__name__)

BATCH = 200
FAILED = "failed"
_COMMANDS = UUID("c1a3b0a7-3b63-4d0e-9a0a-4f2f6a5d7e02")

_REASONS: Mapping[type[DomainError], str] = {
    ReportSuperseded: "superseded",
    ReportNotYours: "not_yours",
    HostRenamed: "not_yours",
}


class Inbox:
    name = "inbox"

    def __init__(self, the_log: Log, appender: Appender, store: EventStore, keys: HostKeys | None = None) -> None:
        """Without keys all that is on the topic is believed: every host is this very process."""
        self._log = the_log
        self._appender = appender
        self._store = store
        self._keys = keys
        self.position = -1
        self.handled: Handled | None = None
        self._kept_as = ""
        self._refused = Refused("report", REPORTS_REFUSED)

    def wait(self, timeout_s: float) -> None:
        self._log.wait(REPORTS, self.position, timeout_s)

    def step(self) -> bool:
        incarnation = self._log.incarnation(REPORTS)
        kept_as = f"{self.name}/{incarnation}" if incarnation else self.name
        if self.position < 0 or kept_as != self._kept_as:  # offsets of a topic made anew begin again
            self.position, self._kept_as = self._store.position(kept_as), kept_as
        records = self._log.read(REPORTS, self.position, BATCH)
        if not records:
            return False
        reports = [report for record in records if (report := self._read(record)) is not None]
        move = Move(consumer=kept_as, old=self.position, new=records[-1].offset)
        result = self._record(reports, move)
        for report, outcome in zip(reports, result.outcomes, strict=True):
            self._tell(report, outcome)
        self.position = move.new if result.moved else -1
        self.handled = Handled(len(records))
        return True

    def _read(self, record: LogRecord) -> Report | None:
        """The report, if it is one and its host's word."""
        value = record.value or b""
        try:
            signed = read_envelope(value)
            if signed is None and self._keys is not None:
                self._refused.note("unsigned", "", f"what came under {record.key[:64]!r} is in nobody's name")
                return None
            key = None if signed is None or self._keys is None else self._keys.verify(REPORT, signed)
            report = decode_report(value if signed is None else signed.body)
        except NotVerified as refusal:
            self._refused.note(refusal.reason, refusal.host, str(refusal))
        except ValueError as error:
            PARKED_RECORDS.inc()
            self._refused.note("undecodable", "", f"at offset {record.offset}, under {record.key[:64]!r}: {error}")
        else:
            if key is None or _is_of(report, key):
                return report
            self._refused.note("not_yours", key.host, f"it speaks for host {report.host}, service {report.service_id}")
        return None

    def _record(self, reports: Sequence[Report], move: Move) -> UnitResult:
        """All in one transaction. Where one of them cannot even be decided, each in its own, and not that one: whatever it
        is that is wrong with it, the others are not to wait for it.
        """
        asks = [_ask(report) for report in reports]
        try:
            return self._appender.execute(Unit(asks=asks, move=move))
        except (StoreUnavailable, UnknownEventType):
            raise
        except Exception as error:
            log.debug("reports cannot be recorded together: %s", error)
        outcomes = [self._alone(ask) for ask in asks]
        moved = self._appender.execute(Unit(asks=(), move=move))
        return UnitResult(outcomes=tuple(outcomes), moved=moved.moved, head=moved.head)

    def _alone(self, ask: Ask) -> Outcome:
        try:
            return self._appender.execute(Unit(asks=(ask,))).outcomes[0]
        except (StoreUnavailable, UnknownEventType):
            raise
        except Exception as error:
            return DomainError(f"{type(error).__name__}: {error}")

    def _tell(self, report: Report, outcome: Outcome) -> None:
        kind = kind_of_report(report)
        match outcome:
            case Accepted(repeated=False):
                RECORDED.labels(kind).inc()
            case Accepted():
                if not isinstance(report, HostReport):  # a host says who it is from time to time
                    self._refused.note("repeated", report.host, f"this {kind} was recorded before", logging.INFO)
            case ReportSuperseded():
                # A host whose journal was put back from an old copy is never heard again; an outcome is only late.
                level = logging.WARNING if isinstance(report, HostReport) else logging.INFO
                self._refused.note("superseded", report.host, str(outcome), level)
            case DomainError():
                reason = _REASONS.get(type(outcome), FAILED)
                if reason == FAILED:
                    PARKED_RECORDS.inc()
                self._refused.note(reason, report.host, f"{outcome.code}: {outcome}")


def _is_of(report: Report, key: HostKey) -> bool:
    """Whether a report speaks for the host that signed it, and for no other."""
    node_id = report.node_id if isinstance(report, HostReport) else key.node_id
    return (report.service_id, report.host, node_id) == (key.service_id, key.host, key.node_id)


def _ask(report: Report) -> Ask:
    match report:
        case HostReport():
            return _of(RegisterHost(report=report), f"host/{report.service_id}/{report.epoch}/{report.session}")
        case OutcomeReport():
            return _of(RecordOutcome(report=report), f"outcome/{report.service_id}/{report.report_id}")
        case ObservationReport():
            return _of(RecordObservation(report=report), f"observation/{report.service_id}/{report.report_id}")


def _of(command: object, name: str) -> Ask:
    command_id = uuid5(_COMMANDS, name)
    return Ask(command=command, cause=Cause(command_id=command_id, request_id=RequestId(f"req-{command_id}")))
