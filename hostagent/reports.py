"""Outcomes, observations and heartbeats, on their way to the ledger. The same act always gives the same report id.

Reports are signed as they are sent, not as they are journalled: a host that was given another key reports with that.
"""

from __future__ import annotations

import logging
import threading
from uuid import UUID, uuid5

from commands.log.port import HEARTBEATS, REPORTS, LogUnavailable, Message, Messages
from commands.log.reports import Beat, encode_beat, encode_report
from commands.log.signed import HEARTBEAT, REPORT, Signer, seal
from commands.orders import Act, Order
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.identifiers import HostName, InstanceId, ServiceId

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 4000
_REPORTS = UUID("7e7a2d0c-1c53-4e0b-a1ab-4b8b8f6f5a04")


def outcome(
    order: Order, service_id: ServiceId, act: Act, *, succeeded: bool, power_state: int, message: str = ""
) -> OutcomeReport:
    """What came of an order's act; `message` is why it failed."""
    guest = order.guest
    # A purge that failed is tried again: its success is another report.
    name = f"{guest.instance_id}/{order.host}/{order.task_revision}/{act}/{'done' if succeeded else 'failed'}"
    return OutcomeReport(
        report_id=str(uuid5(_REPORTS, name)),
        service_id=service_id,
        host=order.host,
        order_id=order.order_id,
        instance_id=guest.instance_id,
        task_revision=order.task_revision,
        act=act,
        succeeded=succeeded,
        power_state=power_state,
        message=message[:LONGEST_MESSAGE].encode(errors="replace").decode(),  # a lone surrogate is no JSON
    )


class Reporter:
    """Puts this host's reports on the log. While the log does not answer each call raises; that is said once."""

    def __init__(self, the_log: Messages, service_id: ServiceId, host: HostName, signer: Signer | None = None) -> None:
        """Without a signer reports go out as they are: the ledger is this very process."""
        self._log = the_log
        self._service_id = service_id
        self._host = host
        self._signer = signer
        self._guard = threading.Lock()
        self._beats = 0
        self._away = False

    def send(self, *reports: bytes) -> None:
        """Raises:
        LogUnavailable: they may not have arrived, and may be sent again.
        """
        self._publish([Message(REPORTS, self._host, self._sealed(REPORT, report)) for report in reports])

    def session(self, report: HostReport) -> None:
        self.send(encode_report(report))

    def observed(self, instance_id: InstanceId, generation: int, power_state: int, epoch: int, sequence: int) -> None:
        report = ObservationReport(
            report_id=str(uuid5(_REPORTS, f"{self._host}/{epoch}/{sequence}")),
            service_id=self._service_id,
            host=self._host,
            sequence=sequence,
            instance_id=instance_id,
            generation=generation,
            power_state=power_state,
        )
        self.send(encode_report(report))

    def beat(self, epoch: int, session: str) -> None:
        with self._guard:
            self._beats += 1
            beat = Beat(service_id=self._service_id, epoch=epoch, sequence=self._beats, session=session)
        self._publish([Message(HEARTBEATS, str(self._service_id), self._sealed(HEARTBEAT, encode_beat(beat)))])

    def _sealed(self, purpose: bytes, body: bytes) -> bytes:
        return body if self._signer is None else seal(purpose, self._signer, body)

    def _publish(self, messages: list[Message]) -> None:
        try:
            self._log.publish(messages)
        except LogUnavailable as error:
            if self._turned(away=True):
                log.warning("the log does not answer, reports wait: %s", error)
            raise
        if self._turned(away=False):
            log.info("the log answers again")

    def _turned(self, *, away: bool) -> bool:
        with self._guard:
            turned, self._away = self._away is not away, away
            return turned
