"""What is written on an instance, by whom, and what holds it: each asks once, and records only what changes."""

from __future__ import annotations

from typing import Any

import pytest

from commands.instance.attributes import UpdateInstance
from commands.instance.delete import DeleteInstance
from commands.instance.lock import LockInstance, UnlockInstance
from commands.instance.metadata import DeleteMetadataItem, SetMetadata
from commands.instance.power import StopInstance
from commands.instance.reset import ResetInstanceState
from commands.instance.suspension import PauseInstance, ResumeInstance, SuspendInstance, UnpauseInstance
from commands.instance.tags import AddTag, RemoveTag, SetTags
from domain.errors import (
    InstanceIsLocked,
    InstanceLockedByAdmin,
    InstanceNotFound,
    InstanceWrongState,
    MetadataItemNotFound,
    MetadataLimitExceeded,
    TagInvalid,
    TagNotFound,
)
from domain.instance.attributes import (
    InstanceAccessAddressesChanged,
    InstanceDescribed,
    InstanceLocked,
    InstanceMetadataRemoved,
    InstanceMetadataSet,
    InstanceRenamed,
    InstanceTagsAdded,
    InstanceTagsRemoved,
    InstanceUnlocked,
)
from domain.instance.events import InstanceStateReset
from domain.instance.suspension import (
    InstancePaused,
    InstancePauseRequested,
    InstanceResumeRequested,
    InstanceSuspended,
    InstanceSuspendRequested,
    InstanceUnpauseRequested,
)
from domain.quota import DEFAULT_LIMITS, QuotaLimitsSet
from tests.support.decisions import (
    INSTANCE,
    OTHER_PROJECT,
    PROJECT,
    USER,
    active,
    building,
    deleted,
    given,
    stop_requested,
)

mine: dict[str, Any] = {"instance_id": INSTANCE, "project_id": PROJECT}
owned: dict[str, Any] = {"instance_id": INSTANCE, "user_id": USER}
stop = StopInstance(**mine)


# metadata and tags

some = InstanceMetadataSet(**owned, metadata={"a": "1", "b": "2"})


def test_only_items_that_change_are_recorded() -> None:
    given(*active, some).when(SetMetadata(**mine, items={"a": "1", "b": "3"})).then(
        InstanceMetadataSet(**owned, metadata={"b": "3"})
    )
    given(*active, some).when(SetMetadata(**mine, items={"a": "1"})).then_nothing()
    given(*active, some).when(SetMetadata(**mine, items={"c": "4", "a": "1"}, replace=True)).then(
        InstanceMetadataRemoved(**owned, keys=("b",)), InstanceMetadataSet(**owned, metadata={"c": "4"})
    )
    given(*active, some).when(DeleteMetadataItem(**mine, key="a")).then(InstanceMetadataRemoved(**owned, keys=("a",)))


def test_metadata_has_limits() -> None:
    three = SetMetadata(**mine, items={"a": "1", "b": "2", "c": "3"})
    limited = {**DEFAULT_LIMITS, "metadata_items": 2}

    given(*active, quota_defaults=limited).when(three).then_refused(MetadataLimitExceeded, "exceeds 2")
    given(*active, QuotaLimitsSet(project_id=PROJECT, limits={"metadata_items": 1})).when(three).then_refused(
        MetadataLimitExceeded, "exceeds 1"
    )
    given(*active, QuotaLimitsSet(project_id=PROJECT, limits={"metadata_items": -1})).when(three).then(
        InstanceMetadataSet(**owned, metadata={"a": "1", "b": "2", "c": "3"})
    )
    given(*active).when(DeleteMetadataItem(**mine, key="a")).then_refused(MetadataItemNotFound)
    given(*building).when(three).then_refused(InstanceWrongState, "'update metadata'.*building")


blue = InstanceTagsAdded(**owned, tags=("blue", "red"))


def test_only_tags_that_change_are_recorded() -> None:
    given(*active, blue).when(AddTag(**mine, tag="blue")).then_nothing()
    given(*active, blue).when(AddTag(**mine, tag="green")).then(InstanceTagsAdded(**owned, tags=("green",)))
    given(*active, blue).when(RemoveTag(**mine, tag="red")).then(InstanceTagsRemoved(**owned, tags=("red",)))
    given(*active, blue).when(SetTags(**mine, tags=("red", "x", "x"))).then(
        InstanceTagsRemoved(**owned, tags=("blue",)), InstanceTagsAdded(**owned, tags=("x",))
    )
    given(*active, blue).when(SetTags(**mine, tags=())).then(InstanceTagsRemoved(**owned, tags=("blue", "red")))
    given(*active).when(RemoveTag(**mine, tag="red")).then_refused(TagNotFound)
    given(*active).when(AddTag(**mine, tag="a" * 61)).then_refused(TagInvalid)


