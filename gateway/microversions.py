"""Compute API microversions: what a client asked for, what it is told, and how things grow from one to the next.

Views are written in their newest shape; `Steps` says how to take back what each version brought. Schemas and anything
else that has one form from a version on are a `Since`. Handlers compare: `request.version >= V(2, 47)`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from gateway.faults import Fault

T = TypeVar("T")

HEADER = "openstack-api-version"
OLD_HEADER = "x-openstack-nova-api-version"
SERVICE_TYPE = "compute"


class Version(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


V = Version

OLDEST = V(2, 1)
NEWEST = V(2, 104)

_FORM = re.compile(r"([1-9][0-9]{0,5})\.([1-9][0-9]{0,5}|0)")


def negotiate(headers: Mapping[str, str]) -> Version:
    """The version that a request is to be answered in; OLDEST when its headers name none.

    Args:
        headers: names in lower case; one that was sent several times is joined by commas.

    Raises:
        Fault: 400 for a version that is not of the form X.Y (without version headers), 406 for one that is not served
            (with the refused version in its headers, as Nova does).
    """
    asked = _asked(headers)
    if asked is None:
        return OLDEST
    if asked == "latest":
        return NEWEST
    parts = _FORM.fullmatch(asked)
    if parts is None:
        shown = asked[:100]
        raise Fault(400, f"API Version String {shown} is of invalid format. Must be of format MajorNum.MinorNum.")
    version = V(int(parts[1]), int(parts[2]))
    if not OLDEST <= version <= NEWEST:
        message = f"Version {version} is not supported by the API. Minimum is {OLDEST} and maximum is {NEWEST}."
        raise Fault(406, message, headers=response_headers(version))
    return version


def _asked(headers: Mapping[str, str]) -> str | None:
    standard = headers.get(HEADER)
    if standard is not None:
        for part in reversed(standard.split(",")):
            words = part.split(None, 1)
            if len(words) == 2 and words[0].lower() == SERVICE_TYPE:
                return words[1].strip()
    old = headers.get(OLD_HEADER)
    return None if old is None else old.rpartition(",")[2].strip()


def response_headers(version: Version) -> list[tuple[bytes, bytes]]:
    """Both version headers, and Vary with both names: on every answer made in that version."""
    found = _RESPONSE_HEADERS.get(version)
    if found is None:
        number = str(version).encode()
        found = [
            (b"openstack-api-version", b"compute " + number),
            (b"x-openstack-nova-api-version", number),
            (b"vary", b"OpenStack-API-Version"),
            (b"vary", b"X-OpenStack-Nova-API-Version"),
        ]
        if OLDEST <= version <= NEWEST:
            _RESPONSE_HEADERS[version] = found
    return found


_RESPONSE_HEADERS: dict[Version, list[tuple[bytes, bytes]]] = {}


class Since(Generic[T]):
    """Something with one form from each of some versions on; None below the first."""

    def __init__(self, forms: Mapping[Version, T]) -> None:
        self.versions: list[Version] = sorted(forms)
        self.forms: list[T] = [forms[version] for version in self.versions]

    def at(self, version: Version) -> T | None:
        index = bisect_right(self.versions, version)
        return self.forms[index - 1] if index else None


Row = dict[str, Any]
Undo = Callable[[Row], None]


class Steps:
    """What each version brought to a view, as how to take it back from a row in the newest shape.

    SERVER = Steps((V(2, 9), without("locked")), (V(2, 47), flavor_as_link))
    """

    def __init__(self, *steps: tuple[Version, Undo]) -> None:
        self._steps = sorted(steps, key=lambda step: step[0], reverse=True)
        self._undos: dict[Version, tuple[Undo, ...]] = {}

    def lower(self, row: Row, version: Version) -> Row:
        """The row, changed in place to what a client of that version knows."""
        for undo in self.undos(version):
            undo(row)
        return row

    def undos(self, version: Version) -> Sequence[Undo]:
        """Newest first; worth asking once for a list of rows."""
        found = self._undos.get(version)
        if found is None:
            found = self._undos[version] = tuple(undo for since, undo in self._steps if version < since)
        return found


def without(*keys: str) -> Undo:
    def undo(row: Row) -> None:
        for key in keys:
            row.pop(key, None)

    return undo
