"""Runs in sentences: how many, and which.

In: a number, or names. Out: `1 run`, `3 runs`; `mb8_r1, mb8_r2, mb8_r3 and 2 more`.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 3


def num_runs(count: int) -> str:
    """`1 run`, `3 runs`."""
    return "1 run" if count == 1 else f"{count} runs"


def first_of(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
