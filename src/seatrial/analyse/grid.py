"""Steps of all ranks laid over one another.

In: rank and step of every row, sorted by rank and then step. Out: `Grid`: the step numbers and the ranks there are, and where each row
lies among them. Where every rank has the same steps, as in a clean run, nothing need be sorted for it: a tenth of the time, which
counts for a thousand ranks and for a thousand runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Step numbers and ranks in order, and the rows among them."""

    numbers: Ints
    first_row: Places
    """By number, the first row of it: the lowest rank's."""
    seen: Ints
    """By number, how many rows it has."""
    place: Places
    """By row, which number it is of."""
    ranks: Ints
    rank: Places
    """By row, which rank it is of."""
    is_full: bool
    """Whether every rank has every number once."""

    def longest(self, times: Floats) -> Floats:
        """By number, the longest of its rows' times, none of which is below 0."""
        if self.is_full:
            return np.asarray(times.reshape(len(self.ranks), -1).max(axis=0), dtype=np.float64)
        found = np.zeros(len(self.numbers))
        np.maximum.at(found, self.place, times)
        return found


def is_among(numbers: Ints, some: Ints) -> npt.NDArray[np.bool_]:
    """np.isin for numbers in order, each once, and few others in any order: a fifth of its time."""
    place = np.searchsorted(numbers, some)
    inside = place < len(numbers)
    place, some = place[inside], some[inside]
    found = np.zeros(len(numbers), dtype=np.bool_)
    found[place[numbers[place] == some]] = True
    return found


def find_grid(rank: Ints, step: Ints) -> Grid:
    """The grid of these rows."""
    return full_grid(rank, step) or any_grid(rank, step)


def full_grid(rank: Ints, step: Ints) -> Grid | None:
    """Where every rank has the same steps, each once; None where it is not so."""
    if len(rank) == 0:
        return None
    count = int(np.searchsorted(rank, rank[0], side="right"))
    if len(rank) % count:
        return None
    by_rank, by_step = rank.reshape(-1, count), step.reshape(-1, count)
    ranks, numbers = by_rank[:, 0], by_step[0]
    if (np.diff(ranks) <= 0).any() or (np.diff(numbers) <= 0).any() or (by_rank != ranks[:, None]).any() or (by_step != numbers).any():
        return None
    first_row = np.arange(count)
    return Grid(
        numbers=numbers,
        first_row=first_row,
        seen=np.full(count, len(ranks)),
        place=np.tile(first_row, len(ranks)),
        ranks=ranks,
        rank=np.repeat(np.arange(len(ranks)), count),
        is_full=True,
    )


def any_grid(rank: Ints, step: Ints) -> Grid:
    """The same of any rows."""
    numbers, first_row, place, seen = np.unique(step, return_index=True, return_inverse=True, return_counts=True)
    ranks, row_rank = np.unique(rank, return_inverse=True)
    return Grid(numbers=numbers, first_row=first_row, seen=seen, place=place, ranks=ranks, rank=row_rank, is_full=False)
