"""A ledger whose hosts prove their word: each has a key, and inbox and deadlines believe nothing else."""

from __future__ import annotations

from pathlib import Path

from commands.host_keys import HostKeys
from commands.inbox import Inbox
from commands.log.port import HEARTBEATS, REPORTS, Message
from commands.log.reports import Beat, encode_beat, encode_report
from commands.log.signed import HEARTBEAT, REPORT, seal
from commands.metrics import REPORTS_REFUSED
from commands.process_managers.deadlines import DeadlinesManager
from commands.reports import Report
from commands.snapshots import Snapshots
from gateway import enrollment
from hostagent.host_key import HostCredential
from tests.support.ledger import Ledger


def enroll(ledger: Ledger, name: str) -> HostCredential:
    """A new key of a host, by way of the file that is put on it."""
    path = Path(ledger.directory / f"{name}.credential")
    path.touch(mode=0o600)
    path.write_text(enrollment.enroll(ledger.storage, name))
    return HostCredential.load(path)


class Enrolled:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.credentials = {name: enroll(ledger, name) for name in ledger.hosts}
        self.keys = self.new_keys()
        self.start_inbox()
        self.start_deadlines()
        for name, host in ledger.hosts.items():
            host.signer = self.credentials[name]
            host.incarnation = self.credentials[name].incarnation
            host.restart()
        ledger.settle()
        ledger.pass_time(2)  # so that their first beats are heard

    def new_keys(self) -> HostKeys:
        ledger = self.ledger
        return HostKeys(ledger.store, Snapshots(ledger.vault), ledger.records, clock=ledger.clock.elapsed)

    def start_inbox(self) -> None:
        ledger = self.ledger
        ledger.parts["inbox"] = Inbox(ledger.log, ledger.appender, ledger.store, self.keys)

    def start_deadlines(self) -> None:
        ledger = self.ledger
        ledger.parts["deadlines"] = DeadlinesManager(
            ledger.log,
            ledger.appender,
            ledger.store,
            ledger.records,
            Snapshots(ledger.vault),
            ledger.clock,
            keys=self.keys,
            elapsed=ledger.clock.elapsed,
        )

    # what comes over the wire

    def send(self, *values: bytes) -> None:
        self.ledger.log.publish([Message(REPORTS, "anyone", value) for value in values])

    def report(self, report: Report, by: str | HostCredential) -> bytes:
        credential = self.credentials[by] if isinstance(by, str) else by
        return seal(REPORT, credential, encode_report(report))

    def beat(self, by: str | HostCredential, epoch: int, sequence: int, session: str = "") -> bytes:
        credential = self.credentials[by] if isinstance(by, str) else by
        beat = Beat(service_id=credential.service_id, epoch=epoch, sequence=sequence, session=session)
        return seal(HEARTBEAT, credential, encode_beat(beat))

    def send_beat(self, value: bytes, key: str = "anyone") -> None:
        self.ledger.log.publish([Message(HEARTBEATS, key, value)])


class Counted:
    """How many reports and beats were refused, for which reasons, since this was made."""

    def __init__(self) -> None:
        self._before = _refusals()

    def __call__(self) -> dict[str, int]:
        now = _refusals()
        return {
            reason: count - self._before.get(reason, 0)
            for reason, count in now.items()
            if count != self._before.get(reason, 0)
        }


def _refusals() -> dict[str, int]:
    [family] = REPORTS_REFUSED.collect()
    return {s.labels["reason"]: int(s.value) for s in family.samples if s.name.endswith("_total")}
