"""What a reader must know of events that were passed over or cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.caution import Caution


def event_cautions(run: str, *, foreign: int, duplicates: int, bad_times: int) -> Iterator[Caution]:
    """In: how many lines, steps and times were not taken. Out: why, and what to do about it."""
    if foreign:
        yield Caution(
            kind="foreign_lines",
            subject=run,
            numbers={"lines": foreign},
            text=f"In the event files {_many(foreign, 'line')} passed over: of another run or attempt, or no event at all; see that "
            "nothing but the probe writes into the run's folder.",
        )
    if duplicates:
        yield Caution(
            kind="duplicate_steps",
            subject=run,
            numbers={"steps": duplicates},
            text=f"{_many(duplicates, 'step')} written more than once by one rank, and only the first of each counts; use one probe for "
            "the whole script, and do not start the script anew within a run.",
        )
    if bad_times:
        yield Caution(
            kind="bad_times",
            subject=run,
            numbers={"steps": bad_times},
            text=f"{_many(bad_times, 'step')} left untimed, as the time written for them is negative or no number; see what writes these "
            "events.",
        )


def _many(count: int, what: str) -> str:
    return f"1 {what} was" if count == 1 else f"{count} {what}s were"
