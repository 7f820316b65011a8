"""ResetInstanceState: an administrator says what state an instance is in, whatever the ledger thought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from domain.identifiers import InstanceId, ProjectId
from domain.instance.events import InstanceEvent, InstanceStateReset
from domain.instance.state import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetInstanceState:
    instance_id: InstanceId
    project_id: ProjectId | None
    vm_state: Literal["active", "error"]


def decide_reset_state(command: ResetInstanceState, instance: Instance) -> list[InstanceEvent]:
    """In any state, locked or not (Nova API 2.1, os-resetState). What its host reports of the request that was pending
    is superseded."""
    return [InstanceStateReset(instance_id=instance.id, vm_state=command.vm_state)]
