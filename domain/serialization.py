"""Wire name ↔ event class ↔ plain dict. Own names, own mapper: a class may be renamed or moved, history may not.

`encode_event` splits an event into what may be shown and what is personal (by subject); `decode_event` puts it together
again, with the personal part missing once its key is destroyed. Old forms are lifted on read (`LIFTS`). States (for
snapshots and views), orders and reports go through the same mapper. Compiled once per class: this is a hot path.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from domain.compute_service import SERVICE_EVENTS
from domain.flavor import FLAVOR_EVENTS
from domain.host_aggregate import HOST_AGGREGATE_EVENTS
from domain.host_key import HOST_KEY_EVENTS
from domain.instance.events import INSTANCE_EVENTS
from domain.keypair import KEYPAIR_EVENTS
from domain.marks import ERASED, Personal
from domain.quota import QUOTA_CLASS_EVENTS, QUOTA_EVENTS
from domain.resource_provider import PROVIDER_EVENTS
from domain.server_group import SERVER_GROUP_EVENTS

T = TypeVar("T")
R = TypeVar("R")
Plain = dict[str, Any]
Convert = Callable[[Any], Any] | None  # none: the value is plain as it is

EVENTS: Mapping[str, type] = {
    **INSTANCE_EVENTS,
    **PROVIDER_EVENTS,
    **SERVICE_EVENTS,
    **HOST_KEY_EVENTS,
    **HOST_AGGREGATE_EVENTS,
    **QUOTA_EVENTS,
    **QUOTA_CLASS_EVENTS,
    **FLAVOR_EVENTS,
    **KEYPAIR_EVENTS,
    **SERVER_GROUP_EVENTS,
}
WIRE_NAMES: Mapping[type, str] = {cls: name for name, cls in EVENTS.items()}

# Old wire name → what makes its plain dict into a newer form's. Applied until the name is in EVENTS.
LIFTS: dict[str, Callable[[Plain], tuple[str, Plain]]] = {}


class UnknownEventType(Exception):
    """The record was written by a newer release than this reader; it must stop here, not skip."""

    def __init__(self, wire_name: str) -> None:
        super().__init__(f"event type {wire_name!r} is not known to this release")
        self.wire_name = wire_name


def encode_event(event: Any) -> tuple[str, Plain, dict[str, Plain]]:
    """The wire name, the plain fields, and the personal fields by subject."""
    cls = type(event)
    plain: Plain = _encoder(cls)(event)
    personal: dict[str, Plain] = {}
    for name, subject_field in _personal_fields(cls):
        personal.setdefault(getattr(event, subject_field), {})[name] = plain.pop(name)
    return WIRE_NAMES[cls], plain, personal


def decode_event(wire_name: str, plain: Plain, personal: Mapping[str, Plain | None]) -> Any:
    """The event again. A subject that maps to None is erased: its fields read as erased.

    Raises:
        UnknownEventType: written by a newer release.
    """
    while wire_name not in EVENTS:
        if wire_name not in LIFTS:
            raise UnknownEventType(wire_name)
        wire_name, plain = LIFTS[wire_name](plain)
    cls = EVENTS[wire_name]
    erased = False
    for fields_of_subject in personal.values():
        if fields_of_subject is None:
            erased = True
        else:
            plain = {**plain, **fields_of_subject}
    if erased:
        plain = {**{n: _erased_value(cls, n) for n, _ in _personal_fields(cls)}, **plain}
    return _decoder(cls)(plain)


def to_plain(value: Any) -> Plain:
    """A dataclass as a plain dict, personal fields included: only for what never leaves its own confinement."""
    plain: Plain = _encoder(type(value))(value)
    return plain


def to_plain_but(value: Any, left_out: str) -> Plain:
    """As `to_plain`, without one field: for a large one that does not change, and is kept encoded."""
    encoder = _ENCODERS_BUT.get((type(value), left_out))
    if encoder is None:
        cls = type(value)
        encoder = _encoder_of(cls, [f.name for f in fields(cls) if f.name != left_out])
        _ENCODERS_BUT[cls, left_out] = encoder
    return encoder(value)


def from_plain(cls: type[T], plain: Plain) -> T:
    value: T = _decoder(cls)(plain)
    return value


def shape_of(cls: type) -> str:
    """A text that changes when the fields of a class, or of any class within, change: tells a snapshot's code."""
    seen: dict[type, str] = {}

    def visit(hint: Any) -> None:
        hint = _bare(hint)
        for arg in get_args(hint):
            visit(arg)
        if isinstance(hint, type) and is_dataclass(hint) and hint not in seen:
            hints = get_type_hints(hint, include_extras=True)
            seen[hint] = ",".join(f"{n}:{hints[n]}" for n in (f.name for f in fields(hint)))
            for inner in hints.values():
                visit(inner)

    visit(cls)
    return ";".join(f"{c.__name__}({text})" for c, text in sorted(seen.items(), key=lambda item: item[0].__name__))


