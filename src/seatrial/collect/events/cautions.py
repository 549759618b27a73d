"""What a reader must know of events that were passed over or cannot be. Every caution names the files it speaks of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.collect.events.checks import Checked
from seatrial.collect.events.files import LARGEST_FILE_BYTES, Passed
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.caution import Caution
from seatrial.units import format_bytes
from seatrial.wording import count, were

NAMED_FILES = 3
"""Files named in a sentence; of more, their number is told."""


def event_cautions(run: str, passed: Sequence[Passed], checked: Checked, sizes: Sequence[int], world_size: int) -> Iterator[Caution]:
    """In: what was not taken of each file and of each rank's steps. Out: why, and what to do about it."""
    yield from _of_files(run, passed)
    yield from _of_steps(run, checked, world_size)
    if len(set(sizes)) > 1:
        told = ", ".join(str(size) for size in sorted(set(sizes))[:4])
        yield Caution(
            kind="other_world_size",
            subject=run,
            numbers={"taken": world_size},
            text=f"The ranks' start events tell different numbers of ranks ({told}), and {world_size} is taken; see that nothing but this "
            "run writes into its folder.",
        )


def _of_files(run: str, passed: Sequence[Passed]) -> Iterator[Caution]:
    for one in passed:
        if one.problem:
            yield Caution(
                kind="unreadable_file",
                subject=run,
                text=f"{one.file} holds nothing that can be read ({one.problem}), so the steps of that rank are not known.",
            )
    cut = {one.file: one.left_out_bytes for one in passed if one.left_out_bytes}
    if cut:
        yield Caution(
            kind="large_events",
            subject=run,
            numbers={"left_out_bytes": sum(cut.values())},
            text=f"Of {files_named(cut)} only the first {format_bytes(LARGEST_FILE_BYTES)} were read: figures are of the steps in it.",
        )
    torn = [one.file for one in passed if one.torn]
    if torn:
        ends = "ends" if len(torn) == 1 else "end"
        yield Caution(
            kind="torn_line",
            subject=run,
            numbers={"files": len(torn)},
            text=f"{files_named(torn)} {ends} in the middle of a line, as after a kill or a full disk; what it began to say is not known.",
        )
    foreign = {one.file: one.foreign for one in passed if one.foreign}
    if foreign:
        yield Caution(
            kind="foreign_lines",
            subject=run,
            numbers={"lines": sum(foreign.values())},
            text=f"In {files_named(foreign)} {_many(foreign, 'line')} passed over: of another run, attempt or rank, or no event at all; "
            "see that nothing but the probe writes into the run's folder.",
        )


def _of_steps(run: str, checked: Checked, world_size: int) -> Iterator[Caution]:
    if checked.beyond:
        ranks = count(world_size, "rank")
        yield Caution(
            kind="other_ranks",
            subject=run,
            numbers={"steps": sum(checked.beyond.values())},
            text=f"In {_files(checked.beyond)} {_many(checked.beyond, 'step')} passed over, as the run has {ranks}; see that nothing but "
            "this run writes into its folder.",
        )
    if checked.duplicates:
        yield Caution(
            kind="duplicate_steps",
            subject=run,
            numbers={"steps": sum(checked.duplicates.values())},
            text=f"In {_files(checked.duplicates)} {_many(checked.duplicates, 'step')} written more than once, and only the first of each "
            "counts; use one probe for the whole script, and do not start the script anew within a run.",
        )
    if checked.unordered:
        yield Caution(
            kind="lines_out_of_order",
            subject=run,
            numbers={"steps": sum(checked.unordered.values())},
            text=f"In {_files(checked.unordered)} {_many(checked.unordered, 'step')} not in the order in which they are taken, and put in "
            "order here; what the rank told of its start-up may be lost. See what wrote the file anew.",
        )
    if checked.misplaced:
        yield Caution(
            kind="steps_out_of_place",
            subject=run,
            numbers={"steps": sum(checked.misplaced.values())},
            text=f"In {_files(checked.misplaced)} {_many(checked.misplaced, 'step')} passed over, as the step's number cannot be or the "
            "clock beside it contradicts the others; see what writes these events.",
        )
    if checked.bad_times:
        yield Caution(
            kind="bad_times",
            subject=run,
            numbers={"steps": sum(checked.bad_times.values())},
            text=f"In {_files(checked.bad_times)} {_many(checked.bad_times, 'step')} left untimed: the time written is negative, no "
            "number, longer than the run, or contradicts the clock beside it; see what writes these events.",
        )
    if checked.bad_values:
        yield Caution(
            kind="bad_values",
            subject=run,
            numbers={"values": sum(checked.bad_values.values())},
            text=f"In {_files(checked.bad_values)} {_many(checked.bad_values, 'value')} passed over: phases, samples or tokens that are "
            "negative or larger than can be.",
        )


def _files(counts: Mapping[int, int]) -> str:
    return files_named([ATTEMPT_FILES.events(rank).name for rank in counts])


def files_named(files: Sequence[str] | Mapping[str, int]) -> str:
    """'events_rank0.jsonl and events_rank1.jsonl', 'events_rank0.jsonl and 12 other files'."""
    names = list(files)
    if len(names) <= NAMED_FILES:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{names[0]} and {len(names) - 1} other files"


def _many(counts: Mapping[str, int] | Mapping[int, int], what: str) -> str:
    return were(sum(counts.values()), what)
