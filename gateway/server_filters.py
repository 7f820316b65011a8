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
from gateway.microversions import V, Version

EQUAL = "{column} = ?"
MATCHES = "CAST({column} AS TEXT) REGEXP ?"
OF_TIME = "replace({column}, 'T', ' ') REGEXP replace(?, 'T', ' ')"
ANY_MATCHES = "EXISTS (SELECT 1 FROM json_each({column}) WHERE value REGEXP ?)"
TRUE = "{column} = CAST(? AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Filter:
    column: str
    form: str = MATCHES
    since: Version | None = None  # for all; none: for administrators

    @property
    def condition(self) -> str:
        return self.form.format(column=self.column)


FILTERS: Mapping[str, Filter] = {
    "access_ip_v4": Filter("access_ip_v4"),
    "access_ip_v6": Filter("access_ip_v6"),
    "auto_disk_config": Filter("auto_disk_config", TRUE),
    "availability_zone": Filter("zone", since=V(2, 83)),
    "config_drive": Filter("config_drive", TRUE, since=V(2, 83)),
    "created_at": Filter("created_at", OF_TIME, since=V(2, 83)),
    "display_description": Filter("display_description"),
    "display_name": Filter("name"),
    "flavor": Filter("flavor_id", EQUAL, since=V(2, 1)),
    "host": Filter("host", EQUAL),
    "hostname": Filter("hostname", since=V(2, 90)),
    "image": Filter("image_id", EQUAL, since=V(2, 1)),
    "image_ref": Filter("image_id", EQUAL),
    "ip": Filter("ipv4", ANY_MATCHES, since=V(2, 1)),
    "ip6": Filter("ipv6", ANY_MATCHES, since=V(2, 5)),
    "kernel_id": Filter("kernel_id"),
    "key_name": Filter("key_name", since=V(2, 83)),
    "launch_index": Filter("launch_index"),
    "launched_at": Filter("launched_at", OF_TIME, since=V(2, 83)),
    "locked_by": Filter("locked_by"),
    "name": Filter("name", since=V(2, 1)),
    "node": Filter("host"),  # a host of ours has one node, of its name
    "power_state": Filter("power_state", since=V(2, 83)),
    "progress": Filter("0", since=V(2, 83)),
    "project_id": Filter("project_id", EQUAL),
    "ramdisk_id": Filter("ramdisk_id"),
    "reservation_id": Filter("reservation_id", since=V(2, 1)),
    "root_device_name": Filter("root_device_name"),
    "task_state": Filter("task_state", EQUAL, since=V(2, 83)),
    "tenant_id": Filter("project_id", EQUAL),
    "terminated_at": Filter("terminated_at", OF_TIME, since=V(2, 83)),
    "user_id": Filter("user_id", EQUAL, since=V(2, 83)),
    "uuid": Filter("id", EQUAL),
    "vm_state": Filter("vm_state", EQUAL, since=V(2, 83)),
}
OF_ONE_PROJECT = ("project_id", "tenant_id")  # beside all_tenants only
# Other tables of Nova's: its list refuses them where it does not drop them.
NOT_FILTERS = (
    "block_device_mapping", "info_cache", "metadata", "pci_devices", "security_groups", "services", "system_metadata",
)  # fmt: skip
SORTABLE: Mapping[str, str | None] = {  # none: all are the same in it
    "access_ip_v4": "access_ip_v4",
    "access_ip_v6": "access_ip_v6",
    "auto_disk_config": "auto_disk_config",
    "availability_zone": "zone",
    "config_drive": "config_drive",
    "created_at": "sequence",
    "display_description": "display_description",
    "display_name": "name",
    "host": "host",
    "hostname": "hostname",
    "image_ref": "image_id",
    "instance_type_id": "flavor_id",
    "kernel_id": "kernel_id",
    "key_name": "key_name",
    "launch_index": "launch_index",
    "launched_at": "launched_at",
    "locked": "is_locked",
    "locked_by": "locked_by",
    "node": "host",
    "power_state": "power_state",
    "progress": None,
    "project_id": "project_id",
    "ramdisk_id": "ramdisk_id",
    "root_device_name": None,
    "task_state": "task_state",
    "terminated_at": "terminated_at",
    "updated_at": "updated_at",
    "user_id": "user_id",
    "uuid": "id",
    "vm_state": "vm_state",
}
SORTS_FOR_ADMINISTRATORS = ("host", "node")
_TRUE = ("1", "t", "true", "on", "y", "yes")
_FALSE = ("0", "f", "false", "off", "n", "no")


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


def all_projects_asked(query: Mapping[str, list[str]]) -> bool:
    """Also by all_tenants without a value, or with one that makes no sense."""
    return "all_tenants" in query and query["all_tenants"][-1].strip().lower() not in _FALSE


