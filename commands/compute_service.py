"""Hosts' agents: registered and up by their own report, down by silence, enabled and disabled by operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commands.host_aggregate import without_host
from commands.host_key import holder_of
from commands.reports import HostReport
from commands.states import Decision, States
from domain.compute_service import (
    ComputeService,
    ServiceCameUp,
    ServiceDeleted,
    ServiceDisabled,
    ServiceEnabled,
    ServiceForcedDown,
    ServiceForcedDownLifted,
    ServiceRegistered,
    ServiceWentDown,
)
from domain.errors import HostRenamed, ReportNotYours, ReportSuperseded, ServiceInUse, ServiceNotFound
from domain.identifiers import ServiceId, StreamId, provider_stream, service_stream
from domain.resource_provider import ProviderCreated, ProviderDeleted, ProviderInventorySet, ProviderTraitsSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterHost:
    report: HostReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkServiceDown:
    service_id: ServiceId
    epoch: int  # of the session that fell silent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkServiceUp:
    service_id: ServiceId
    epoch: int  # of the session that is heard of again


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableService:
    service_id: ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableService:
    service_id: ServiceId
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceServiceDown:
    service_id: ServiceId
    forced_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteService:
    service_id: ServiceId


def decide_register(command: RegisterHost, states: States) -> Decision:
    """A host opened a session: what it says of itself, as far as that is new, and that it is up.

    Raises:
        HostRenamed: it was registered under another name or with another node.
        ReportNotYours: it says that it is another host, or has another's node.
        ReportSuperseded: a later session was opened already.
    """
    report = command.report
    service = states.service(report.service_id)
    stream = service_stream(report.service_id)
    registered = ServiceRegistered(
        service_id=report.service_id,
        host=report.host,
        node_id=report.node_id,
        hypervisor_type=report.facts.hypervisor_type,
        hypervisor_version=report.facts.hypervisor_version,
        hypervisor_hostname=report.facts.hypervisor_hostname,
        host_ip=report.host_ip,
        cpu_info=report.facts.cpu_info,
        availability_zone=report.availability_zone,
        booted_at_s=report.facts.booted_at_s,
    )
    events: list[tuple[StreamId, Any]] = []
    _require_its_own(report, service, states)
    if service is not None:
        known = service.registration
        if (known.host, known.node_id) != (report.host, report.node_id):
            raise HostRenamed(
                f"service {report.service_id} is host {known.host} with node {known.node_id}; "
                f"it came back as {report.host} with node {report.node_id}"
            )
        if report.epoch <= service.epoch:
            raise ReportSuperseded(
                f"host {report.host} has opened session {service.epoch} already, and this one says {report.epoch}: another "
                "agent speaks for it, or its journal is an older copy; enroll the host again to take it over"
            )
    if service is None or service.deleted or service.registration != registered:
        events.append((stream, registered))
    events.extend(_provider(report, states))
    events.append((stream, ServiceCameUp(service_id=report.service_id, epoch=report.epoch, session=report.session)))
    return events


def _require_its_own(report: HostReport, service: ComputeService | None, states: States) -> None:
    """An enrolled host is what it was enrolled as, and nobody takes its name; a new one brings a new node."""
    enrolled = states.host_key(report.service_id)
    if enrolled is not None:
        said = (report.host, report.node_id, report.facts.hypervisor_hostname)
        if said != (enrolled.host, enrolled.node_id, enrolled.host):
            raise ReportNotYours(f"service {report.service_id} was enrolled as host {enrolled.host}, not as {said}")
    else:
        holder = holder_of(report.host, states)
        if holder != report.service_id and states.host_key(holder) is not None:
            raise ReportNotYours(f"the name {report.host} is that of service {holder}")
    if service is None and states.provider(report.node_id) is not None:
        raise ReportNotYours(f"node {report.node_id} is not that of service {report.service_id}")


def _provider(report: HostReport, states: States) -> Decision:
    """The node's provider, and what of its inventory and traits is new."""
    stream = provider_stream(report.node_id)
    tree = states.provider(report.node_id)
    if tree is not None and tree.deleted:
        tree = None
    events: list[tuple[StreamId, Any]] = []
    if tree is None:
        created = ProviderCreated(
            node_id=report.node_id,
            provider_id=report.node_id,
            parent_id=None,
            name=report.facts.hypervisor_hostname,
        )
        events.append((stream, created))
    root = None if tree is None else tree.providers[report.node_id]
    if root is None or root.inventories != report.facts.inventories:
        inventory = ProviderInventorySet(
            node_id=report.node_id, provider_id=report.node_id, inventories=report.facts.inventories
        )
        events.append((stream, inventory))
    if (() if root is None else root.traits) != report.facts.traits:
        traits = ProviderTraitsSet(node_id=report.node_id, provider_id=report.node_id, traits=report.facts.traits)
        events.append((stream, traits))
    return events


