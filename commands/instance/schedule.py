"""ScheduleInstance and FailScheduling: the scheduler's answer. The choice and the claim are one append."""

from __future__ import annotations

from dataclasses import dataclass

from commands.server_group import group_of, hosts_of, rule_for
from commands.states import Decision, States
from domain.errors import ClaimDoesNotFit, InstanceNotFound, ReportSuperseded
from domain.identifiers import HostName, InstanceId, NodeId, ServiceId, instance_stream, provider_stream
from domain.instance.events import AttachedInterface, InstanceScheduled, InstanceScheduleFailed, SchedulingReason
from domain.instance.state import Instance, TaskState
from domain.resource_provider import ProviderClaimed
from domain.resources import Amounts, amounts_of_flavor


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    host: HostName
    node_id: NodeId
    service_id: ServiceId
    availability_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInstance:
    instance_id: InstanceId
    attempt: int
    choices: tuple[Choice, ...]  # the best first; the rest are alternates
    reason: SchedulingReason
    interfaces: tuple[AttachedInterface, ...] = ()
    forced: bool = False  # to a named host, past the filters: also to a disabled one, never past the claim


@dataclass(frozen=True, slots=True, kw_only=True)
class FailScheduling:
    instance_id: InstanceId
    attempt: int
    message: str
    reason: SchedulingReason


def decide_schedule(command: ScheduleInstance, states: States) -> Decision:
    """Claim on the first choice that still has the room, is in the zone it was in, and is one that the instance's server
    group allows; and place the instance there.

    Raises:
        ClaimDoesNotFit: none of them is; the scheduler looks again.
        InstanceNotFound, ReportSuperseded: the instance is gone, or was placed by another.
    """
    instance = _waiting(command.instance_id, command.attempt, states)
    amounts, aggregates = amounts_of(instance), states.host_aggregates()
    group = group_of(instance, states.server_group)
    rule = None if group is None else rule_for(instance, group, hosts_of(group, states.instance))
    for choice in command.choices:
        tree = states.provider(choice.node_id)
        service = states.service(choice.service_id)
        if tree is None or service is None or not service.reachable:
            continue
        if not service.enabled and not command.forced:
            continue
        if choice.availability_zone != (aggregates.zone_of(choice.host) or service.registration.availability_zone):
            continue
        if rule is not None and not (rule.keeps_apart(choice.host) and rule.keeps_together(choice.host)):
            continue
        if tree.admits({choice.node_id: amounts}):
            claimed = ProviderClaimed(
                node_id=choice.node_id,
                consumer_id=instance.id,
                project_id=instance.project_id,
                user_id=instance.request.user_id,
                amounts={choice.node_id: amounts},
            )
            scheduled = InstanceScheduled(
                instance_id=instance.id,
                user_id=instance.request.user_id,
                host=choice.host,
                node_id=choice.node_id,
                service_id=choice.service_id,
                availability_zone=choice.availability_zone,
                attempt=command.attempt,
                reason=command.reason,
                interfaces=command.interfaces,
            )
            return [(provider_stream(choice.node_id), claimed), (instance_stream(instance.id), scheduled)]
    raise ClaimDoesNotFit(f"no candidate for instance {instance.id} has the room any more")


def decide_fail_scheduling(command: FailScheduling, states: States) -> Decision:
    instance = _waiting(command.instance_id, command.attempt, states)
    failed = InstanceScheduleFailed(instance_id=instance.id, message=command.message, reason=command.reason)
    return [(instance_stream(instance.id), failed)]


def amounts_of(instance: Instance) -> Amounts:
    """What the instance claims of its host."""
    request = instance.request
    root_on_host = all(d.destination_type == "local" for d in request.block_devices if d.boot_index == 0)
    return amounts_of_flavor(
        vcpus=request.flavor.vcpus,
        memory_mib=request.flavor.memory_mib,
        root_gib=request.flavor.root_gib,
        ephemeral_gib=request.flavor.ephemeral_gib,
        swap_mib=request.flavor.swap_mib,
        root_on_host=root_on_host,
    )


def _waiting(instance_id: InstanceId, attempt: int, states: States) -> Instance:
    instance = states.instance(instance_id)
    if instance is None or instance.deleted:
        raise InstanceNotFound(instance_id)
    if instance.task_state is not TaskState.SCHEDULING or instance.attempts != attempt - 1:
        raise ReportSuperseded(f"instance {instance_id} is not waiting for attempt {attempt}")
    return instance
