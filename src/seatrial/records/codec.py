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
from functools import cache
from typing import Any, TypeVar, Union

Record = TypeVar("Record")


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
    return typing.cast(Record, _build(kind, value))


def _build(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return _build_union(typing.get_args(kind), value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        known = _field_types(kind)
        return kind(**{name: _build(known[name], item) for name, item in value.items() if name in known})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if origin is tuple:
        return tuple(_build(typing.get_args(kind)[0], item) for item in value)
    if origin is list:
        return [_build(typing.get_args(kind)[0], item) for item in value]
    if origin is dict:
        return {key: _build(typing.get_args(kind)[1], item) for key, item in value.items()}
    return value


def _build_union(choices: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    # Unions in records are `X | None` or of plain JSON scalars: the first choice that is a structure decides.
    for choice in choices:
        structured = dataclasses.is_dataclass(choice) or typing.get_origin(choice) in (tuple, list, dict)
        if structured and isinstance(value, (dict, list)):
            return _build(choice, value)
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            return choice(value)
    return value


@cache
def _field_types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
