"""Every operation of Nova's Compute API, as a table: `data/compute_api_surface.json`, made from Nova 34.0.0."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import orjson

from gateway.microversions import Version

OperationKey = tuple[str, str] | tuple[str, str, str]  # method, path, and the action of a path that takes actions

REMOVED = "removed_410"
ALIAS, ALIASED = "/os-volumes_boot", "/servers"  # the same operations under a second name
ABOVE = "(root) "  # above the version prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str  # "/servers/{server_id}/action"
    action: str | None  # "os-start"
    oldest: Version
    newest: Version | None  # None: still there
    kind: str | None  # removed_410, proxy_404_when_new, legacy_form_404_when_new, alias_404_when_new
    rule: str | None  # of the policy; None: any valid token will do

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + (f" ({self.action})" if self.action else "")

    @property
    def key(self) -> OperationKey:
        """What its handler and schemas are filed under; an alias shares those of the operation it stands for."""
        path = ALIASED + self.path.removeprefix(ALIAS) if self.path.startswith(ALIAS) else self.path
        return (self.method, path, self.action) if self.action else (self.method, path)

    @property
    def tells_versions(self) -> bool:
        """Whether it answers which versions there are: `versions.py`'s business, without a token or a microversion."""
        return self.path.startswith(ABOVE) or self.path in ("/", "/versions/{version_id}")

    def serves(self, version: Version) -> bool:
        """A removed operation answers 410 whatever the version."""
        return self.kind == REMOVED or (self.oldest <= version and (self.newest is None or version <= self.newest))


def operations_and_rules() -> tuple[list[Operation], dict[str, str]]:
    """The table; and for each policy rule the least role of its default."""
    table = orjson.loads((files("gateway") / "data" / "compute_api_surface.json").read_bytes())
    operations = [
        Operation(
            method=method,
            path=path,
            action=action,
            oldest=_version(oldest),
            newest=None if newest is None else _version(newest),
            kind=kind,
            rule=rule,
        )
        for method, path, action, oldest, newest, kind, rule in table["operations"]
    ]
    return operations, table["rules"]


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return Version(int(major), int(minor))
