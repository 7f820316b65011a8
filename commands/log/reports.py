"""Reports and heartbeats as they travel on their topics: JSON, and signed where they come from other machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from commands.log.strict_form import require_form
from commands.reports import HostReport, ObservationReport, OutcomeReport, Report
from domain.identifiers import ServiceId
from domain.instance.state import PowerState
from domain.resources import Inventory
from domain.serialization import from_plain, to_plain

LARGEST_BYTES = 512 * 1024  # of one report
LARGEST_AMOUNT = 2**31 - 1  # of a resource class: Placement's
LARGEST_RATIO = 10_000.0

_CLASSES: Mapping[str, type[HostReport] | type[OutcomeReport] | type[ObservationReport]] = {
    "report.host": HostReport,
    "report.outcome": OutcomeReport,
    "report.observation": ObservationReport,
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A host is alive. `sequence` grows within a session, so that an old beat sent again says nothing."""

    service_id: ServiceId
    epoch: int
    sequence: int
    session: str = ""  # of the agent's start; empty: not known


def kind_of_report(report: Report) -> str:
    return _NAMES[type(report)].removeprefix("report.")


def encode_report(report: Report) -> bytes:
    return orjson.dumps({"type": _NAMES[type(report)], "report": to_plain(report)})


def decode_report(value: bytes) -> Report:
    """Raises:
    ValueError: not a report, or one that no agent of ours would send.
    """
    if len(value) > LARGEST_BYTES:
        raise ValueError(f"a report of {len(value)} bytes")
    try:
        body = orjson.loads(value)
        cls, plain = _CLASSES[body["type"]], body["report"]
        require_form(cls, plain)
        report: Report = from_plain(cls, plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a report: {error}") from error
    _require_sense(report)
    return report


def encode_beat(beat: Beat) -> bytes:
    return orjson.dumps(to_plain(beat))


def decode_beat(value: bytes) -> Beat:
    """Raises:
    ValueError: not a heartbeat.
    """
    body = orjson.loads(value)
    require_form(Beat, body)
    return from_plain(Beat, body)


def _require_sense(report: Report) -> None:
    match report:
        case HostReport():
            if report.epoch < 1:
                raise ValueError("a host's first session is 1")
            if report.facts.cpu_info:
                orjson.loads(report.facts.cpu_info)
            for name, inventory in report.facts.inventories.items():
                _require_countable(name, inventory)
        case OutcomeReport() | ObservationReport():
            PowerState(report.power_state)


def _require_countable(name: str, inventory: Inventory) -> None:
    """What the scheduler can count with, whatever is asked of it."""
    amounts = (inventory.total, inventory.reserved, inventory.min_unit, inventory.max_unit, inventory.step_size)
    if not all(0 <= amount <= LARGEST_AMOUNT for amount in amounts) or inventory.step_size < 1:
        raise ValueError(f"the inventory of {name} cannot be counted with")
    if not 0 <= inventory.allocation_ratio <= LARGEST_RATIO:
        raise ValueError(f"the allocation ratio of {name} is out of range")
