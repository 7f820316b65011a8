"""Outcomes, observations and heartbeats, on their way to the ledger. The same act always gives the same report id."""

from __future__ import annotations

from uuid import UUID, uuid5

from commands.log.port import HEARTBEATS, REPORTS, Message, Messages
from commands.log.reports import encode_report
from commands.orders import Act, Order
from commands.reports import HostReport, ObservationReport, OutcomeReport
from domain.identifiers import HostName, InstanceId, ServiceId

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
        message=message,
    )


class Reporter:
    """Puts this host's reports on the log."""

    def __init__(self, the_log: Messages, service_id: ServiceId, host: HostName) -> None:
        self._log = the_log
        self._service_id = service_id
        self._host = host

    def send(self, *reports: bytes) -> None:
        self._log.publish([Message(REPORTS, self._host, report) for report in reports])

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

    def beat(self, epoch: int) -> None:
        self._log.publish([Message(HEARTBEATS, str(self._service_id), str(epoch).encode())])
