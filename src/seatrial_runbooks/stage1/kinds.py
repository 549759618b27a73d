"""Kinds of values that the driver's variables take. In: a variable's text. Out: its value, or a ValueError where it is not of the kind.

A kind says in words what it expects, for the message. What cannot be written down in UTF-8 or breaks a line is of no kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial.ports import LAST_PORT

_WHOLE = re.compile(r"0|[1-9][0-9]{0,11}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
# Beyond this nobody counts: a slip, or digits without end.
MOST = 10**12


@dataclass(frozen=True)
class Kind:
    """What a variable takes."""

    expected: str
    """In words, after `expected`."""
    parse: Callable[[str], Any]
    """Raises a ValueError for a text that is not of the kind."""


class WrongValue(ValueError):
    """A value of the right form that still cannot be; the text says why."""


def one_of(*words: str) -> Kind:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Kind(f"one of {', '.join(words)}", parse)


def whole(least: int, most: int = MOST) -> Kind:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text) else -1
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(f"a whole number, {least} or more" if most == MOST else f"a whole number from {least} to {most}", parse)


def decimal(above: float) -> Kind:
    """A number above a bound."""

    def parse(text: str) -> float:
        number = float(text) if _DECIMAL.fullmatch(text) else above
        if number <= above:
            raise ValueError
        return number

    return Kind(f"a number above {above:g}", parse)


def list_of(item: Kind, example: str) -> Kind:
    """Items with commas between them, each once."""

    def parse(text: str) -> tuple[Any, ...]:
        items = tuple(item.parse(part.strip()) for part in text.split(","))
        twice = next((value for position, value in enumerate(items) if value in items[:position]), None)
        if twice is not None:
            raise WrongValue(f"names {twice} twice: give each value once, and REPEATS for several runs of it")
        return items

    return Kind(f"{_plural(item.expected)}, with commas between them, as in {example}", parse)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


def _word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,199}", text):
        raise ValueError
    return text


def _plural(words: str) -> str:
    return words.replace("a whole number", "whole numbers").replace("a number", "numbers")


FLAG = Kind("true or false", _flag)
SWITCH = Kind("0 or 1", _switch)
POSITIVE = whole(1)
NOT_NEGATIVE = whole(0)
PORT = whole(1, LAST_PORT)
POSITIVE_DECIMAL = decimal(0)
TEXT = Kind("one line of plain text", _line)
WORD = Kind("a name of letters, digits and . _ + - /", _word)
PATH = Kind("a path, on one line of plain text", _line)
