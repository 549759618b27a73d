"""Numbers and names in a sentence, said alike by every stage.

In: how many of what, or names. Out: '3 runs', '1 run was', 'a, b and 3 more'.
"""

from __future__ import annotations

from collections.abc import Sequence

# Sentences name this many runs, groups or hosts; tables and JSON have them all.
MOST_NAMED = 4
# And this many where they stand inside a sentence that goes on.
MOST_IN_PASSING = 3


def count(number: int, noun: str) -> str:
    """'1 run', '3 runs'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def were(number: int, noun: str) -> str:
    """'1 run was', '3 runs were'."""
    return f"{count(number, noun)} {'was' if number == 1 else 'were'}"


def named(names: Sequence[str], most: int = MOST_NAMED, separator: str = ", ") -> str:
    """'a, b and 3 more'."""
    more = len(names) - most
    return f"{separator.join(names[:most])} and {more} more" if more > 0 else separator.join(names)
