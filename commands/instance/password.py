"""ChangePassword: the guest's administrator gets another password, through the agent in the guest."""

from __future__ import annotations

from dataclasses import dataclass

from commands.states import Decision, States
from domain.errors import PasswordNotChangeable
from domain.identifiers import InstanceId, ProjectId, VaultRef, instance_stream
from domain.instance.lifecycle import CHANGE_PASSWORD, require
from domain.instance.password import InstancePasswordChangeRequested
from domain.instance.state import Instance, PowerState

WITHOUT_PASSWORDS = ("TEST",)  # hypervisors whose guests have none to change
WITH_GUEST_AGENT = ("QEMU",)  # those that reach into a guest by its agent
_YES = ("1", "t", "true", "on", "y", "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePassword:
    instance_id: InstanceId
    project_id: ProjectId | None
    password: VaultRef  # kept in the append that asks for it


def decide_change_password(command: ChangePassword, states: States) -> Decision:
    """Set another password (Nova API 2.1, changePassword).

    Raises:
        InstanceNotFound: HTTP answers 404.
        InstanceIsLocked, InstanceWrongState: HTTP answers 409.
        PasswordNotChangeable: it does not run, or has nobody in it who could; HTTP answers 409.
    """
    instance = states.live_instance(command.instance_id, command.project_id)
    require(instance, CHANGE_PASSWORD, command.project_id)
    if instance.power_state != PowerState.RUNNING:
        raise PasswordNotChangeable(
            f"Failed to set admin password on {instance.id} because instance {instance.id} is not running"
        )
    _require_somebody_in_it(instance, states)
    event = InstancePasswordChangeRequested(instance_id=instance.id, password=command.password)
    return [(instance_stream(instance.id), event)]


def _require_somebody_in_it(instance: Instance, states: States) -> None:
    service = None if instance.residence is None else states.service(instance.residence.service_id)
    hypervisor = "" if service is None else service.registration.hypervisor_type
    if hypervisor in WITHOUT_PASSWORDS:
        raise PasswordNotChangeable("Set admin password is not supported")
    image = instance.request.image
    has_agent = image is not None and image.properties.get("hw_qemu_guest_agent", "").strip().lower() in _YES
    if hypervisor in WITH_GUEST_AGENT and not has_agent:
        raise PasswordNotChangeable("QEMU guest agent is not enabled")
