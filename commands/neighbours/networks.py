"""The port to networks: which interfaces a new guest gets.

`standalone/networks.py` has one flat network. What an adapter cannot do it refuses; it ignores nothing.
"""

from __future__ import annotations

from typing import Literal, Protocol

from domain.errors import Invalid
from domain.identifiers import InstanceId, ProjectId
from domain.instance.events import AttachedInterface, NetworkRequest

NetworkMode = Literal["auto", "none", "list"]  # Nova API 2.37; "list" without requests is a create before it


class NetworkNotFound(Invalid):
    """A create names a network that its project cannot see (Nova answers 400)."""

    code = "network.not_found"

    def __init__(self, network_id: str) -> None:
        super().__init__(f"Network {network_id} could not be found.")


class PortNotFound(Invalid):
    code = "port.not_found"

    def __init__(self, port_id: str) -> None:
        super().__init__(f"Port id {port_id} could not be found.")


class SecurityGroupNotFound(Invalid):
    code = "security_group.not_found"

    def __init__(self, group: str) -> None:
        super().__init__(f"Unable to find security_group with name or id '{group}'")


class NetworkRequestUnsupported(Invalid):
    """The request is well formed, but this network cannot meet it."""

    code = "network.request_unsupported"


class Networks(Protocol):
    def plan(
        self,
        mode: NetworkMode,
        requests: tuple[NetworkRequest, ...],
        security_groups: tuple[str, ...],
        instance_id: InstanceId,
        project_id: ProjectId,
    ) -> tuple[AttachedInterface, ...]:
        """The interfaces in the order asked for; asked again for the same instance, the same ones.

        Raises:
            NetworkNotFound, PortNotFound, SecurityGroupNotFound: a name leads nowhere.
            NetworkRequestUnsupported: this network cannot do what was asked.
        """