def _once_per_class(compile_for: Callable[[type], R]) -> Callable[[type], R]:
    compiled: dict[type, R] = {}

    def of(cls: type) -> R:
        if (found := compiled.get(cls)) is None:
            found = compiled[cls] = compile_for(cls)
        return found

    return of


@_once_per_class
def _personal_fields(cls: type) -> tuple[tuple[str, str], ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (f.name, mark.subject)
        for f in fields(cls)
        if get_origin(hints[f.name]) is Annotated
        for mark in hints[f.name].__metadata__
        if isinstance(mark, Personal)
    )


def _erased_value(cls: type, name: str) -> Any:
    hint = _bare(get_type_hints(cls, include_extras=True)[name])
    if hint is str:
        return ERASED
    if type(None) in get_args(hint):
        return None
    return {} if get_origin(hint) is not tuple else []


def _bare(hint: Any) -> Any:
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        else:
            return hint


@_once_per_class
def _encoder(cls: type) -> Callable[[Any], Plain]:
    return _encoder_of(cls, [f.name for f in fields(cls)])


_ENCODERS_BUT: dict[tuple[type, str], Callable[[Any], Plain]] = {}


def _encoder_of(cls: type, names: list[str]) -> Callable[[Any], Plain]:
    hints = get_type_hints(cls, include_extras=True)
    plan = [(name, _encode(hints[name])) for name in names]
    simple = [n for n, convert in plan if convert is None]
    converted = [(n, convert) for n, convert in plan if convert is not None]

    def encode(value: Any) -> Plain:
        plain = {n: getattr(value, n) for n in simple}
        for n, convert in converted:
            plain[n] = convert(getattr(value, n))
        return plain

    return encode


@_once_per_class
def _decoder(cls: type) -> Callable[[Plain], Any]:
    hints = get_type_hints(cls, include_extras=True)
    plan = [(f.name, _decode(hints[f.name]), _has_default(f)) for f in fields(cls)]

    def decode(plain: Plain) -> Any:
        values = {}
        for name, convert, defaulted in plan:
            if name in plain:
                values[name] = plain[name] if convert is None else convert(plain[name])
            elif not defaulted:
                raise ValueError(f"{cls.__name__} lacks {name}")
        return cls(**values)

    return decode


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _encode(hint: Any) -> Convert:
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _encode(_only_other_than_none(args))
        return None if inner is None else _optional(inner)
    if origin in (tuple, frozenset):
        inner = _encode(args[0])
        ordered: Callable[[Any], Any] = list if origin is tuple else sorted
        return ordered if inner is None else _each(inner, lambda items: list(items), ordered)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _encode_mapping(_encode(args[0]), _encode(args[1]))
    if hint is UUID:
        return str
    if hint is float:
        return float  # a whole number is written as it will be read
    if hint is datetime:
        return lambda value: value.isoformat()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: _encoder(hint)(value)
    return None


def _optional(inner: Callable[[Any], Any]) -> Convert:
    return lambda value: None if value is None else inner(value)


def _each(inner: Callable[[Any], Any], collect: Callable[[Any], Any], items: Callable[[Any], Any]) -> Convert:
    return lambda value: collect([inner(item) for item in items(value)])


def _encode_mapping(key: Convert, value: Convert) -> Convert:
    as_key = str if key is None else key
    if value is None:
        return lambda mapping: {as_key(k): v for k, v in mapping.items()}
    return lambda mapping: {as_key(k): value(v) for k, v in mapping.items()}


def _decode(hint: Any) -> Convert:
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _decode(_only_other_than_none(args))
        return None if inner is None else _optional(inner)
    if origin in (tuple, frozenset):
        inner = _decode(args[0])
        collect: Callable[[Any], Any] = tuple if origin is tuple else frozenset
        return collect if inner is None else _each(inner, collect, iter)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _decode_mapping(_bare(args[0]), _decode(args[1]))
    if hint is UUID:
        return UUID
    if hint is float:
        return float
    if hint is datetime:
        return datetime.fromisoformat
    if isinstance(hint, type) and issubclass(hint, Enum):
        members: Callable[[Any], Any] = hint
        return members
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: _decoder(hint)(value)
    return None


def _decode_mapping(key: Any, value: Convert) -> Convert:
    if key is str and value is None:
        return None
    as_key = key if key in (UUID, int) else str
    if value is None:
        return lambda mapping: {as_key(k): v for k, v in mapping.items()}
    return lambda mapping: {as_key(k): value(v) for k, v in mapping.items()}


def _only_other_than_none(args: tuple[Any, ...]) -> Any:
    others = [a for a in args if a is not type(None)]
    if len(others) != 1:
        raise TypeError(f"only X | None can be recorded, not {args}")
    return others[0]
