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
# Tables hold whole numbers of 64 bits, and no count or time of ours comes near them.
LARGEST_WHOLE = 2**63


def to_json(value: Any) -> Any:
    """Plain JSON of a record; NaN and infinities become null, as JSON has neither."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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
        items = {name: _field(name, fields[name], item) for name, item in _of(dict, value).items() if name in fields}
        try:
            return kind(**items)
        except TypeError as error:
            raise ValueError(f"no whole {kind.__name__}: {error}") from error

    return build


def _field(name: str, build: Build, item: Any) -> Any:
    try:
        return build(item)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


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

    def build(value: Any) -> Any:
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
