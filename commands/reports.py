"""What a host agent says: outcomes of orders, observations, its facts. As bytes: `log/reports.py`. Recorded by `inbox.py`
through `instance/outcome.py` and `compute_service.py`; a heartbeat is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commands.orders import Act
from domain.identifiers import HostName, InstanceId, NodeId, ServiceId
from domain.resources import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a hypervisor says of itself."""

    hypervisor_type: str  # "QEMU", "fake"
    hypervisor_version: int
    hypervisor_hostname: str
    cpu_info: str  # JSON
    inventories: Mapping[str, Inventory]
    traits: tuple[str, ...] = ()
    booted_at_s: int | None = None  # of its machine, since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """An agent opened a session."""

    service_id: ServiceId
    host: HostName
    node_id: NodeId
    epoch: int
    session: str = ""  # made at each start of an agent: two that open the same epoch are two
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