# attributes


def test_only_what_changes_is_recorded() -> None:
    update = UpdateInstance(**mine, changes={"name": "another", "description": None, "access_ipv4": "192.0.2.1"})

    decided = given(*active).when(update)

    decided.then(
        InstanceRenamed(**owned, name="another"),
        InstanceAccessAddressesChanged(**owned, access_ipv4="192.0.2.1", access_ipv6=None),
    )
    decided.and_then().when(update).then_nothing()
    given(*active).when(UpdateInstance(**mine, changes={"description": "x"})).then(
        InstanceDescribed(**owned, description="x")
    )


# locks

by_owner = InstanceLocked(**owned, locked_by="owner")
by_admin = InstanceLocked(**owned, locked_by="admin", reason="maintenance")


def test_a_lock_stops_its_project_and_not_administrators() -> None:
    for lock in (by_owner, by_admin):
        given(*active, lock).when(stop).then_refused(InstanceIsLocked)
        given(*active, lock).when(StopInstance(instance_id=INSTANCE, project_id=None)).then(stop_requested)
        given(*active, lock).when(DeleteInstance(**mine)).then_refused(InstanceIsLocked)
        given(*active, lock).when(SetMetadata(**mine, items={"a": "1"})).then_refused(InstanceIsLocked)
    given(*active, by_owner, InstanceUnlocked(instance_id=INSTANCE)).when(stop).then(stop_requested)


def test_a_lock_is_whose_project_it_is_of() -> None:
    given(*active).when(LockInstance(**mine, by_project=PROJECT)).then(by_owner)
    given(*active).when(LockInstance(**mine, by_project=OTHER_PROJECT, reason="maintenance")).then(by_admin)
    given(*active, by_admin).when(LockInstance(**mine, by_project=PROJECT)).then_nothing()
    given(*active, by_owner).when(LockInstance(**mine, by_project=OTHER_PROJECT, reason="maintenance")).then(by_admin)


@pytest.mark.parametrize(
    ("lock", "by_project", "override", "lifted"),
    [
        (by_owner, PROJECT, False, True),
        (by_owner, OTHER_PROJECT, False, False),
        (by_owner, OTHER_PROJECT, True, True),
        (by_admin, PROJECT, False, False),
        (by_admin, PROJECT, True, True),
        (by_admin, OTHER_PROJECT, False, True),
    ],
)
def test_who_lifts_a_lock(lock: InstanceLocked, by_project: Any, override: bool, lifted: bool) -> None:
    decided = given(*active, lock).when(UnlockInstance(**mine, by_project=by_project, override=override))

    if lifted:
        decided.then(InstanceUnlocked(instance_id=INSTANCE))
    else:
        decided.then_refused(InstanceLockedByAdmin)


# states

paused = (InstancePauseRequested(instance_id=INSTANCE), InstancePaused(instance_id=INSTANCE, power_state=3))
suspended = (InstanceSuspendRequested(instance_id=INSTANCE), InstanceSuspended(instance_id=INSTANCE, power_state=7))


def test_a_guest_is_held_and_goes_on() -> None:
    given(*active).when(PauseInstance(**mine)).then(InstancePauseRequested(instance_id=INSTANCE))
    given(*active, *paused).when(UnpauseInstance(**mine)).then(InstanceUnpauseRequested(instance_id=INSTANCE))
    given(*active).when(SuspendInstance(**mine)).then(InstanceSuspendRequested(instance_id=INSTANCE))
    given(*active, *suspended).when(ResumeInstance(**mine)).then(InstanceResumeRequested(instance_id=INSTANCE))
    given(*active, *paused).when(PauseInstance(**mine)).then_refused(InstanceWrongState, "'pause'.*vm_state paused")
    given(*active, *paused).when(ResumeInstance(**mine)).then_refused(InstanceWrongState, "'resume'.*vm_state paused")


def test_a_state_is_reset_whatever_it_was_and_locked_or_not() -> None:
    reset = ResetInstanceState(**mine, vm_state="error")
    event = InstanceStateReset(instance_id=INSTANCE, vm_state="error")

    for so_far in (building, active, (*active, stop_requested), (*active, by_admin)):
        given(*so_far).when(reset).then(event)
    given(*active, deleted).when(reset).then_refused(InstanceNotFound)
