"""What is where: the catalog of a token answer, which is also Keystone's services and endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

REGION = "RegionOne"
INTERFACES = ("public", "internal", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    type: str
    name: str
    path: str  # below the product's base URL

    @property
    def id(self) -> str:
        return stable_id("service", self.type)

    def endpoints(self, base: str) -> list[dict[str, Any]]:
        return [
            {
                "id": stable_id("endpoint", f"{self.type}:{interface}"),
                "interface": interface,
                "region": REGION,
                "region_id": REGION,
                "url": base + self.path,
            }
            for interface in INTERFACES
        ]


SERVICES = (
    Service(type="identity", name="keystone", path="/identity"),
    Service(type="compute", name="nova", path="/compute/v2.1"),
    Service(type="image", name="glance", path="/image"),
    Service(type="network", name="neutron", path="/network"),
)


def stable_id(kind: str, name: str) -> str:
    """The same in every process: catalogs are not stored."""
    return uuid5(NAMESPACE_URL, f"compute-ledger:{kind}:{name}").hex


def catalog(base: str) -> list[dict[str, Any]]:
    return [{"id": one.id, "type": one.type, "name": one.name, "endpoints": one.endpoints(base)} for one in SERVICES]
