"""Batches that workers make ahead. In: how many workers there are, how many batches each was asked for. Out: what a loader takes, and the
word for the record where nothing is made ahead."""

from __future__ import annotations

from seatrial_workloads.common.choice import Choice


def prefetch_for(num_workers: int, prefetch_factor: int) -> int | None:
    """torch's loader takes a number only where there are workers."""
    return prefetch_factor if num_workers else None


def told_of_prefetch(num_workers: int, prefetch_factor: int) -> dict[str, Choice]:
    """A setting that does nothing says so."""
    if num_workers:
        return {}
    return {"prefetch_factor": Choice(prefetch_factor, None, "num_workers is 0: nothing is made ahead")}
