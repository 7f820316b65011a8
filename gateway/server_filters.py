"""What a server list asks for, as SQL: filters, sort, page. Source: Nova API 2.1, GET /servers, query parameters.

Filters that only administrators may use are dropped for others, as Nova does. Patterns are RE2 expressions: a name filter
cannot be made to run for ever.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import re2

from domain.instance.status import states_of
from gateway.faults import Fault
from gateway.microversions import Version

EQUAL = {  # query parameter → column, for everyone
    "image": "image_id",
    "flavor": "flavor_id",
    "reservation_id": "reservation_id",
    "uuid": "id",
}
EQUAL_ADMIN = {
    "host": "host",
    "node": "node",
    "project_id": "project_id",
    "tenant_id": "project_id",
}
EQUAL_FROM_2_83 = {  # administrators at any version, all from 2.83
    "availability_zone": "zone",
    "key_name": "key_name",
    "power_state": "power_state",
    "task_state": "task_state",
    "vm_state": "vm_state",
    "user_id": "user_id",
    "created_at": "created_at",
    "launched_at": "launched_at",
    "terminated_at": "terminated_at",
}
PATTERN = {"name": "name", "ip": "addresses", "ip6": "addresses"}
SORTABLE = {
    "access_ip_v4": "sequence",
    "access_ip_v6": "sequence",
    "auto_disk_config": "sequence",
    "availability_zone": "zone",
    "config_drive": "config_drive",
    "created_at": "sequence",
    "display_description": "sequence",
    "display_name": "name",
    "host": "host",
    "hostname": "hostname",
    "image_ref": "image_id",
    "instance_type_id": "flavor_id",
    "kernel_id": "sequence",
    "key_name": "key_name",
    "launch_index": "sequence",
    "launched_at": "launched_at",
    "locked": "sequence",
    "locked_by": "sequence",
    "node": "node",
    "power_state": "power_state",
    "progress": "sequence",
    "project_id": "project_id",
    "ramdisk_id": "sequence",
    "root_device_name": "sequence",
    "task_state": "task_state",
    "terminated_at": "terminated_at",
    "updated_at": "updated_at",
    "user_id": "user_id",
    "uuid": "id",
    "vm_state": "vm_state",
}
_TRUE = ("1", "t", "true", "on", "y", "yes")


@dataclass(slots=True)
class Selection:
    """WHERE, ORDER BY and LIMIT of one page."""

    conditions: list[str] = field(default_factory=list)
    parameters: list[object] = field(default_factory=list)
    order: list[tuple[str, bool]] = field(default_factory=list)  # column, descending
    limit: int = 1000

    def where(self, condition: str, *parameters: object) -> None:
        self.conditions.append(condition)
        self.parameters.extend(parameters)

    def sql(self, expression: str) -> str:
        where = " AND ".join(self.conditions) or "1"
        order = ", ".join(f"{column} {'DESC' if down else 'ASC'}" for column, down in self.order)
        return f"SELECT {expression} FROM servers WHERE {where} ORDER BY {order} LIMIT {self.limit}"


def truth(text: str | None) -> bool:
    return text is not None and text.strip().lower() in _TRUE


def install(db: sqlite3.Connection) -> None:
    """Give a connection the REGEXP that patterns need."""
    db.create_function("regexp", 2, _matches, deterministic=True)


def select(
    query: Mapping[str, list[str]],
    version: Version,
    *,
    project_id: str,
    admin: bool,
    all_projects: bool,
    max_limit: int,
) -> Selection:
    """Turn a query into a selection, before its marker.

    Raises:
        Fault: 400, a value that makes no sense.
    """
    one = {name: values[-1] for name, values in query.items()}
    selection = Selection(limit=_limit(one.get("limit"), max_limit))
    if not all_projects:
        selection.where("project_id = ?", project_id)
    statuses = query.get("status", [])
    _deleted(one, statuses, selection, admin=admin)
    for table, allowed in ((EQUAL, True), (EQUAL_ADMIN, admin), (EQUAL_FROM_2_83, admin or version >= Version(2, 83))):
        for name, column in table.items():
            if allowed and name in one and not (column == "project_id" and not all_projects):
                selection.where(f"{column} = ?", one[name].rpartition("/")[2] if name in EQUAL else one[name])
    for name, column in PATTERN.items():
        if name in one and (name != "ip6" or admin or version >= Version(2, 5)):
            selection.where(f"{column} REGEXP ?", _pattern(name, one[name]))
    if "hostname" in one and (admin or version >= Version(2, 90)):
        selection.where("hostname = ?", one["hostname"])
    if "config_drive" in one and (admin or version >= Version(2, 83)):
        selection.where("config_drive = ?", int(truth(one["config_drive"])))
    if version >= Version(2, 73) and "locked" in one and truth(one["locked"]):
        selection.where("0")  # nothing can be locked yet
    if version >= Version(2, 26):
        _tags(one, selection)
    _status(statuses, selection, version)
    _changes(one, selection, version)
    _sort(query, selection, admin=admin)
    return selection


def after_marker(selection: Selection, marker: str, row: Any) -> None:
    """Begin after the marker's row; it may have been deleted meanwhile. `row` holds the sort columns.

    Raises:
        Fault: 400, there is no such server.
    """
    if row is None:
        raise Fault(400, f"marker [{marker}] not found")
    alternatives: list[str] = []
    parameters: list[object] = []
    for index, (column, down) in enumerate(selection.order):
        equal = [f"{c} IS ?" for c, _ in selection.order[:index]]
        value = row[index]
        if value is None:  # NULL sorts first
            beyond = f"{column} IS NOT NULL" if not down else "0"
            values: list[object] = []
        else:
            beyond = f"({column} < ? OR {column} IS NULL)" if down else f"{column} > ?"
            values = [value]
        alternatives.append("(" + " AND ".join([*equal, beyond]) + ")")
        parameters.extend([*row[:index], *values])
    selection.where("(" + " OR ".join(alternatives) + ")", *parameters)


def _limit(text: str | None, max_limit: int) -> int:
    if text is None or not text.isdigit():
        return max_limit
    asked = int(text[:12])
    return min(asked, max_limit) if asked else max_limit


def _deleted(one: dict[str, str], statuses: list[str], selection: Selection, *, admin: bool) -> None:
    if "DELETED" in (s.upper() for s in statuses):
        if not admin:  # Nova shows deleted servers to administrators only
            selection.where("0")
        selection.where("deleted = 1")
    elif "changes-since" not in one or "deleted" in one:  # what was deleted since is a change too
        selection.where("deleted = ?", int(truth(one.get("deleted")) and admin))


def _status(statuses: list[str], selection: Selection, version: Version) -> None:
    if not statuses:
        return
    wanted = []
    for status in statuses:
        if states_of(status) is not None:
            wanted.append(status.upper())
        elif version >= Version(2, 38):
            raise Fault(400, "Invalid status value")
    selection.where(f"status IN ({','.join('?' * len(wanted))})" if wanted else "0", *wanted)


def _changes(one: dict[str, str], selection: Selection, version: Version) -> None:
    for name, comparison in (("changes-since", ">="), ("changes-before", "<=")):
        if name in one and (name != "changes-before" or version >= Version(2, 66)):
            selection.where(f"updated_at {comparison} ?", instant(name, one[name]))


def instant(name: str, text: str) -> str:
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):  # an offset may lead out of the calendar
        raise Fault(
            400, f"Invalid input for query parameters {name}. Value: {text[:100]}. {text[:100]!r} is not a 'date-time'"
        ) from None
    return time.isoformat(timespec="microseconds")[:26]


def _tags(one: dict[str, str], selection: Selection) -> None:
    """Of the tags named, how many a server has: all or some of them; `not-` turns it round."""
    had = "(SELECT COUNT(DISTINCT value) FROM json_each(tags) WHERE value IN (SELECT value FROM json_each(?)))"
    for name, all_of_them, negated in (
        ("tags", True, ""),
        ("tags-any", False, ""),
        ("not-tags", True, "NOT "),
        ("not-tags-any", False, "NOT "),
    ):
        if name in one:
            tags = sorted(set(one[name].split(",")))
            selection.where(f"{negated}{had} >= ?", orjson.dumps(tags).decode(), len(tags) if all_of_them else 1)


def _sort(query: Mapping[str, list[str]], selection: Selection, *, admin: bool) -> None:
    keys = query.get("sort_key") or ["created_at"]
    directions = query.get("sort_dir") or []
    for index, key in enumerate(keys):
        column = SORTABLE.get(key)
        if column is None or (key in ("host", "node") and not admin):
            if column is not None:
                raise Fault(403, f"Only administrators can sort servers by {key}")
            raise Fault(400, f"Sort key supplied is invalid: {key[:100]}")
        selection.order.append((column, (directions[index] if index < len(directions) else "desc") != "asc"))
    if selection.order[-1][0] != "sequence":
        selection.order.append(("sequence", True))


def _pattern(name: str, text: str) -> str:
    try:
        re2.compile(text)
    except re2.error:
        raise Fault(400, f"Invalid filter: {name} is not a regular expression.") from None
    return text


def _matches(pattern: str, value: str | None) -> bool:
    return value is not None and re2.search(pattern, value) is not None


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
