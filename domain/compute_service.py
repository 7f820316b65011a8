"""A host's agent: registered, up or down, enabled or disabled, forced down. One stream a service.

Heartbeats are never events; only the turns from up to down and back are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from domain.identifiers import HostName, NodeId, ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRegistered:
    service_id: ServiceId
    host: HostName
    node_id: NodeId  # the persisted compute id: node, provider and hypervisor id in one
    hypervisor_type: str
    hypervisor_version: int
    hypervisor_hostname: str
    host_ip: str
    cpu_info: str  # JSON, as the driver reports it
    availability_zone: str
    booted_at_s: int | None = None  # when its machine was started, since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCameUp:
    """The agent opened a session, or one that had fallen silent is heard of again. `epoch` grows with each session; orders
    of an older one are refused by the agent. `session` names the agent's start: no other takes its orders."""

    service_id: ServiceId
    epoch: int
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWentDown:
    service_id: ServiceId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEnabled:
    service_id: ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDisabled:
    service_id: ServiceId
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceForcedDown:
    """An operator's word that the host is fenced: nothing of it runs any more."""

    service_id: ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceForcedDownLifted:
    service_id: ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDeleted:
    """An operator has taken the host out. An agent that opens a session all the same registers it anew."""

    service_id: ServiceId


ServiceEvent = (
    ServiceRegistered
    | ServiceCameUp
    | ServiceWentDown
    | ServiceEnabled
    | ServiceDisabled
    | ServiceForcedDown
    | ServiceForcedDownLifted
    | ServiceDeleted
)

SERVICE_EVENTS = {
    "service.registered": ServiceRegistered,
    "service.came_up": ServiceCameUp,
    "service.went_down": ServiceWentDown,
    "service.enabled": ServiceEnabled,
    "service.disabled": ServiceDisabled,
    "service.forced_down": ServiceForcedDown,
    "service.forced_down_lifted": ServiceForcedDownLifted,
    "service.deleted": ServiceDeleted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeService:
    registration: ServiceRegistered
    up: bool = False
    enabled: bool = True
    disabled_reason: str | None = None
    forced_down: bool = False
    epoch: int = 0
    session: str = ""
    deleted: bool = False

    @property
    def service_id(self) -> ServiceId:
        return self.registration.service_id

    @property
    def reachable(self) -> bool:
        """Whether orders can be expected to arrive."""
        return self.up and not self.forced_down and not self.deleted


def evolve_service(service: ComputeService | None, event: ServiceEvent) -> ComputeService:
    if isinstance(event, ServiceRegistered):
        if service is None or service.deleted:
            return ComputeService(registration=event, epoch=0 if service is None else service.epoch)
        return replace(service, registration=event)
    assert service is not None, "a service's first event is its registration"
    match event:
        case ServiceCameUp():
            return replace(service, up=True, epoch=event.epoch, session=event.session)
        case ServiceWentDown():
            return replace(service, up=False)
        case ServiceEnabled():
            return replace(service, enabled=True, disabled_reason=None)
        case ServiceDisabled():
            return replace(service, enabled=False, disabled_reason=event.reason)
        case ServiceForcedDown():
            return replace(service, forced_down=True)
        case ServiceForcedDownLifted():
            return replace(service, forced_down=False)
        case ServiceDeleted():
            return replace(service, deleted=True)
        case _:
            assert_never(event)
