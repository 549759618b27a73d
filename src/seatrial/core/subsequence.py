"""Longest subsequences of clock readings that should never decrease, but may: a clock was set, or a line is damaged."""

from __future__ import annotations

import bisect
from collections.abc import Sequence


def longest_non_decreasing(values: Sequence[float]) -> list[int]:
    """Indices of the longest non-decreasing subsequence: one clock reading that is far too high must not discredit all that follow."""
    lowest_end: list[float] = []
    ends_at: list[int] = []
    previous: list[int] = []
    for index, value in enumerate(values):
        length = bisect.bisect_right(lowest_end, value)
        previous.append(ends_at[length - 1] if length else -1)
        lowest_end[length : length + 1], ends_at[length : length + 1] = [value], [index]
    indices = []
    index = ends_at[-1] if ends_at else -1
    while index >= 0:
        indices.append(index)
        index = previous[index]
    return indices[::-1]
