"""Whether plain data that others wrote has the form of a class: each value of its field's type, and of sane size.

`domain/serialization.py` reads back what this code wrote, and looks no further. A report comes from another machine: a
text where a number is due would pass there, be recorded, and stop whoever counts with it.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

LONGEST_TEXT = 65_536
MOST_ENTRIES = 4096
LARGEST_NUMBER = 2**53  # what JSON, SQLite and a float all hold exactly

Check = Callable[[Any, str], None]


def require_form(cls: type, plain: Any) -> None:
    """Raises:
    ValueError: names the field that is not as its class has it.
    """
    _check_of(cls)(plain, cls.__name__)


@cache
def _check_of(hint: Any) -> Check:
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        [inner] = [_check_of(a) for a in args if a is not type(None)]
        return lambda value, name: None if value is None else inner(value, name)
    if origin is tuple:
        return _each(list, _check_of(args[0]), lambda value: value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _each(dict, _check_of(args[1]), lambda value: value.values())
    if isinstance(hint, type) and is_dataclass(hint):
        return _fields(hint)
    if isinstance(hint, type) and issubclass(hint, UUID | Enum | str):
        return _simple("a text", lambda value: isinstance(value, str) and len(value) <= LONGEST_TEXT)
    return _simple(*_NUMBERS[hint])


def _fields(cls: type) -> Check:
    hints = get_type_hints(cls, include_extras=True)
    checks = [(f.name, _check_of(hints[f.name])) for f in fields(cls)]

    def check(value: Any, name: str) -> None:
        if type(value) is not dict:
            raise ValueError(f"{name} is not an object")
        for field, inner in checks:
            if field in value:  # one that is missing is for its decoder to say
                inner(value[field], field)

    return check


def _each(kind: type[list[Any] | dict[Any, Any]], inner: Check, items: Callable[[Any], Any]) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, kind) or len(value) > MOST_ENTRIES:
            raise ValueError(f"{name} is not a {kind.__name__} of at most {MOST_ENTRIES}")
        for item in items(value):
            inner(item, name)

    return check


def _simple(what: str, holds: Callable[[Any], bool]) -> Check:
    def check(value: Any, name: str) -> None:
        if not holds(value):
            raise ValueError(f"{name} is not {what} of sane size")

    return check


_NUMBERS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: type(value) is bool),
    int: ("a whole number", lambda value: type(value) is int and abs(value) <= LARGEST_NUMBER),
    float: (
        "a number",
        lambda value: type(value) in (int, float) and math.isfinite(value) and abs(value) <= LARGEST_NUMBER,
    ),
}


def _bare(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        else:
            return hint
