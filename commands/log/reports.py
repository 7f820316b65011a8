"""Reports as they travel on the `reports` topic."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from commands.reports import HostReport, ObservationReport, OutcomeReport, Report
from domain.serialization import from_plain, to_plain

_CLASSES: Mapping[str, type[HostReport] | type[OutcomeReport] | type[ObservationReport]] = {
    "report.host": HostReport,
    "report.outcome": OutcomeReport,
    "report.observation": ObservationReport,
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}


def encode_report(report: Report) -> bytes:
    return orjson.dumps({"type": _NAMES[type(report)], "report": to_plain(report)})


def decode_report(value: bytes) -> Report:
    """Raises:
    ValueError: not a report.
    """
    try:
        body = orjson.loads(value)
        report: Report = from_plain(_CLASSES[body["type"]], body["report"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a report: {error}") from error
    return report
