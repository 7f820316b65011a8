"""DeleteInstance: always wins. What the guest holds is held until its host denies it; its user need not wait for a host
that is away.
"""

from __future__ import annotations

from dataclasses import dataclass

from commands.quota import released
from commands.server_group import left
from commands.states import Decision, States
from domain.identifiers import InstanceId, ProjectId, instance_stream, quota_stream
from domain.instance.events import InstanceDeleted, InstanceDeleteRequested
from domain.instance.lifecycle import DELETE, require
from domain.instance.state import Instance, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInstance:
    instance_id: InstanceId
    project_id: ProjectId | None


def decide_delete(command: DeleteInstance, states: States) -> Decision:
    """Delete (Nova API 2.1, DELETE /servers/{id}). A second one makes no new work.

    Raises:
        InstanceNotFound: HTTP answers 404.
        InstanceIsLocked: HTTP answers 409.
    """
    instance = states.live_instance(command.instance_id, command.project_id)
    require(instance, DELETE, command.project_id)
    if instance.residence is None:
        return gone(instance, purge_pending=False)
    service = states.service(instance.residence.service_id)
    if service is None or not service.reachable:
        return gone(instance, purge_pending=True)
    if instance.task_state is TaskState.DELETING:
        return []
    return [(instance_stream(instance.id), InstanceDeleteRequested(instance_id=instance.id))]


def gone(instance: Instance, *, purge_pending: bool) -> Decision:
    """The instance is gone for its user, and its quota is free. With `purge_pending` the claim stays."""
    return [
        (
            instance_stream(instance.id),
            InstanceDeleted(instance_id=instance.id, purge_pending=purge_pending),
        ),
        (
            quota_stream(instance.project_id),
            released(instance.project_id, instance.request.user_id, instance.id, instance.request.flavor),
        ),
        *left(instance),
    ]
