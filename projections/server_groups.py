"""Server groups with their members, in the order in which they came."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from domain.identifiers import category_of
from domain.recorded import RecordedEvent
from domain.server_group import (
    ServerGroupCreated,
    ServerGroupDeleted,
    ServerGroupMemberAdded,
    ServerGroupMemberRemoved,
)


class ServerGroups:
    name = "server_groups"
    form = 1
    tables: Sequence[str] = ("server_groups", "server_group_members")

    def create(self, tables: dict[str, str]) -> list[str]:
        groups, members = tables["server_groups"], tables["server_group_members"]
        return [
            f"CREATE TABLE {groups} (sequence INTEGER PRIMARY KEY, group_id TEXT NOT NULL UNIQUE, "
            "project_id TEXT NOT NULL, user_id TEXT NOT NULL, name TEXT NOT NULL, policy TEXT NOT NULL, "
            "max_server_per_host INTEGER)",
            f"CREATE INDEX {groups}_project ON {groups} (project_id)",
            f"CREATE TABLE {members} (sequence INTEGER PRIMARY KEY, group_id TEXT NOT NULL, instance_id TEXT NOT NULL)",
            f"CREATE INDEX {members}_group ON {members} (group_id)",
            f"CREATE INDEX {members}_instance ON {members} (instance_id)",
        ]

    def forget(self) -> None:
        """Nothing is remembered."""

    def apply(self, db: sqlite3.Connection, tables: dict[str, str], records: Sequence[RecordedEvent]) -> None:
        groups, members = tables["server_groups"], tables["server_group_members"]
        for record in records:
            if category_of(record.stream) != "server_group":
                continue
            match record.event:
                case ServerGroupCreated() as made:
                    db.execute(
                        f"INSERT INTO {groups} VALUES (?,?,?,?,?,?,?)",
                        (
                            record.position,
                            str(made.server_group_id),
                            made.project_id,
                            made.user_id,
                            made.name,
                            made.policy,
                            made.max_server_per_host,
                        ),
                    )
                case ServerGroupMemberAdded() as joined:
                    db.execute(
                        f"INSERT INTO {members} VALUES (?,?,?)",
                        (record.position, str(joined.server_group_id), str(joined.instance_id)),
                    )
                case ServerGroupMemberRemoved() as left:
                    db.execute(
                        f"DELETE FROM {members} WHERE group_id = ? AND instance_id = ?",
                        (str(left.server_group_id), str(left.instance_id)),
                    )
                case ServerGroupDeleted() as gone:
                    for table in (groups, members):
                        db.execute(f"DELETE FROM {table} WHERE group_id = ?", (str(gone.server_group_id),))
