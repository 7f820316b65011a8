"""What a host agent says: outcomes of orders, observations, its facts. Recorded by `inbox.py` through
`instance/outcome.py` and `compute_service.py`; a heartbeat is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from commands.orders import Act
from domain.identifiers import HostName, InstanceId, NodeId, ServiceId
from domain.instance.events import AttachedInterface
from domain.resources import Inventory
from domain.serialization import from_plain, to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a hypervisor says of itself."""

    hypervisor_type: str  # "QEMU", "fake"
    hypervisor_version: int
    hypervisor_hostname: str
    cpu_info: str  # JSON
    inventories: Mapping[str, Inventory]
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """An agent opened a session."""

    service_id: ServiceId
    host: HostName
    node_id: NodeId
    epoch: int
    host_ip: str
    availability_zone: str
    facts: NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeReport:
    """What came of an order. The same order always gives the same `report_id`, so repeats are harmless."""

    report_id: str
    service_id: ServiceId
    host: HostName
    order_id: str
    instance_id: InstanceId
    task_revision: int
    act: Act
    succeeded: bool
    power_state: int
    message: str = ""  # why it failed, for an operator
    interfaces: tuple[AttachedInterface, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationReport:
    """A guest's power changed without an order; `sequence` counts per host."""

    report_id: str
    service_id: ServiceId
    host: HostName
    sequence: int
    instance_id: InstanceId
    generation: int  # the newest the agent had acted on; an observation older than a request is moot
    power_state: int


Report = HostReport | OutcomeReport | ObservationReport

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
