"""A guest's administrator is given another password. `state.py` folds these; the password itself is in the vault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from domain.identifiers import InstanceId, VaultRef
from domain.marks import SEALED


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePasswordChangeRequested:
    instance_id: InstanceId
    password: Annotated[VaultRef, SEALED]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePasswordChanged:
    instance_id: InstanceId
    power_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePasswordChangeFailed:
    instance_id: InstanceId
    message: str


PasswordEvent = InstancePasswordChangeRequested | InstancePasswordChanged | InstancePasswordChangeFailed

PASSWORD_EVENTS = {
    "instance.password_change_requested": InstancePasswordChangeRequested,
    "instance.password_changed": InstancePasswordChanged,
    "instance.password_change_failed": InstancePasswordChangeFailed,
}
