"""In which order the runs of a matrix are started."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Group = TypeVar("Group")


def ordered(groups: Sequence[Group], repeats: int, order: str, seed: int) -> list[tuple[Group, int]]:
    """Every group with every repeat, first to run first: in shuffled rounds, in `rounds` as written, or group after group (`nested`)."""
    if order == "nested":
        return [(group, repeat) for group in groups for repeat in range(1, repeats + 1)]
    if order == "rounds":
        return [(group, repeat) for repeat in range(1, repeats + 1) for group in groups]
    return [(group, repeat) for repeat in range(1, repeats + 1) for group in shuffled_round(groups, repeat, seed)]


def shuffled_round(groups: Sequence[Group], repeat: int, seed: int) -> list[Group]:
    """All groups once, in an order of that round's own, so that more repeats leave earlier rounds as they were."""
    shuffled = list(groups)
    Random(f"{seed}:{repeat}").shuffle(shuffled)
    return shuffled
