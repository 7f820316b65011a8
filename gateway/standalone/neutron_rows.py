"""What there is to read in Neutron's terms: the network, its subnet, the group that filters nothing."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from commands.neighbours.standalone.networks import (
    USER_ADDRESS,
    USER_CIDR,
    USER_DNS,
    USER_GATEWAY,
    StandaloneNetworks,
)

Row = dict[str, Any]

MADE_AT = "2020-01-01T00:00:00Z"  # of what was never made
TIMES: Row = {"created_at": MADE_AT, "updated_at": MADE_AT, "revision_number": 1, "tags": []}
MTU = 1500
UNLIMITED = -1
QUOTAS = (
    "network",
    "subnet",
    "subnetpool",
    "port",
    "router",
    "floatingip",
    "rbac_policy",
    "security_group",
    "security_group_rule",
)
EXTENSIONS = {
    "external-net": "Neutron external network",
    "net-mtu": "Network MTU",
    "quotas": "Quota management support",
    "quota_details": "Quota details management support",
    "security-group": "security-group",
    "availability_zone": "Availability Zone",
    "network_availability_zone": "Network Availability Zone",
    "standard-attr-timestamp": "Resource timestamps",
    "standard-attr-revisions": "Resource revision numbers",
    "project-id": "project_id field enabled",
}


def rows_of(key: str, networks: StandaloneNetworks, project_id: str) -> list[Row]:
    match key:
        case "networks":
            return [_network(networks)]
        case "subnets":
            return [_subnet(networks)] if networks.bridge is None else []
        case "security_groups":
            return [_security_group(networks, project_id)] if project_id else []
        case "security_group_rules":
            return _rules(networks, project_id) if project_id else []
        case "extensions":
            return [_extension(alias, name) for alias, name in EXTENSIONS.items()]
        case "availability_zones":
            return [{"name": "nova", "resource": "network", "state": "available"}]
        case _:
            return []


def quota_row(*, detailed: bool) -> Row:
    one: Any = {"limit": UNLIMITED, "used": 0, "reserved": 0} if detailed else UNLIMITED
    return dict.fromkeys(QUOTAS, one)


def _network(networks: StandaloneNetworks) -> Row:
    return {
        "id": networks.network_id,
        "name": networks.name,
        "description": "",
        "status": "ACTIVE",
        "admin_state_up": True,
        "shared": True,
        "router:external": False,
        "is_default": False,
        "mtu": MTU,
        "subnets": [networks.subnet_id] if networks.bridge is None else [],
        "availability_zones": ["nova"],
        "availability_zone_hints": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "port_security_enabled": False,
        **_owned_by(""),
        **TIMES,
    }


def _subnet(networks: StandaloneNetworks) -> Row:
    return {
        "id": networks.subnet_id,
        "name": networks.name,
        "description": "",
        "network_id": networks.network_id,
        "ip_version": 4,
        "cidr": USER_CIDR,
        "gateway_ip": USER_GATEWAY,
        "dns_nameservers": [USER_DNS],
        "allocation_pools": [{"start": USER_ADDRESS, "end": USER_ADDRESS}],
        "host_routes": [],
        "enable_dhcp": True,
        "ipv6_address_mode": None,
        "ipv6_ra_mode": None,
        "service_types": [],
        "subnetpool_id": None,
        **_owned_by(""),
        **TIMES,
    }


def _security_group(networks: StandaloneNetworks, project_id: str) -> Row:
    return {
        "id": networks.security_group_id(project_id),
        "name": "default",
        "description": "Filters nothing",
        "stateful": True,
        "shared": False,
        "security_group_rules": _rules(networks, project_id),
        **_owned_by(project_id),
        **TIMES,
    }


def _rules(networks: StandaloneNetworks, project_id: str) -> list[Row]:
    """Everything goes out; everything comes in where a network brings it."""
    group = networks.security_group_id(project_id)
    directions = ("egress", "ingress") if networks.bridge else ("egress",)
    return [
        {
            "id": str(uuid5(NAMESPACE_URL, f"{group}:{direction}:{ethertype}")),
            "security_group_id": group,
            "direction": direction,
            "ethertype": ethertype,
            "protocol": None,
            "port_range_min": None,
            "port_range_max": None,
            "remote_ip_prefix": None,
            "remote_group_id": None,
            "remote_address_group_id": None,
            "description": "",
            **_owned_by(project_id),
            **TIMES,
        }
        for direction in directions
        for ethertype in ("IPv4", "IPv6")
    ]


def _extension(alias: str, name: str) -> Row:
    return {"alias": alias, "name": name, "description": "", "links": [], "updated": MADE_AT}


def _owned_by(project_id: str) -> Row:
    return {"project_id": project_id, "tenant_id": project_id}
