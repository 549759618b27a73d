"""Which steps something is done after. In: the step, counted from 0, and how often. Out: yes or no. Pure functions."""

from __future__ import annotations


def is_due(step: int, every: int | None) -> bool:
    """What is done now and then, a checkpoint or a validation: never after the very first step, and not at all where `every` is None."""
    return every is not None and step > 0 and step % every == 0


def is_logged(step: int, every: int, steps: int) -> bool:
    """Whether people hear of a step: the first, every so many, and the last."""
    return step % every == 0 or step == steps - 1
