"""Where the members of server groups are, for one round of choices: as they stand, and as chosen in this round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commands.server_group import group_of, hosts_of, rule_for
from domain.identifiers import HostName, InstanceId, ServerGroupId, StreamId, instance_stream, server_group_stream
from domain.instance.state import Instance
from domain.scheduling.request_spec import GroupRule
from domain.server_group import ServerGroup


class GroupMembers:
    def __init__(self, load: Callable[[StreamId], Any]) -> None:
        """`load` gives a stream's state."""
        self._load = load
        self._groups: dict[ServerGroupId, ServerGroup | None] = {}
        self._hosts: dict[ServerGroupId, dict[InstanceId, HostName]] = {}

    def rule(self, instance: Instance) -> GroupRule | None:
        """What its group asks of a host for this one; None where nothing binds it."""
        group = group_of(instance, self._group)
        return None if group is None else rule_for(instance, group, self._hosts[group.server_group_id])

    def place(self, instance: Instance, host: HostName) -> None:
        """Count a choice that is not recorded yet, so that the next of the round sees it."""
        group = group_of(instance, self._group)
        if group is not None:
            self._hosts[group.server_group_id][instance.id] = host

    def _group(self, group_id: ServerGroupId) -> ServerGroup | None:
        if group_id not in self._groups:
            group = self._groups[group_id] = self._load(server_group_stream(group_id))
            if group is not None:
                self._hosts[group_id] = hosts_of(group, lambda member: self._load(instance_stream(member)))
        return self._groups[group_id]
