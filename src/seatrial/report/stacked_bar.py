"""What a whole is made of, as one line of letters: `ddffffffffffbbbbbbbbbbbbbbss..`, read without colour by its legend.

In: parts by name. Out: a letter for each name, a line of exactly so many characters, and the legend. A part that is there has a character
at least; what has no name of its own is dots.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping

OTHER = "other"
OTHER_LETTER = "."


def letters_of(names: Iterable[str]) -> dict[str, str]:
    """A letter for each: its first that is not taken, else the next of the alphabet, else a digit; beyond those a question mark."""
    taken: dict[str, str] = {}
    for name in dict.fromkeys(names):
        free = (letter for letter in (*_own_letters(name), *string.ascii_letters, *string.digits) if letter not in taken.values())
        taken[name] = OTHER_LETTER if name == OTHER else next(free, "?")
    return taken


def stacked_bar(parts: Mapping[str, float], letters: Mapping[str, str], columns: int) -> str:
    """The whole as `columns` characters, in the order of `letters`; blank where there is nothing."""
    known = {name: parts[name] for name in letters if name in parts and math.isfinite(parts[name]) and parts[name] > 0}
    if not known or columns < 1:
        return " " * max(columns, 0)
    return "".join(letters[name] * length for name, length in _lengths(known, columns).items())


def legend(letters: Mapping[str, str]) -> dict[str, str]:
    """By name: `d data wait`, `f fwd`, …"""
    return {name: f"{letter} {name.replace('_', ' ')}" for name, letter in letters.items()}


def _own_letters(name: str) -> Iterable[str]:
    return (letter for letter in name.lower() if letter in string.ascii_lowercase)


def _lengths(parts: Mapping[str, float], columns: int) -> dict[str, int]:
    """Whole characters that add up to `columns`: what rounding leaves goes to the parts that it cut most, and none is without one."""
    total = sum(parts.values())
    exact = {name: value / total * columns for name, value in parts.items()}
    whole = {name: max(math.floor(value), 1) for name, value in exact.items()}
    while sum(whole.values()) < columns:
        whole[max(whole, key=lambda name: exact[name] - whole[name])] += 1
    while sum(whole.values()) > columns:
        # More parts than columns leave some without; otherwise the largest gives way.
        whole[max(whole, key=lambda name: (whole[name], whole[name] - exact[name]))] -= 1
    return whole
