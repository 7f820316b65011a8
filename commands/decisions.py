"""Which decision answers which command: one plain dict, so that a grep finds both ends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from commands.appender import Decide
from commands.compute_service import (
    DeleteService,
    DisableService,
    EnableService,
    ForceServiceDown,
    MarkServiceDown,
    MarkServiceUp,
    RegisterHost,
    decide_delete_service,
    decide_disable,
    decide_enable,
    decide_force_down,
    decide_register,
    decide_service_down,
    decide_service_up,
)
from commands.flavor import (
    CreateFlavor,
    DeleteExtraSpec,
    DeleteFlavor,
    DescribeFlavor,
    GrantFlavorAccess,
    RevokeFlavorAccess,
    SetExtraSpecs,
    decide_create_flavor,
    decide_delete_extra_spec,
    decide_delete_flavor,
    decide_describe_flavor,
    decide_grant_access,
    decide_revoke_access,
    decide_set_extra_specs,
)
from commands.host_aggregate import (
    AddAggregateHost,
    CreateAggregate,
    DeleteAggregate,
    RemoveAggregateHost,
    UpdateAggregate,
    decide_add_host,
    decide_create_aggregate,
    decide_delete_aggregate,
    decide_remove_host,
    decide_update_aggregate,
)
from commands.host_key import EnrollHost, RevokeHost, decide_enroll_host, decide_revoke_host
from commands.instance.attributes import UpdateInstance, decide_update
from commands.instance.create import CreateInstances, decide_create
from commands.instance.delete import DeleteInstance, decide_delete
from commands.instance.lock import LockInstance, UnlockInstance, decide_lock, decide_unlock
from commands.instance.metadata import DeleteMetadataItem, SetMetadata, decide_delete_metadata, decide_set_metadata
from commands.instance.outcome import (
    MarkOverdue,
    RecordObservation,
    RecordOutcome,
    decide_observation,
    decide_outcome,
    decide_overdue,
)
from commands.instance.password import ChangePassword, decide_change_password
from commands.instance.power import (
    RebootInstance,
    StartInstance,
    StopInstance,
    decide_reboot,
    decide_start,
    decide_stop,
    on_instance,
)
from commands.instance.reset import ResetInstanceState, decide_reset_state
from commands.instance.schedule import (
    FailScheduling,
    ScheduleInstance,
    decide_fail_scheduling,
    decide_schedule,
)
from commands.instance.suspension import (
    PauseInstance,
    ResumeInstance,
    SuspendInstance,
    UnpauseInstance,
    decide_pause,
    decide_resume,
    decide_suspend,
    decide_unpause,
)
from commands.instance.tags import AddTag, RemoveTag, SetTags, decide_add_tag, decide_remove_tag, decide_set_tags
from commands.keypair import CreateKeypair, DeleteKeypair, decide_create_keypair, decide_delete_keypair
from commands.quota import (
    ResetQuotaLimits,
    SetQuotaClassLimits,
    SetQuotaLimits,
    decide_reset_limits,
    decide_set_class_limits,
    decide_set_limits,
)
from commands.server_group import CreateServerGroup, DeleteServerGroup, decide_create_group, decide_delete_group
from domain.quota import DEFAULT_LIMITS


def decisions(quota_defaults: Mapping[str, int] = DEFAULT_LIMITS) -> dict[type, Decide]:
    """The table; `quota_defaults` are the limits of projects that have none of their own (Nova's [quota])."""
    return {
        **DECISIONS,
        CreateInstances: partial(decide_create, defaults=quota_defaults),
        CreateKeypair: partial(decide_create_keypair, defaults=quota_defaults),
        SetMetadata: partial(decide_set_metadata, defaults=quota_defaults),
        SetQuotaLimits: partial(decide_set_limits, defaults=quota_defaults),
        CreateServerGroup: partial(decide_create_group, defaults=quota_defaults),
    }


DECISIONS: dict[type, Decide] = {
    CreateInstances: decide_create,
    StartInstance: on_instance(decide_start),
    StopInstance: on_instance(decide_stop),
    RebootInstance: on_instance(decide_reboot),
    PauseInstance: on_instance(decide_pause),
    UnpauseInstance: on_instance(decide_unpause),
    SuspendInstance: on_instance(decide_suspend),
    ResumeInstance: on_instance(decide_resume),
    DeleteInstance: decide_delete,
    ChangePassword: decide_change_password,
    UpdateInstance: on_instance(decide_update),
    SetMetadata: decide_set_metadata,
    DeleteMetadataItem: on_instance(decide_delete_metadata),
    SetTags: on_instance(decide_set_tags),
    AddTag: on_instance(decide_add_tag),
    RemoveTag: on_instance(decide_remove_tag),
    LockInstance: on_instance(decide_lock),
    UnlockInstance: on_instance(decide_unlock),
    ResetInstanceState: on_instance(decide_reset_state),
    ScheduleInstance: decide_schedule,
    FailScheduling: decide_fail_scheduling,
    RecordOutcome: decide_outcome,
    RecordObservation: decide_observation,
    MarkOverdue: decide_overdue,
    RegisterHost: decide_register,
    MarkServiceDown: decide_service_down,
    MarkServiceUp: decide_service_up,
    EnableService: decide_enable,
    DisableService: decide_disable,
    ForceServiceDown: decide_force_down,
    DeleteService: decide_delete_service,
    CreateAggregate: decide_create_aggregate,
    UpdateAggregate: decide_update_aggregate,
    DeleteAggregate: decide_delete_aggregate,
    AddAggregateHost: decide_add_host,
    RemoveAggregateHost: decide_remove_host,
    EnrollHost: decide_enroll_host,
    RevokeHost: decide_revoke_host,
    SetQuotaLimits: decide_set_limits,
    ResetQuotaLimits: decide_reset_limits,
    SetQuotaClassLimits: decide_set_class_limits,
    CreateFlavor: decide_create_flavor,
    DeleteFlavor: decide_delete_flavor,
    DescribeFlavor: decide_describe_flavor,
    SetExtraSpecs: decide_set_extra_specs,
    DeleteExtraSpec: decide_delete_extra_spec,
    GrantFlavorAccess: decide_grant_access,
    RevokeFlavorAccess: decide_revoke_access,
    CreateServerGroup: decide_create_group,
    DeleteServerGroup: decide_delete_group,
    CreateKeypair: decide_create_keypair,
    DeleteKeypair: decide_delete_keypair,
}
