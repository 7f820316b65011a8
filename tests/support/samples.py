"""A value for every field of a recorded class, from its type alone: the same one each time, or any one at all.

So that no field of no event can be left out of a test.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID, uuid5

from hypothesis import strategies as st

_NAMES = UUID("00000000-0000-0000-0000-0000000c0de5")


def sample(cls: type) -> Any:
    """An object of a dataclass with every field filled; always the same one."""
    return _sample(cls, cls.__name__)


def _sample(hint: Any, name: str) -> Any:
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _sample(next(a for a in args if a is not type(None)), name)
    if origin is Literal:
        return args[0]
    if origin is tuple:
        return (_sample(args[0], name),)
    if origin is frozenset:
        return frozenset({_sample(args[0], name)})
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_sample(args[0], f"{name} key"): _sample(args[1], f"{name} value")}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{f.name: _sample(hints[f.name], f.name) for f in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return _SIMPLE[hint](name)


_SIMPLE: dict[Any, Any] = {
    str: lambda name: f"some {name}",
    int: lambda name: len(name),
    float: lambda name: len(name) + 0.5,
    bool: lambda name: True,
    UUID: lambda name: uuid5(_NAMES, name),
    datetime: lambda name: datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
}


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, within what JSON can hold."""
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if a is type(None) else anything(a) for a in args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(anything(args[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(anything(args[0]), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(anything(args[0]), anything(args[1]), max_size=2)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{f.name: anything(hints[f.name]) for f in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return _ANY[hint]


_ANY: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
    bool: st.booleans(),
    UUID: st.uuids(),
    datetime: st.datetimes(timezones=st.just(UTC)),
}


def _bare(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        else:
            return hint
