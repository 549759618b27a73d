"""Records to and from plain JSON values.

`to_json(record)` returns dicts, lists and scalars; `from_json(Type, value)` builds the record again. Unknown keys are ignored, so that a
folder of a later version can still be read. A value that is not of its field's type is a ValueError that names the field: a damaged file
must not pass as a measurement.

Not msgspec: it accepts NaN, infinities and integers beyond 64 bits, which tables cannot hold, and it turns 2 into 2.0 for a float, so that
files would not be rewritten byte for byte. With hooks for these it is not shorter, and agents on every host would have to load it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, Union

Record = TypeVar("Record")
Build = Callable[[Any], Any]

SCALARS = (str, int, float, bool, types.NoneType)
PLAIN = frozenset((str, int, bool, types.NoneType))
"""Types that are plain JSON already."""
# Tables hold integers of 64 bits.
LARGEST_WHOLE = 2**63


def to_json(value: Any) -> Any:
    """Plain JSON of a record; NaN and infinities become null."""
    kind: Any = type(value)
    return value if kind in PLAIN else _writer(kind)(value)


@cache
def _writer(kind: type) -> Build:
    """Turns a `kind` into plain JSON; built once per type, since a campaign has a hundred thousand values of a few types."""
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
        return lambda record: {name: to_json(getattr(record, name)) for name in names}
    if issubclass(kind, enum.Enum):
        return lambda value: value.value
    if issubclass(kind, dict):
        return lambda value: {str(key): item if type(item) in PLAIN else to_json(item) for key, item in value.items()}
    if issubclass(kind, (list, tuple)):
        return lambda value: [item if type(item) in PLAIN else to_json(item) for item in value]
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else None
    return lambda value: value


def from_json(kind: type[Record], value: Any) -> Record:
    """The record of type `kind` that `value` describes; ValueError where it describes none."""
    build: Build = _builder(kind)  # type: ignore[arg-type]
    return typing.cast(Record, build(value))


def from_json_or_none(kind: type[Record], value: Any) -> Record | None:
    """The same, or None where `value` describes none."""
    try:
        return from_json(kind, value)
    except (ValueError, RecursionError):
        return None


@cache
def _builder(kind: Any) -> Build:
    """Turns plain JSON into a `kind`; built once per type, since a campaign has a thousand records of each."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in SCALARS:
        return _scalar_builder((kind,))
    if origin in (Union, types.UnionType):
        return _union_builder(inner)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_builder(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda value: kind(_expect(str, value))
    if origin is Literal:
        # plan/ checks which words are known: a folder of a later version may have others.
        return _scalar_builder((str,))
    if origin is tuple:
        return _tuple_builder(inner)
    if origin is list:
        return _list_builder(list, inner[0])
    if origin is dict:
        build = _builder(inner[1])
        return lambda value: {key: build(item) for key, item in _expect(dict, value).items()}
    return lambda value: value


def _record_builder(kind: type) -> Build:
    fields = {name: _builder(field) for name, field in typing.get_type_hints(kind).items()}

    def build(value: Any) -> Any:
        given, items, name = _expect(dict, value), {}, ""
        # One `try` around all fields is faster than one for each.
        try:
            for name, item in given.items():
                if name in fields:
                    items[name] = fields[name](item)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        try:
            return kind(**items)
        except TypeError as error:
            raise ValueError(f"incomplete {kind.__name__}: {error}") from error

    return build


def _union_builder(choices: tuple[Any, ...]) -> Build:
    """Unions in records are `X | None`, or of plain JSON scalars."""
    composite = [choice for choice in choices if choice not in SCALARS]
    if not composite:
        return _scalar_builder(choices)
    build = _builder(composite[0])
    return lambda value: None if value is None and types.NoneType in choices else build(value)


def _scalar_builder(kinds: tuple[type, ...]) -> Build:
    # JSON has one kind of number: a float may be written as 2.
    allowed = frozenset({*kinds, int} if float in kinds else kinds)
    not_numbers = allowed & {str, bool, types.NoneType}

    def build(value: Any) -> Any:
        if type(value) in not_numbers:
            return value
        if type(value) not in allowed:
            raise ValueError(f"{_shown(value)} where {' or '.join(sorted(kind.__name__ for kind in kinds))} is expected")
        if (type(value) is float and not math.isfinite(value)) or (type(value) is int and str not in kinds and abs(value) >= LARGEST_WHOLE):
            raise ValueError(f"{_shown(value)} is not a number that Seatrial writes")
        return value

    return build


def _tuple_builder(inner: tuple[Any, ...]) -> Build:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return _list_builder(tuple, inner[0])
    builds = [_builder(kind) for kind in inner]

    def build(value: Any) -> Any:
        if len(_expect(list, value)) != len(builds):
            raise ValueError(f"{len(value)} values where {len(builds)} are expected")
        return tuple(one(item) for one, item in zip(builds, value, strict=True))

    return build


def _list_builder(kind: type, inner: Any) -> Build:
    build = _builder(inner)
    return lambda value: kind(map(build, _expect(list, value)))


def _expect(kind: type[Record], value: Any) -> Record:
    if not isinstance(value, kind):
        raise ValueError(f"{_shown(value)} where {kind.__name__} is expected")
    return value


def _shown(value: Any) -> str:
    """Shortened: it may be a whole file of text, and an int of too many digits cannot be printed."""
    return type(value).__name__ if isinstance(value, (dict, list, int)) else repr(value)[:40]
