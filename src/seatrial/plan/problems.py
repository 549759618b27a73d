"""Pydantic's complaints in the words of a plan's author: file, line, key, what was expected and the nearest right word."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from seatrial.errors import PlanError, did_you_mean
from seatrial.plan.locate import KeyPath, Locations
from seatrial.plan.yaml_text import kind_of

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list, as in [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
}
_FITTING = {
    "name": "letters, digits and . _ + -, with a letter or digit first",
    "prefix": "letters, digits and . _ + -, with a letter or digit first",
    "mode": "small letters, digits, _ and -",
    "label": "letters, digits, . and -, with a letter first",
    "window": '"auto", "100:", "100:900" or ":900"',
}
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "greater_than": ("above", "gt"), "less_than_equal": ("at most", "le")}


def plan_error(error: ValidationError, model: type[BaseModel], locations: Locations) -> PlanError:
    """The complaint that stands first in the file, as a PlanError."""
    complaints = error.errors(include_url=False)
    # A key that is missing is most often one that is misspelt beside it, so the latter is told first.
    first = min(complaints, key=lambda complaint: (locations.of(complaint["loc"]).line or 0, complaint["type"] == "missing"))
    path: KeyPath = first["loc"]
    return locations.error(path, _text(first["type"], first.get("input"), first.get("ctx", {}), model, path))


def _text(kind: str, value: Any, context: dict[str, Any], model: type[BaseModel], path: KeyPath) -> str:
    if kind == "plan":
        return str(context["text"])
    if kind == "missing":
        return "`values` is required and missing" if path[-1] == "values" else "is required and missing"
    if kind == "extra_forbidden":
        return f"unknown key; {unknown_key_hint(model, path)}"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(context["expected"]))
        return f"unknown: {shown(value)}; {did_you_mean(str(value), known)}"
    if kind in _BOUNDS:
        word, bound = _BOUNDS[kind]
        return f"must be {word} {context[bound]}, not {shown(value)}"
    if kind == "string_pattern_mismatch":
        return f"{shown(value)} does not fit; expected {_FITTING.get(str(path[-1]), context['pattern'])}"
    if kind == "string_too_long":
        return f"longer than {context['max_length']} characters"
    if kind == "finite_number":
        return f"must be a finite number, not {shown(value)}"
    return wrong_type(_EXPECTED.get(kind, "another kind of value"), value)


def wrong_type(expected: str, value: Any) -> str:
    """What was expected, what is there, and what to do about quotes."""
    quotes = ""
    if isinstance(value, str) and "number" in expected and re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", value, re.IGNORECASE):
        quotes = "; take the quotes off"
    if expected == "text" and isinstance(value, (int, float)):
        quotes = "; put it in quotes"
    return f"must be {expected}, not {shown(value)} ({kind_of(value)}){quotes}"


def shown(value: Any) -> str:
    """A value as it stands in a plan, cut short."""
    text = {True: "true", False: "false", None: "null"}.get(value, repr(value)) if isinstance(value, (bool, type(None))) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def unknown_key_hint(model: type[BaseModel], path: KeyPath) -> str:
    """Where the key at the end of `path` belongs, else the nearest one that is known beside it."""
    key = str(path[-1])
    return _elsewhere(model, key) or did_you_mean(key, keys_at(model, path[:-1]))


def _elsewhere(model: type[BaseModel], key: str) -> str:
    """Where a key belongs that only stands in the wrong place; empty for one that is known nowhere."""
    homes = [f"under `{home}`" if home else "at the top of the plan" for home in _homes(model, key, "")]
    return f"it belongs {' or '.join(homes)}" if homes else ""


def _homes(part: type[BaseModel], key: str, home: str) -> Iterator[str]:
    """Every part that knows the key, by its own dotted key."""
    if key in part.model_fields:
        yield home
    for name, field in part.model_fields.items():
        within = _part_in(_without_none(field.annotation))
        if within is not None:
            yield from _homes(within, key, f"{home}.{name}" if home else name)


def _part_in(annotation: Any) -> type[BaseModel] | None:
    """The keys that a value of this kind has, or each one in a list or mapping of such values."""
    inner = typing.get_args(annotation)[-1:] or (annotation,)
    return inner[0] if isinstance(inner[0], type) and issubclass(inner[0], BaseModel) else None


def keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys the schema knows at `path`."""
    here: Any = model
    for part in path:
        here = _step_into(here, part)
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _step_into(here: Any, part: str | int) -> Any:
    if isinstance(here, type) and issubclass(here, BaseModel):
        field = here.model_fields.get(str(part))
        return _without_none(field.annotation) if field else None
    arguments = typing.get_args(here)
    return _without_none(arguments[-1]) if arguments else None


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(choice for choice in typing.get_args(annotation) if choice is not type(None))
    return annotation
