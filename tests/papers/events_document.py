"""Makes docs/events.md from the event classes and the sentences here: `python -m tests.papers.events_document`.

A test holds the file to this, so that no event or field goes without a word about it.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from commands.log.kafka_options import KafkaOptions
from commands.log.kafka_topics import layout
from commands.log.port import ALLOCATIONS, INSTANCES, LEDGER
from domain.marks import Personal, Sealed
from domain.serialization import EVENTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "events.md"

# Wire name → who records it, and when.
RECORDED: dict[str, str] = {
    "instance.create_requested": "`commands/instance/create.py`, when a create is accepted; one for each server made, "
    "in the append that counts it against the quota.",
    "instance.scheduled": "`commands/instance/schedule.py`, for the build manager: a host was chosen. The claim on it "
    "(`provider.claimed`) is in the same append.",
    "instance.schedule_failed": "`commands/instance/schedule.py`, for the build manager: no host passes the filters, or "
    "three hosts failed to start the guest.",
    "instance.spawned": "`commands/instance/outcome.py`, on the host's report that the guest runs.",
    "instance.spawn_failed": "`commands/instance/outcome.py`, on the host's report that it could not start the guest "
    "and holds nothing of it; `provider.released` is in the same append. The build manager tries another host.",
    "instance.start_requested": "`commands/instance/power.py`, when os-start is accepted.",
    "instance.started": "`commands/instance/outcome.py`, on the host's report.",
    "instance.start_failed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.stop_requested": "`commands/instance/power.py`, when os-stop is accepted.",
    "instance.stopped": "`commands/instance/outcome.py`, on the host's report.",
    "instance.stop_failed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.reboot_requested": "`commands/instance/power.py`, when a reboot is accepted.",
    "instance.rebooted": "`commands/instance/outcome.py`, on the host's report.",
    "instance.reboot_failed": "`commands/instance/outcome.py`, on the host's report; the server is then in ERROR.",
    "instance.delete_requested": "`commands/instance/delete.py`, when a delete is accepted for a server whose host can "
    "be reached. A second delete records nothing.",
    "instance.delete_failed": "`commands/instance/outcome.py`, on the host's report that something is left.",
    "instance.deleted": "`commands/instance/outcome.py`, when the host has confirmed that it holds nothing "
    "(`provider.released` and `quota.released` are in the same append); or `commands/instance/delete.py` at once, when "
    "the server never had a host, or its host is away (then the claim stays).",
    "instance.purged": "`commands/instance/outcome.py`, when a host that was away at the delete confirms that it holds "
    "nothing; `provider.released` is in the same append.",
    "instance.power_state_observed": "`commands/instance/outcome.py`, on a host's observation, if no request is pending "
    "and the power is another than recorded.",
    "instance.outcome_unknown": "`commands/instance/outcome.py`, for the deadlines manager, once for a request that "
    "missed its deadline. It changes no state but the mark itself.",
    "instance.state_reset": "`commands/instance/reset.py`, on os-resetState. What a host then reports of the request "
    "that was pending is superseded.",
    "instance.renamed": "`commands/instance/attributes.py`, on PUT /servers/{id}; as the five below, only where the "
    "value is another one.",
    "instance.described": "`commands/instance/attributes.py`, on PUT /servers/{id}.",
    "instance.hostname_changed": "`commands/instance/attributes.py`, on PUT /servers/{id}.",
    "instance.access_addresses_changed": "`commands/instance/attributes.py`, on PUT /servers/{id}.",
    "instance.disk_config_changed": "`commands/instance/attributes.py`, on PUT /servers/{id}.",
    "instance.zone_pinned": "`commands/instance/attributes.py`, on PUT /servers/{id} with the zone that the server is "
    "in.",
    "instance.zone_unpinned": "`commands/instance/attributes.py`, on PUT /servers/{id} with no zone.",
    "instance.metadata_set": "`commands/instance/metadata.py`, on POST and PUT /servers/{id}/metadata.",
    "instance.metadata_removed": "`commands/instance/metadata.py`, on DELETE of an item, and on a PUT that leaves "
    "items out; then before `instance.metadata_set`.",
    "instance.tags_added": "`commands/instance/tags.py`, on PUT /servers/{id}/tags.",
    "instance.tags_removed": "`commands/instance/tags.py`, on DELETE of tags, and on a PUT that leaves some out.",
    "instance.locked": "`commands/instance/lock.py`, when a lock is accepted; nothing, where its owner locks a server "
    "that is locked.",
    "instance.unlocked": "`commands/instance/lock.py`, when an unlock is accepted.",
    "instance.pause_requested": "`commands/instance/suspension.py`, when pause is accepted.",
    "instance.paused": "`commands/instance/outcome.py`, on the host's report.",
    "instance.pause_failed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.unpause_requested": "`commands/instance/suspension.py`, when unpause is accepted.",
    "instance.unpaused": "`commands/instance/outcome.py`, on the host's report.",
    "instance.unpause_failed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.suspend_requested": "`commands/instance/suspension.py`, when suspend is accepted.",
    "instance.suspended": "`commands/instance/outcome.py`, on the host's report.",
    "instance.suspend_failed": "`commands/instance/outcome.py`, on the host's report; the server is then in ERROR.",
    "instance.resume_requested": "`commands/instance/suspension.py`, when resume is accepted.",
    "instance.resumed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.resume_failed": "`commands/instance/outcome.py`, on the host's report; the server is then in ERROR.",
    "instance.password_change_requested": "`commands/instance/password.py`, when changePassword is accepted; the password "
    "goes into the vault in the same append.",
    "instance.password_changed": "`commands/instance/outcome.py`, on the host's report.",
    "instance.password_change_failed": "`commands/instance/outcome.py`, on the host's report.",
    "provider.created": "`commands/compute_service.py`, when a host registers for the first time.",
    "provider.inventory_set": "`commands/compute_service.py`, when a host opens a session with another inventory.",
    "provider.traits_set": "`commands/compute_service.py`, when a host opens a session with other traits.",
    "provider.claimed": "`commands/instance/schedule.py`, together with `instance.scheduled`; re-checked inside the append.",
    "provider.released": "`commands/instance/outcome.py`, together with what ended the claim.",
    "provider.deleted": "`commands/compute_service.py`, together with `service.deleted`.",
    "service.registered": "`commands/compute_service.py`, when a host opens its first session, or says something else of "
    "itself than before.",
    "service.came_up": "`commands/compute_service.py`, for each session of a host, and when a silent one is heard again.",
    "service.went_down": "`commands/compute_service.py`, for the deadlines manager, when a host was silent for "
    "`service_down_time`.",
    "service.enabled": "`commands/compute_service.py`, on PUT /os-services.",
    "service.disabled": "`commands/compute_service.py`, on PUT /os-services.",
    "service.forced_down": "`commands/compute_service.py`, on PUT /os-services with forced_down.",
    "service.forced_down_lifted": "`commands/compute_service.py`, likewise.",
    "service.deleted": "`commands/compute_service.py`, on DELETE /os-services, where nothing is claimed of the host.",
    "host_aggregate.created": "`commands/host_aggregate.py`, on POST /os-aggregates.",
    "host_aggregate.renamed": "`commands/host_aggregate.py`, on PUT /os-aggregates.",
    "host_aggregate.metadata_set": "`commands/host_aggregate.py`, on set_metadata, and on a PUT that changes the zone; all "
    "there is after it.",
    "host_aggregate.host_added": "`commands/host_aggregate.py`, on add_host.",
    "host_aggregate.host_removed": "`commands/host_aggregate.py`, on remove_host, and when the host's service is deleted.",
    "host_aggregate.deleted": "`commands/host_aggregate.py`, on DELETE /os-aggregates.",
    "host_key.enrolled": "`commands/host_key.py`, when an operator enrolls a host, for the first time or with another key.",
    "host_key.revoked": "`commands/host_key.py`, when an operator revokes a host's key.",
    "quota.limits_set": "`commands/quota.py`, on PUT /os-quota-sets, of a project or of one user in it; only the limits "
    "that change.",
    "quota.limits_reset": "`commands/quota.py`, on DELETE /os-quota-sets.",
    "quota_class.limits_set": "`commands/quota.py`, on PUT /os-quota-class-sets; only the limits that change.",
    "quota.consumed": "`commands/instance/create.py`, together with `instance.create_requested`; or "
    "`commands/server_group.py`, together with `server_group.created`.",
    "quota.released": "`commands/instance/delete.py` or `outcome.py`, together with `instance.deleted`; or "
    "`commands/server_group.py`, together with `server_group.deleted`.",
    "server_group.created": "`commands/server_group.py`, on POST /os-server-groups.",
    "server_group.member_added": "`commands/instance/create.py`, together with `instance.create_requested`, when its "
    "request names the group.",
    "server_group.member_removed": "`commands/instance/delete.py` or `outcome.py`, together with `instance.deleted`.",
    "server_group.deleted": "`commands/server_group.py`, on DELETE /os-server-groups.",
    "flavor.created": "`commands/flavor.py`, on POST /flavors.",
    "flavor.deleted": "`commands/flavor.py`, on DELETE /flavors. Servers keep their own copy.",
    "flavor.described": "`commands/flavor.py`, on PUT /flavors.",
    "flavor.extra_specs_set": "`commands/flavor.py`, on POST, PUT and DELETE of os-extra_specs; all there are after it.",
    "flavor.access_granted": "`commands/flavor.py`, on addTenantAccess.",
    "flavor.access_revoked": "`commands/flavor.py`, on removeTenantAccess.",
    "keypair.created": "`commands/keypair.py`, on POST /os-keypairs.",
    "keypair.deleted": "`commands/keypair.py`, on DELETE /os-keypairs.",
}

# Wire name → what is deliberately not in it.
LEFT_OUT: dict[str, str] = {
    "instance.create_requested": "the password, the user data and the injected files (references only, no digest); "
    "the token; what was chosen and assigned (host, claim, interfaces: `instance.scheduled`); "
    "min_count and max_count, since each server made has its own event.",
    "instance.scheduled": "every host's verdict: only how many each filter left, and the five best candidates.",
    "instance.spawned": "anything about disks and files: the host's business.",
    "instance.stop_requested": "who asked: that is in every record (below).",
    "instance.deleted": "the amounts given back: they are in the same append.",
    "instance.power_state_observed": "why: a hypervisor does not know.",
    "instance.metadata_set": "items that stay as they are.",
    "instance.password_change_requested": "the password: a reference only, no digest.",
    "service.came_up": "heartbeats; they are never recorded.",
    "host_key.enrolled": "the private key: it is on the host, and nowhere else.",
    "keypair.created": "a private key; one that is generated is in the answer and nowhere else.",
    "server_group.member_added": "where the member is: that is in its own stream, and changes.",
    "quota.consumed": "a running total: it is folded.",
}

INTRODUCTION = """\
# Events

