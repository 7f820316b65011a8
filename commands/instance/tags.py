"""SetTags, AddTag, RemoveTag: words that a server's users put on it, to find it by (Nova API 2.26)."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import TagInvalid, TagLimitExceeded, TagNotFound
from domain.identifiers import InstanceId, ProjectId
from domain.instance.attributes import InstanceTagsAdded, InstanceTagsRemoved
from domain.instance.events import InstanceEvent
from domain.instance.lifecycle import DELETE_TAG, DELETE_TAGS, UPDATE_TAG, UPDATE_TAGS, require
from domain.instance.state import Instance

MOST_TAGS = 50
LONGEST_TAG = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTags:
    """All of them anew; none takes all away."""

    instance_id: InstanceId
    project_id: ProjectId | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTag:
    instance_id: InstanceId
    project_id: ProjectId | None
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTag:
    instance_id: InstanceId
    project_id: ProjectId | None
    tag: str


def decide_set_tags(command: SetTags, instance: Instance) -> list[InstanceEvent]:
    """Replace the tags, or take all away (Nova API 2.26, PUT and DELETE /servers/{id}/tags).

    Raises:
        InstanceWrongState: HTTP answers 409.
    """
    require(instance, UPDATE_TAGS if command.tags else DELETE_TAGS, command.project_id)
    before, wanted = instance.request.tags, tuple(dict.fromkeys(command.tags))
    events: list[InstanceEvent] = []
    if removed := tuple(tag for tag in before if tag not in wanted):
        events.append(_removed(instance, removed))
    if added := tuple(tag for tag in wanted if tag not in before):
        events.append(_added(instance, added))
    return events


def decide_add_tag(command: AddTag, instance: Instance) -> list[InstanceEvent]:
    """Add one tag (Nova API 2.26, PUT /servers/{id}/tags/{tag}); nothing, where it is there.

    Raises:
        InstanceWrongState: HTTP answers 409.
        TagInvalid, TagLimitExceeded: HTTP answers 400.
    """
    require(instance, UPDATE_TAG, command.project_id)
    tag, tags = command.tag, instance.request.tags
    if len(tag) > LONGEST_TAG:
        raise TagInvalid(tag, f"{tag!r} is too long")
    if "," in tag or "/" in tag:
        raise TagInvalid(tag, f"{tag!r} does not match '^[^,/]*$'")
    if len(tags) >= MOST_TAGS:
        raise TagLimitExceeded(MOST_TAGS)
    return [] if tag in tags else [_added(instance, (tag,))]


def decide_remove_tag(command: RemoveTag, instance: Instance) -> list[InstanceEvent]:
    """Take one tag away (Nova API 2.26, DELETE /servers/{id}/tags/{tag}).

    Raises:
        InstanceWrongState: HTTP answers 409.
        TagNotFound: HTTP answers 404.
    """
    require(instance, DELETE_TAG, command.project_id)
    if command.tag not in instance.request.tags:
        raise TagNotFound(instance.id, command.tag)
    return [_removed(instance, (command.tag,))]


def _added(instance: Instance, tags: tuple[str, ...]) -> InstanceTagsAdded:
    return InstanceTagsAdded(instance_id=instance.id, user_id=instance.request.user_id, tags=tags)


def _removed(instance: Instance, tags: tuple[str, ...]) -> InstanceTagsRemoved:
    return InstanceTagsRemoved(instance_id=instance.id, user_id=instance.request.user_id, tags=tags)
