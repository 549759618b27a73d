"""Checks every workload's Settings makes of itself. In: a frozen dataclass. Out: nothing, or a ValueError that names the remedy.

Standard library only: a plan is checked against Settings on machines without torch.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any


def check_types(settings: Any) -> None:
    """Every field holds a value of its annotated type; a whole number is welcome where a float is expected."""
    for name, kind in typing.get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _fits(value, kind):
            raise ValueError(f"{name} is {value!r}; expected {kind_in_words(kind)}")


def check_at_least(settings: Any, **lowest: float) -> None:
    """Each named field is at least its bound; None is passed over."""
    for name, bound in lowest.items():
        value = getattr(settings, name)
        if value is not None and not value >= bound:
            raise ValueError(f"{name} is {value}; it must be {bound} or more")


def check_one_of(settings: Any, **choices: tuple[str, ...]) -> None:
    """Each named field is one of its words."""
    for name, words in choices.items():
        value = getattr(settings, name)
        if value not in words:
            raise ValueError(f"{name} is '{value}'; expected one of {', '.join(words)}")


def without_none(kind: Any) -> Any:
    """`int` of `int | None`; other types as they are."""
    if isinstance(kind, types.UnionType):
        return next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return kind


def kind_in_words(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    text = words[without_none(kind)]
    return f"{text}, or null for never" if without_none(kind) is not kind else text


def _fits(value: Any, kind: Any) -> bool:
    if value is None:
        return without_none(kind) is not kind
    plain = without_none(kind)
    if isinstance(value, bool) or plain is bool:
        return isinstance(value, bool) and plain is bool
    if plain is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, plain)


def field_names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