Everything the ledger knows is one of these. They are recorded facts, in past participles, and are never changed; until
the first tagged release their forms may still change with a reviewed diff of `tests/history/`, afterwards never.

Made by `python -m tests.papers.events_document` from the classes; edit that, not this file.

**Marks.** *plain*: as it is. *personal*: encrypted from the first record under the key of its subject, the user whose data
it is (named in brackets); destroy the key and the field reads `[erased]`, everywhere and for ever, with nothing else
changed. *sealed*: a reference to a payload in the vault, which is outside the log; neither the value nor a digest of it
is ever in a record, a topic or a process log.

**In every record** besides the event: position (of the whole ledger), stream and version, time (the ledger's clock,
UTC, never running backwards along positions), command id, request id (`x-openstack-request-id`), user and project who
asked, causation (the position of the event that led to the command, where one did), and the ledger's incarnation.

**Reading.** A reader that meets a type it does not know was written by a newer release: it stops there, it never skips.
Old forms are lifted on read (`LIFTS` in `domain/serialization.py`).

**Streams.** `instance:<uuid>`, `provider:<uuid>` (one for a provider tree), `service:<uuid>`, `host_key:<uuid>` (the
service's), `quota:<project>`, `quota_class:<name>`, `flavor:catalog` (one for all flavors, so that ids and names are
unique), `host_aggregate:catalog` (likewise), `keypair:<user>`, `server_group:<uuid>`.
"""

# Of each record on Kafka, in the order of `commands/log/relay.py`.
HEADERS: dict[str, str] = {
    "ce_specversion": "`1.0`",
    "ce_type": "the event's type, as below",
    "ce_source": "`/compute-ledger/` and the ledger's incarnation",
    "ce_id": "the position",
    "ce_time": "when it was recorded",
    "ce_subject": "the stream",
    "content-type": "`application/json`",
    "position": "of the whole ledger; grows along a partition, with holes",
    "version": "of the stream: 1, 2, 3, … without a hole",
    "correlation": "the id of the request",
    "causation": "the position of the event that led to it; empty where none did",
    "prev": "the position of the event before it in its partition; 0 for the first",
}

TOPICS: dict[str, str] = {
    LEDGER: "every event, in the order of positions",
    INSTANCES: "the events of `instance:` streams, in order within each stream",
    ALLOCATIONS: "the events of `provider:` streams, likewise",
}

ON_KAFKA = """\
## On Kafka

