"""Records to and from plain JSON values.

`to_json(record)` gives dicts, lists and scalars; `from_json(Type, value)` builds the record again. Keys a record does not
know are passed over, so that a folder written by a later version can still be read.
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
    """The record of type `kind` that `value` describes."""
    build: Build = _builder(kind)  # type: ignore[arg-type]
    return typing.cast(Record, build(value))


@cache
def _builder(kind: Any) -> Build:
    """What turns plain JSON into a `kind`: looked up once a type, since a campaign has a thousand records of each."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_builder(inner)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_builder(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if origin is tuple:
        return _mapped(tuple, _builder(inner[0]))
    if origin is list:
        return _mapped(list, _builder(inner[0]))
    if origin is dict:
        return _values_mapped(_builder(inner[1]))
    return _as_it_is


def _record_builder(kind: type) -> Build:
    fields = {name: _builder(field) for name, field in typing.get_type_hints(kind).items()}
    return lambda value: kind(**{name: fields[name](item) for name, item in value.items() if name in fields})


def _union_builder(choices: tuple[Any, ...]) -> Build:
    # Unions in records are `X | None` or of plain JSON scalars: the first choice that is more than a scalar decides.
    for choice in choices:
        build = _builder(choice)
        if build is _as_it_is:
            continue
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            return lambda value: None if value is None else choice(value)
        return lambda value: build(value) if isinstance(value, (dict, list)) else value
    return _as_it_is


def _mapped(kind: type, build: Build) -> Build:
    return kind if build is _as_it_is else lambda value: kind(map(build, value))


def _values_mapped(build: Build) -> Build:
    return dict if build is _as_it_is else lambda value: {key: build(item) for key, item in value.items()}


def _as_it_is(value: Any) -> Any:
    return value
