"""When the supervisor must step in. Pure: progress, time and limits go in, an alarm or None comes out; campaign/ acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.observe.culprit import behind, culprit_of
from seatrial.observe.progress import Progress, RankStanding
from seatrial.observe.stall import Stall
from seatrial.observe.stall_words import action_of, text_of
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.run_spec import LimitsSpec
from seatrial.units import GIB, format_bytes, format_duration


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A limit that was passed."""

    cause: Cause
    outcome: Outcome = Outcome.TIMEOUT
    """What the run is called that is ended for it."""
    text: str
    action: str = ""
    """What to do, where it depends on what was seen; the registry has the advice for the cause."""
    rank: int | None = None
    """The rank that holds the others up, where one does."""
    phase: str = ""
    """What that rank is doing, in the probe's words."""


def alarm(
    progress: Progress, elapsed_s: float, limits: LimitsSpec, stall: Stall | None = None, silent: frozenset[int] = frozenset()
) -> Alarm | None:
    """The limit that was passed `elapsed_s` after launch, if any; `stall` and `silent` are what a StallWatch says of the same progress."""
    return (
        _run(progress, elapsed_s, limits)
        or _start(progress, elapsed_s, limits, silent)
        or _memory(progress, limits)
        or _disk(progress, limits)
        or _stall(progress, stall)
    )


def _run(progress: Progress, elapsed_s: float, limits: LimitsSpec) -> Alarm | None:
    if limits.run_s is None or elapsed_s <= limits.run_s:
        return None
    return Alarm(
        cause=Cause.RUN_LIMIT,
        text=f"still running after {format_duration(limits.run_s)} (limits.run_s), at step {_step(progress)}",
    )


def _start(progress: Progress, elapsed_s: float, limits: LimitsSpec, silent: frozenset[int]) -> Alarm | None:
    if limits.start_s is None or progress.alive or elapsed_s <= limits.start_s:
        return None
    waiting = [standing for standing in progress.standings if standing.step is None]
    last = culprit_of(behind(waiting), silent) if waiting else None
    absent = sorted(set(range(progress.num_ranks)) - {standing.rank for standing in progress.standings})
    if last is None:
        text = f"no first step, and no output of a script without the probe, within {format_duration(limits.start_s)} (limits.start_s)"
        return Alarm(cause=Cause.START_LIMIT, text=text)
    if absent:
        came = f"{len(progress.standings)} of {progress.num_ranks} ranks came to their probe"
        text = f"no first step within {format_duration(limits.start_s)} (limits.start_s): {came}, rank {absent[0]} did not"
        return Alarm(cause=Cause.START_LIMIT, text=text, rank=absent[0])
    text = f"no first step of {_who(waiting, last)} within {format_duration(limits.start_s)} (limits.start_s); rank {last.rank} is in "
    return Alarm(cause=Cause.START_LIMIT, text=f"{text}'{last.phase}'", rank=last.rank, phase=last.phase)


def _who(waiting: list[RankStanding], last: RankStanding) -> str:
    return f"rank {last.rank}" if len(waiting) == 1 else f"{len(waiting)} ranks"


def _memory(progress: Progress, limits: LimitsSpec) -> Alarm | None:
    held = progress.memory_bytes
    if limits.memory_gib is None or held is None or held <= limits.memory_gib * GIB:
        return None
    limit = format_bytes(limits.memory_gib * GIB)
    return Alarm(
        cause=Cause.MEMORY_LIMIT,
        outcome=Outcome.FAILED,
        text=f"its processes hold {format_bytes(held)} of memory (limit {limit}: limits.memory_gib; rss_kib, the newest sample), "
        f"at step {_step(progress)}",
    )


def _disk(progress: Progress, limits: LimitsSpec) -> Alarm | None:
    if limits.disk_gib is None or progress.written_bytes <= limits.disk_gib * GIB:
        return None
    limit, largest = format_bytes(limits.disk_gib * GIB), ""
    if progress.largest_file:
        largest = f", {format_bytes(progress.largest_bytes)} of it {progress.largest_file}"
    return Alarm(
        cause=Cause.DISK_LIMIT,
        outcome=Outcome.FAILED,
        text=f"its logs and events take {format_bytes(progress.written_bytes)}{largest} (limit {limit}: limits.disk_gib), "
        f"at step {_step(progress)}",
    )


def _stall(progress: Progress, stall: Stall | None) -> Alarm | None:
    if stall is None:
        return None
    return Alarm(
        cause=Cause.STALL,
        outcome=Outcome.STALLED,
        text=text_of(stall, progress),
        action=action_of(stall),
        rank=stall.culprit.rank if stall.culprit else None,
        # Where a rank is that is not heard of any more, nobody knows; the text says where it was.
        phase=stall.culprit.phase if stall.culprit and stall.silent_s is None else "",
    )


def _step(progress: Progress) -> str:
    if progress.step is None:
        return "none yet"
    return f"{progress.step} of {progress.total}" if progress.total else str(progress.step)
