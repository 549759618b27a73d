"""`{name}` in arguments and variables of a plan: finding and filling them. `{{` and `}}` are literal braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from seatrial.records.caution import Scalar

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\}|(?P<stray>[{}])")


class PlaceholderProblem(ValueError):
    """A text with unbalanced braces or an unknown placeholder."""


def names_in(text: str) -> list[str]:
    """Every placeholder in `text`, in order, each once."""
    found: dict[str, None] = {}
    _replace(text, lambda name: found.setdefault(name) or "")
    return list(found)


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """`text` with every placeholder replaced by its value."""
    return _replace(text, lambda name: _value_of(name, values))


def escape(text: str) -> str:
    """`text` with literal braces, so that `fill` returns it unchanged."""
    return text.replace("{", "{{").replace("}", "}}")


def rename(text: str, old: str, new: str) -> str:
    def renamed(match: re.Match[str]) -> str:
        return f"{{{new}}}" if match["name"] == old else match[0]

    return _TOKEN.sub(renamed, text)


def value_text(value: Scalar) -> str:
    """A value as a command gets it: true and false in lower case, as in a plan."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _value_of(name: str, values: Mapping[str, Scalar]) -> str:
    if name not in values:
        raise PlaceholderProblem(f"no value for {{{name}}}")
    return value_text(values[name])


def _replace(text: str, value_for: Callable[[str], str]) -> str:
    def token(match: re.Match[str]) -> str:
        if match["stray"]:
            raise PlaceholderProblem(f"a lone '{match['stray']}' in {text!r}: write '{match['stray'] * 2}' for the brace itself")
        return value_for(match["name"]) if match["name"] else match[0][0]

    return _TOKEN.sub(token, text)