A distributed ledger publishes its events on topics, for its own processes and for readers outside. The forms are in
[asyncapi.yaml](asyncapi.yaml).

{topics}

Records are CloudEvents in binary mode. The key is the stream. The value is the record as the store has it: JSON with what
is in every record (above), `event` with the fields that are not personal, and `sealed` with those that are, encrypted, by
whose data they are. Outside the ledger nobody has the keys to these. The headers, all of them text:

{headers}

**Delivery is at least once.** A relay that takes over, one whose publishing failed, or one that was frozen and wakes,
publishes records that are there already. So keep, for each partition and in one transaction with what you make of its
records, the position of the last one you took; 0 before the first. Pass over a record whose position is not greater: you
have had it. Then each event counts once.

**Take a record only right after the one before it**: if its `prev` is not greater than the position of the last one you
took. Positions have holes, so only `prev` tells. A record with a greater `prev` has come without those before it, since
Kafka refused them, or lost them on the way; pass over it too. The relay knows that they were not confirmed: they come next,
in order, and all that you have passed over comes again after them, with the same `prev`. Who keeps to this misses nothing.

If what is missing does not come while newer records do, somebody has cut the topic. The ledger keeps events for ever: have
the topic deleted, and the relay makes it again and fills it from the first event, under the same name, with offsets that
begin at 0. By positions you recognise what you have had.

