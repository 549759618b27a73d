"""`{name}` in the texts of a plan: finding and filling them, and sums and products of them.

`fill` is for arguments and variables, where `{{` and `}}` are literal braces. `work_value` is for samples_per_step and tokens_per_step:
whole numbers, `{name}`, `+`, `*` and parentheses, such as `{bs}*({block}+1)`. It is parsed, never evaluated as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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


LONGEST_EXPRESSION = 200
"""In characters; also bounds the depth of parentheses."""
_WORK_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|\{(?P<name>[A-Za-z_][A-Za-z0-9_.]*)\}|(?P<mark>[+*()]))\s*")
_WHOLE_NUMBER = re.compile(r"\d{1,18}")


def check_work(text: str) -> None:
    """PlaceholderProblem for a text that is not a sum or product of whole numbers and placeholders."""
    work_value(text, None)


def work_value(text: str, values: Mapping[str, Scalar] | None) -> int:
    """The value of a sum or product; without `values` every placeholder counts as 1, and only the grammar is checked."""
    if len(text) > LONGEST_EXPRESSION:
        raise PlaceholderProblem(f"has {len(text):,} characters, more than {LONGEST_EXPRESSION}; write it shorter")
    parser = _WorkParser(text=text, values=values)
    total = parser.sum()
    if parser.has_more:
        raise parser.problem()
    return total


@dataclass(kw_only=True)
class _WorkParser:
    """Recursive descent: a sum of products of numbers, placeholders and sums in parentheses."""

    text: str
    values: Mapping[str, Scalar] | None
    position: int = 0
    _token: re.Match[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._token = _WORK_TOKEN.match(self.text)

    @property
    def has_more(self) -> bool:
        return self.position < len(self.text)

    def sum(self) -> int:
        total = self.product()
        while self._takes("+"):
            total += self.product()
        return total

    def product(self) -> int:
        total = self.factor()
        while self._takes("*"):
            total *= self.factor()
        return total

    def factor(self) -> int:
        if self._takes("("):
            total = self.sum()
            if not self._takes(")"):
                raise self.problem()
            return total
        token = self._token
        if token is None or token["mark"]:
            raise self.problem()
        self._advance()
        return int(token["number"]) if token["number"] else self._value_of(token["name"])

    def _value_of(self, name: str) -> int:
        if self.values is None:
            return 1
        if name not in self.values:
            raise PlaceholderProblem(f"no value for {{{name}}}")
        value = self.values[name]
        if isinstance(value, bool) or not _WHOLE_NUMBER.fullmatch(whole := _whole_text(value)):
            raise PlaceholderProblem(f"{{{name}}} is '{value_text(value)}' in one group; it must be a whole number in all of them")
        return int(whole)

    def _takes(self, mark: str) -> bool:
        found = self._token is not None and self._token["mark"] == mark
        if found:
            self._advance()
        return found

    def _advance(self) -> None:
        assert self._token is not None
        self.position = self._token.end()
        self._token = _WORK_TOKEN.match(self.text, self.position)

    def problem(self) -> PlaceholderProblem:
        rest = self.text[self.position :].strip()
        at = f"cannot be read from '{rest}' on" if rest else "ends too early"
        bare = re.match(r"[A-Za-z_][A-Za-z0-9_.]*", rest)
        hint = f": write {{{bare[0]}}} for the setting" if bare else ""
        return PlaceholderProblem(f"'{self.text}' {at}{hint}; it takes whole numbers, {{NAME}}, +, * and parentheses")


def _whole_text(value: Scalar) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else value_text(value).strip()
