"""`{name}` in arguments and variables of a plan: finding the names, filling them in. `{{` and `}}` stand for the braces themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from seatrial.records.run_spec import Scalar

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\}|(?P<stray>[{}])")


class PlaceholderProblem(ValueError):
    """A text whose braces cannot be read, or that names something unknown."""


def names_in(text: str) -> list[str]:
    """Every placeholder in `text`, in order, each once."""
    found: dict[str, None] = {}
    _replace(text, lambda name: found.setdefault(name) or "")
    return list(found)


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """`text` with every placeholder replaced by its value."""
    return _replace(text, lambda name: _value_of(name, values))


def escape(text: str) -> str:
    """A text that `fill` gives back as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def rename(text: str, old: str, new: str) -> str:
    """`text` with the placeholder `old` called `new`, everything else as written."""

    def renamed(match: re.Match[str]) -> str:
        return f"{{{new}}}" if match["name"] == old else match[0]

    return _TOKEN.sub(renamed, text)


def value_text(value: Scalar) -> str:
    """A value as it stands in a command: true and false in small letters, as they are written in a plan."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _value_of(name: str, values: Mapping[str, Scalar]) -> str:
    if name not in values:
        raise PlaceholderProblem(f"nothing is known to fill {{{name}}} with")
    return value_text(values[name])


def _replace(text: str, value_for: Callable[[str], str]) -> str:
    def token(match: re.Match[str]) -> str:
        if match["stray"]:
            raise PlaceholderProblem(f"a lone '{match['stray']}' in {text!r}: write '{match['stray'] * 2}' for the brace itself")
        return value_for(match["name"]) if match["name"] else match[0][0]

    return _TOKEN.sub(token, text)
