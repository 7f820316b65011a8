"""One flat network, the same for every project: QEMU's user network, or a bridge of the host.

On the user network each guest stands alone behind a NAT of its own and always has the same address (QEMU
documentation, "User mode networking"). On a bridge somebody else gives out addresses; none is known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid5

from commands.neighbours.networks import (
    NetworkMode,
    NetworkNotFound,
    NetworkRequestUnsupported,
    PortNotFound,
    SecurityGroupNotFound,
)
from domain.identifiers import InstanceId, ProjectId
from domain.instance.events import AttachedInterface, NetworkRequest

USER_CIDR, USER_GATEWAY, USER_DNS, USER_ADDRESS = "10.0.2.0/24", "10.0.2.2", "10.0.2.3", "10.0.2.15"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneNetworks:
    name: str = "private"
    bridge: str | None = None  # None: QEMU's user network

    @property
    def network_id(self) -> str:
        return _id("network", self.name)

    @property
    def subnet_id(self) -> str:
        return _id("subnet", self.name)

    def security_group_id(self, project_id: str) -> str:
        """Of the project's one group, "default": it filters nothing."""
        return _id("security-group", project_id)

    def plan(
        self,
        mode: NetworkMode,
        requests: tuple[NetworkRequest, ...],
        security_groups: tuple[str, ...],
        instance_id: InstanceId,
        project_id: ProjectId,
    ) -> tuple[AttachedInterface, ...]:
        for group in security_groups:
            if group not in ("default", self.security_group_id(project_id)):
                raise SecurityGroupNotFound(group)
        if mode == "none":
            return ()
        wanted = requests or (NetworkRequest(),)
        for request in wanted:
            self._check(request)
        if len(wanted) > 1 and self.bridge is None:
            raise NetworkRequestUnsupported(
                f"Network {self.name} gives a guest one interface; {len(wanted)} were asked for."
            )
        return tuple(self._interface(instance_id, index) for index in range(len(wanted)))

    def _check(self, request: NetworkRequest) -> None:
        if request.port_id is not None:
            raise PortNotFound(request.port_id)  # there are no ports to be had here
        if request.network_id not in (None, self.network_id):
            raise NetworkNotFound(request.network_id or "")
        if request.fixed_ip is not None:
            raise NetworkRequestUnsupported(f"Network {self.name} cannot give a guest a fixed IP address.")
        if request.tag is not None:
            raise NetworkRequestUnsupported(f"Network {self.name} cannot tag a guest's interface.")

    def _interface(self, instance_id: InstanceId, index: int) -> AttachedInterface:
        return AttachedInterface(
            network_id=self.network_id,
            network_name=self.name,
            mac_address=mac_address(instance_id, index),
            addresses=() if self.bridge else (USER_ADDRESS,),
        )


def mac_address(instance_id: InstanceId, index: int) -> str:
    """Derived, so that planning twice gives the same: OpenStack's prefix and 24 bits of a digest."""
    tail = sha256(instance_id.bytes + index.to_bytes(2, "big")).digest()[:3]
    return ":".join(["fa:16:3e", *(f"{byte:02x}" for byte in tail)])


def _id(kind: str, name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"compute-ledger:{kind}:{name}"))
