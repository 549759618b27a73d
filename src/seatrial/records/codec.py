"""Records to and from plain JSON values.

`to_json(record)` gives dicts, lists and scalars; `from_json(Type, value)` builds the record again. Keys a record does not
know are passed over, so that a folder written by a later version can still be read. A value that is not of its field's type is a
ValueError that names the field: what a damaged file says must not go on as a number.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, Union

Record = TypeVar("Record")
Build = Callable[[Any], Any]

SCALARS = (str, int, float, bool, types.NoneType)
AS_IT_IS = frozenset((str, int, bool, types.NoneType))
"""Values that are plain JSON already, which most are."""
# Tables hold whole numbers of 64 bits, and no count or time of ours comes near them.
LARGEST_WHOLE = 2**63


def to_json(value: Any) -> Any:
    """Plain JSON of a record; NaN and infinities become null, as JSON has neither."""
    kind: Any = type(value)
    return value if kind in AS_IT_IS else _writer(kind)(value)


@cache
def _writer(kind: type) -> Build:
    """What turns a `kind` into plain JSON: looked up once a type, since a campaign has a hundred thousand values of a few types."""
    if dataclasses.is_dataclass(kind):
        return _record_writer(tuple(field.name for field in dataclasses.fields(kind)))
    if issubclass(kind, enum.Enum):
        return lambda value: value.value
    if issubclass(kind, dict):
        return lambda value: {str(key): item if type(item) in AS_IT_IS else to_json(item) for key, item in value.items()}
    if issubclass(kind, (list, tuple)):
        return lambda value: [item if type(item) in AS_IT_IS else to_json(item) for item in value]
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else None
    return lambda value: value


def _record_writer(names: tuple[str, ...]) -> Build:
    def write(record: Any) -> Any:
        return {name: to_json(getattr(record, name)) for name in names}

    return write


def from_json(kind: type[Record], value: Any) -> Record:
    """The record of type `kind` that `value` describes; ValueError where it describes none."""
    build: Build = _builder(kind)  # type: ignore[arg-type]
    return typing.cast(Record, build(value))


def described(kind: type[Record], value: Any) -> Record | None:
    """The same, and None where `value` describes no such record."""
    try:
        return from_json(kind, value)
    except (ValueError, RecursionError):
        return None


@cache
def _builder(kind: Any) -> Build:
    """What turns plain JSON into a `kind`: looked up once a type, since a campaign has a thousand records of each."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in SCALARS:
        return _scalar_builder((kind,))
    if origin in (Union, types.UnionType):
        return _union_builder(inner)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_builder(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum_builder(kind)
    if origin is tuple:
        return _tuple_builder(inner)
    if origin is list:
        return _mapped(list, _builder(inner[0]))
    if origin is dict:
        return _values_mapped(_builder(inner[1]))
    return lambda value: value


def _record_builder(kind: type) -> Build:
    fields = {name: _builder(field) for name, field in typing.get_type_hints(kind).items()}

    def build(value: Any) -> Any:
        told, items, name = _of(dict, value), {}, ""
        # One `try` around all fields and not one for each: a call less for every value of a thousand records.
        try:
            for name, item in told.items():
                if name in fields:
                    items[name] = fields[name](item)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        try:
            return kind(**items)
        except TypeError as error:
            raise ValueError(f"no whole {kind.__name__}: {error}") from error

    return build


def _enum_builder(kind: type[enum.Enum]) -> Build:
    return lambda value: kind(_of(str, value))


def _union_builder(choices: tuple[Any, ...]) -> Build:
    """Unions in records are `X | None` or of plain JSON scalars."""
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
            raise ValueError(f"{_shown(value)} is no number that Seatrial writes")
        return value

    return build


def _tuple_builder(inner: tuple[Any, ...]) -> Build:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return _mapped(tuple, _builder(inner[0]))
    builds = [_builder(kind) for kind in inner]

    def build(value: Any) -> Any:
        if len(_of(list, value)) != len(builds):
            raise ValueError(f"{len(value)} values where {len(builds)} are expected")
        return tuple(one(item) for one, item in zip(builds, value, strict=True))

    return build


def _mapped(kind: type, build: Build) -> Build:
    return lambda value: kind(map(build, _of(list, value)))


def _values_mapped(build: Build) -> Build:
    return lambda value: {key: build(item) for key, item in _of(dict, value).items()}


def _of(kind: type[Record], value: Any) -> Record:
    if not isinstance(value, kind):
        raise ValueError(f"{_shown(value)} where {kind.__name__} is expected")
    return value


def _shown(value: Any) -> str:
    """Short: it may be a file's worth of text, and an int of many digits has no text at all."""
    return type(value).__name__ if isinstance(value, (dict, list, int)) else repr(value)[:40]
