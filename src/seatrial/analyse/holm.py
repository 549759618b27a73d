"""Several comparisons at once, corrected by Holm's steps.

In: the chances of several comparisons, and how many they were chosen from. Out: for each, by how much alpha is divided, so that intervals
and chances agree, and the corrected chance. Of all comparisons that find nothing real, at most one set in twenty claims anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.records.measure import CONFIDENCE

ALPHA = 1 - CONFIDENCE


def holm(chances: Sequence[float | None], family: int) -> tuple[list[int], list[float | None]]:
    """By how much alpha is divided for each, and the corrected chances. Steps down from the smallest until one is not told: from there
    on all are held against that step."""
    order = sorted((chance, at) for at, chance in enumerate(chances) if chance is not None)
    levels: list[int] = [family] * len(chances)
    corrected: list[float | None] = [None] * len(chances)
    divisor, largest, stopped = family, 0.0, False
    for step, (chance, at) in enumerate(order):
        if not stopped:
            divisor = max(family - step, 1)
            stopped = chance > ALPHA / divisor
        largest = max(largest, min(1.0, chance * max(family - step, 1)))
        levels[at], corrected[at] = divisor, largest
    return levels, corrected