def decide_service_down(command: MarkServiceDown, states: States) -> Decision:
    service = _service(command.service_id, states)
    if not service.up or service.epoch != command.epoch:
        return []
    event = ServiceWentDown(service_id=command.service_id, reason=command.reason)
    return [(service_stream(command.service_id), event)]


def decide_service_up(command: MarkServiceUp, states: States) -> Decision:
    """The host's session was only silent: it goes on, and all its guests are ordered again."""
    service = _service(command.service_id, states)
    if service.up or service.epoch != command.epoch:
        return []
    event = ServiceCameUp(service_id=command.service_id, epoch=command.epoch, session=service.session)
    return [(service_stream(command.service_id), event)]


def decide_enable(command: EnableService, states: States) -> Decision:
    """Nova API 2.53, PUT /os-services/{id} with status enabled.

    Raises:
        ServiceNotFound: HTTP answers 404.
    """
    if _service(command.service_id, states).enabled:
        return []
    return [(service_stream(command.service_id), ServiceEnabled(service_id=command.service_id))]


def decide_disable(command: DisableService, states: States) -> Decision:
    """Nova API 2.53, PUT /os-services/{id} with status disabled: no new instances; those there stay.

    Raises:
        ServiceNotFound: HTTP answers 404.
    """
    service = _service(command.service_id, states)
    if not service.enabled and service.disabled_reason == command.reason:
        return []
    event = ServiceDisabled(service_id=command.service_id, reason=command.reason)
    return [(service_stream(command.service_id), event)]


def decide_force_down(command: ForceServiceDown, states: States) -> Decision:
    """Nova API 2.53, PUT /os-services/{id} with forced_down: the operator says that the host is fenced, or no longer is.

    Raises:
        ServiceNotFound: HTTP answers 404.
    """
    if _service(command.service_id, states).forced_down == command.forced_down:
        return []
    event = ServiceForcedDown if command.forced_down else ServiceForcedDownLifted
    return [(service_stream(command.service_id), event(service_id=command.service_id))]


def decide_delete_service(command: DeleteService, states: States) -> Decision:
    """Nova API 2.1, DELETE /os-services/{id}: the host, and what it offered, are gone; it is in no aggregate any more.

    Raises:
        ServiceNotFound: HTTP answers 404.
        ServiceInUse: something is claimed of it; HTTP answers 409.
    """
    service = _service(command.service_id, states)
    node_id = service.registration.node_id
    tree = states.provider(node_id)
    if tree is not None and tree.claims:
        raise ServiceInUse
    return [
        *without_host(service.registration.host, states.host_aggregates()),
        (service_stream(command.service_id), ServiceDeleted(service_id=command.service_id)),
        (provider_stream(node_id), ProviderDeleted(node_id=node_id)),
    ]


def _service(service_id: ServiceId, states: States) -> ComputeService:
    service = states.service(service_id)
    if service is None or service.deleted:
        raise ServiceNotFound(service_id)
    return service
