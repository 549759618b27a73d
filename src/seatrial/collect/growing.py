"""Which of many readings of a clock are to be believed: clocks that only grow do not go back.

In: values in the order in which they were taken. Out: the places of the longest run of them that never falls. One value that is far
too high would otherwise make all that come after it look wrong.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence


def longest_growing(values: Sequence[float]) -> list[int]:
    """Places of the longest subsequence that never falls."""
    lowest_end: list[float] = []
    ends_at: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        length = bisect.bisect_right(lowest_end, value)
        before.append(ends_at[length - 1] if length else -1)
        lowest_end[length : length + 1], ends_at[length : length + 1] = [value], [at]
    return _followed(before, ends_at[-1] if ends_at else -1)


def _followed(before: Sequence[int], at: int) -> list[int]:
    places = []
    while at >= 0:
        places.append(at)
        at = before[at]
    return places[::-1]
