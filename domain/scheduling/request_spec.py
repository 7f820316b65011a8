"""What a placement must satisfy, taken from the instance's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.identifiers import HostName, NodeId, ServiceId
from domain.resources import Amounts, Inventory
from domain.server_group import GroupPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """What a server group asks of a member's host; `others` counts its other members by host."""

    policy: GroupPolicy
    max_server_per_host: int = 1
    others: Mapping[HostName, int]

    def keeps_apart(self, host: HostName) -> bool:
        """Anti-affinity: one more there is not too many."""
        return self.policy is not GroupPolicy.ANTI_AFFINITY or self.others.get(host, 0) < self.max_server_per_host

    def keeps_together(self, host: HostName) -> bool:
        """Affinity: where the others are; anywhere, if they are nowhere yet."""
        return self.policy is not GroupPolicy.AFFINITY or not self.others or host in self.others

    def preference(self, host: HostName) -> int:
        """Of a soft policy: more is better."""
        match self.policy:
            case GroupPolicy.SOFT_AFFINITY:
                return self.others.get(host, 0)
            case GroupPolicy.SOFT_ANTI_AFFINITY:
                return -self.others.get(host, 0)
            case _:
                return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    amounts: Amounts
    availability_zone: str | None = None
    forced_host: str | None = None  # past the filters, never past the claim
    forced_node: str | None = None
    requested_host: str | None = None  # through the filters
    requested_node: str | None = None
    excluded_hosts: frozenset[str] = frozenset()  # tried before
    different_from: frozenset[str] = frozenset()  # hosts of the servers that the hint different_host names
    same_as: frozenset[str] | None = None  # likewise of same_host; None without that hint
    group: GroupRule | None = None


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