Order holds within a partition, and a stream stays in its partition as long as nobody changes their number. For another
number set `[kafka] event_partitions` and delete the topic.
"""


def document() -> str:
    parts = [INTRODUCTION, ON_KAFKA.format(topics=topics_table(), headers=headers_table())]
    category = ""
    for name, cls in EVENTS.items():
        if name.partition(".")[0] != category:
            category = name.partition(".")[0]
            parts.append(f"## {category}\n")
        parts.append(_section(name, cls))
    return "\n".join(parts)


def topics_table() -> str:
    lines = ["| topic | holds | partitions |", "| --- | --- | --- |"]
    for topic, said in TOPICS.items():
        lines.append(f"| `{topic}` | {said} | {layout(topic, KafkaOptions(bootstrap='')).partitions} |")
    return "\n".join(lines)


def headers_table() -> str:
    return "\n".join(["| header | |", "| --- | --- |", *(f"| `{name}` | {said} |" for name, said in HEADERS.items())])


def _section(name: str, cls: type) -> str:
    lines = [f"### {name}\n"]
    about = inspect.getdoc(cls) or ""
    if about and not about.startswith(f"{cls.__name__}("):
        lines.append(" ".join(about.split()) + "\n")
    lines.append(f"Recorded by {RECORDED[name]}\n")
    if name in LEFT_OUT:
        lines.append(f"Deliberately not in it: {LEFT_OUT[name]}\n")
    lines += ["| field | type | mark | default |", "| --- | --- | --- | --- |"]
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        hint, mark = hints[field.name], "plain"
        if get_origin(hint) is Annotated:
            hint, marker = get_args(hint)[:2]
            if isinstance(marker, Personal):
                mark = f"personal ({marker.subject})"
            elif isinstance(marker, Sealed):
                mark = "sealed"
        lines.append(f"| {field.name} | {_type(hint)} | {mark} | {_default(field)} |")
    return "\n".join(lines) + "\n"


def _type(hint: object) -> str:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    for module in ("typing.", "collections.abc.", "domain.instance.events.", "domain.flavor.", "domain.identifiers."):
        text = text.replace(module, "")
    return text.replace("domain.resources.", "").replace("uuid.", "").replace(" | ", " or ").replace("NoneType", "None")


def _default(field: object) -> str:
    default, factory = field.default, field.default_factory  # type: ignore[attr-defined]
    if default is not MISSING:
        return f"`{default!r}`"
    return "" if factory is MISSING else f"`{factory()!r}`"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