def select(
    query: Mapping[str, list[str]],
    version: Version,
    *,
    project_id: str,
    admin: bool,
    all_filters: bool,
    all_projects: bool,
    max_limit: int,
) -> Selection:
    """Turn a query into a selection, before its marker. `all_filters`: whether the caller may filter by anything.

    Raises:
        Fault: 400, a value that makes no sense; 403, for administrators.
    """
    one = {name: values[-1] for name, values in query.items()}
    if all_filters and (refused := [name for name in one if name in NOT_FILTERS or name.startswith("_")]):
        raise Fault(400, f"Invalid filter field: {refused[0][:100]}.")
    selection = Selection(limit=_limit(one.get("limit"), max_limit))
    if not all_projects:
        selection.where("project_id = ?", project_id)
    statuses = query.get("status", [])
    _deleted(one, statuses, selection, admin=admin, all_filters=all_filters)
    for name, by in FILTERS.items():
        allowed = all_filters or (by.since is not None and by.since <= version)
        if name in one and allowed and (all_projects or name not in OF_ONE_PROJECT):
            selection.where(by.condition, _sought(name, by, one[name]))
    if version >= V(2, 73) and "locked" in one:
        selection.where("is_locked = ?", _strictly("locked", one["locked"]))
    if version >= V(2, 26):
        _tags(one, selection)
    _status(statuses, selection, version)
    _changes(one, selection, version)
    _sort(query, selection, version, admin=admin)
    return selection


def _sought(name: str, by: Filter, text: str) -> object:
    if by.form == TRUE:
        return int(truth(text))
    return text if by.form == EQUAL else _pattern(name, text)


def _strictly(name: str, text: str) -> int:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        known = ", ".join(f"'{w}'" for w in sorted((*_TRUE, *_FALSE)))
        raise Fault(400, f"Unrecognized value '{text[:100]}', acceptable values are: {known}")
    return int(word in _TRUE)


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
    return min(int(text[:12]), max_limit)


def _deleted(one: dict[str, str], statuses: list[str], selection: Selection, *, admin: bool, all_filters: bool) -> None:
    """What is gone is shown to administrators who ask for it, and to all among what has changed."""
    if {s.upper() for s in statuses if states_of(s) is not None} == {"DELETED"}:
        if not admin:
            raise Fault(403, "Only administrators may list deleted instances")
        selection.where("deleted = 1")
    elif "deleted" in one and all_filters:
        selection.where("deleted = ?", int(truth(one["deleted"])))
    elif "changes-since" not in one and "changes-before" not in one:
        selection.where("deleted = 0")


def _status(statuses: list[str], selection: Selection, version: Version) -> None:
    """By what is shown; a word that is no status finds nothing, and is refused from 2.38 where no other is asked for."""
    if not statuses:
        return
    wanted = [status.upper() for status in statuses if states_of(status) is not None]
    if not wanted and version >= V(2, 38):
        raise Fault(400, "Invalid status value")
    selection.where(f"status IN ({','.join('?' * len(wanted))})" if wanted else "0", *wanted)


def _changes(one: dict[str, str], selection: Selection, version: Version) -> None:
    bounds = {}
    for name, comparison, since in (("changes-since", ">=", V(2, 1)), ("changes-before", "<=", V(2, 66))):
        if name in one and version >= since:
            bounds[name] = instant(name, one[name])
            selection.where(f"updated_at {comparison} ?", bounds[name])
    if len(bounds) == 2 and bounds["changes-since"] > bounds["changes-before"]:
        raise Fault(400, "The value of changes-since must be less than or equal to changes-before.")


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


def _sort(query: Mapping[str, list[str]], selection: Selection, version: Version, *, admin: bool) -> None:
    """By the keys asked for, then by age; where directions are wanting, the first one goes for all. A key that Nova ignores
    takes its direction along."""
    keys, directions = list(query.get("sort_key", [])), [d.strip() for d in query.get("sort_dir", [])]
    for key in keys[:]:
        if key not in SORTABLE or (key == "locked" and version < V(2, 73)):
            del directions[keys.index(key) : keys.index(key) + 1]
            keys.remove(key)
        elif key in SORTS_FOR_ADMINISTRATORS and not admin:
            raise Fault(403, f"Only administrators can sort servers by {key}")
    if unknown := [d for d in directions if d not in ("asc", "desc")]:
        raise Fault(400, f"Unknown sort direction, must be 'desc' or 'asc': {unknown[0][:100]}")
    if len(directions) > max(len(keys), 1):
        raise Fault(400, "Sort direction size exceeds sort key size")
    first = directions[0] if directions else "desc"
    columns = [SORTABLE[key] for key in keys]
    for column, direction in zip(columns, directions + [first] * len(columns), strict=False):
        if column is not None:
            selection.order.append((column, direction == "desc"))
    if "sequence" not in columns:
        selection.order.append(("sequence", first == "desc"))


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
