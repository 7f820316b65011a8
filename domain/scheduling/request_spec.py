"""What a placement must satisfy, taken from the instance's request."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import HostName, NodeId, ServiceId
from domain.resources import Amounts, Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    amounts: Amounts
    availability_zone: str | None = None
    forced_host: str | None = None  # past the filters, never past the claim
    forced_node: str | None = None
    requested_host: str | None = None  # through the filters
    requested_node: str | None = None
    excluded_hosts: frozenset[str] = frozenset()  # tried before


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """One node as the scheduler sees it, folded from its service and its provider."""

    host: HostName
    node_id: NodeId
    service_id: ServiceId
    node_name: str
    availability_zone: str
    reachable: bool
    enabled: bool
    inventories: dict[str, Inventory]
    used: dict[str, int]
