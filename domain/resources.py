"""Resource classes and amounts, as Placement counts them (Placement API, "resource classes" and "inventories").

VCPU counts virtual processors, MEMORY_MB counts MiB, DISK_GB counts GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VCPU = "VCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"

Amounts = Mapping[str, int]  # resource class → amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a provider has of one class. Use may reach (total − reserved) × allocation_ratio, rounded down."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        return int((self.total - self.reserved) * self.allocation_ratio)

    def admits(self, amount: int, used: int) -> bool:
        """Whether `amount` more fits: Placement's four rules for one class."""
        return (
            self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0 and used + amount <= self.capacity
        )


def amounts_of_flavor(
    *, vcpus: int, memory_mib: int, root_gib: int, ephemeral_gib: int, swap_mib: int, root_on_host: bool
) -> dict[str, int]:
    """What a flavor claims of a host; classes it needs nothing of are left out.

    Source: Nova's default amounts; DISK_GB is root (unless it is a volume) plus ephemeral plus swap rounded up to GiB.
    """
    disk_gib = (root_gib if root_on_host else 0) + ephemeral_gib + -(-swap_mib // 1024)
    return {k: v for k, v in ((VCPU, vcpus), (MEMORY_MB, memory_mib), (DISK_GB, disk_gib)) if v}
