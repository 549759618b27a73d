"""A stall in words: what happened, by which limit, where each rank stands, and what to do.

In: a `Stall` and the progress it was found in. Out: sentences. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.observe.progress import BETWEEN_STEPS, Progress, RankStanding
from seatrial.observe.stall import QUIET_KEY, START_KEY, Stall
from seatrial.units import format_duration

# Beyond this, seconds are hard to read.
LONGEST_IN_SECONDS_S = 600.0
FIRST = "read stacks/ in the attempt's folder for where each rank stands, and its last lines (seatrial logs RUN{rank})"
SUSPENDED = (
    "a rank that is not heard of was suspended (SIGSTOP), has died, or is in a call that keeps Python's interpreter lock; "
    "a full or hung file system silences it too"
)
COLLECTIVE = (
    "usual causes: a collective that not every rank reaches, a network or GPU that does not answer, a rank with more batches than another"
)
LOADER = "usual causes: a worker of the data loader that died or waits, storage that does not answer"
BETWEEN = "put evaluation and saving into probe.pause(NAME), which is never taken for a stall"


def text_of(stall: Stall, progress: Progress) -> str:
    """One sentence: what, for how long, against which limit, and who stands where."""
    return f"{_what(stall, progress)}{_where(stall, progress)}"


def action_of(stall: Stall) -> str:
    """What to look at, the usual causes, and the key to raise where nothing is wrong."""
    rank = f" --rank {stall.culprit.rank}" if stall.culprit else ""
    key = "limits.stall.floor_s" if stall.key == "limits.stall" else stall.key
    return f"{FIRST.format(rank=rank)}; {_causes(stall)}; raise {key} where this is no fault"


def _what(stall: Stall, progress: Progress) -> str:
    still = _seconds(stall.still_s)
    if stall.num_done and stall.culprit is None:
        return f"every rank is done, but for {still} the run has neither ended nor printed anything ({_limit(stall)})"
    if stall.culprit is None:
        missing = "no output" if progress.step is None else "no step and no output"
        return f"{missing} for {still} ({_limit(stall)})"
    step = stall.culprit.step
    if step is None and stall.silent_s is None:
        return f"no step for {still} since a rank was started anew ({_limit(stall)})"
    if step is not None and progress.total is not None and step >= progress.total - 1:
        return f"all {progress.total} steps are taken, but for {still} the run has not come to its end ({_limit(stall)})"
    return f"no step for {still} ({_limit(stall)})"


def _limit(stall: Stall) -> str:
    larger = ", the larger of it and limits.stall" if stall.key == START_KEY else ""
    pace = f"; steps took {format_duration(stall.iter_ms_p50 / 1000)} before" if stall.iter_ms_p50 else ""
    return f"limit {_seconds(stall.limit_s)}: {stall.key}{larger}{pace}"


def _where(stall: Stall, progress: Progress) -> str:
    if stall.culprit is None:
        return f"; the last it told was step {progress.step}" if progress.step is not None and not stall.num_done else ""
    done = f"; {_ranks(stall.num_done)} done" if stall.num_done else ""
    return f"; {_stand(stall, stall.culprit)}{done}"


def _stand(stall: Stall, culprit: RankStanding) -> str:
    alike = all(other.step == culprit.step and other.phase == culprit.phase for other in stall.others)
    if stall.others and alike and stall.silent_s is None:
        return f"all {len(stall.others) + 1} ranks stand {_at(culprit)} in '{culprit.phase}'"
    own = f"rank {culprit.rank} stands {_at(culprit)} in '{culprit.phase}'"
    if stall.silent_s is not None:
        own = f"rank {culprit.rank} has not been heard of for {_seconds(stall.silent_s)}, and was {_at(culprit)} in '{culprit.phase}' then"
    return f"{own}{_others(stall, culprit)}"


def _others(stall: Stall, culprit: RankStanding) -> str:
    if not stall.others:
        return ""
    name = "the other" if len(stall.others) == 1 else "the others"
    going = [other for other in stall.others if other.rank in stall.moving]
    if len(going) == len(stall.others):
        return f", {name} {'goes' if len(going) == 1 else 'go'} on {_range(going)}"
    if all(other.step == culprit.step for other in stall.others):
        phases = sorted({f"'{other.phase}'" for other in stall.others})
        return f", {name} at the same step in {' or '.join(phases)}"
    return f", {name} {_range(stall.others)}"


def _at(standing: RankStanding) -> str:
    return "before its first step" if standing.step is None else f"at step {standing.step}"


def _range(standings: Sequence[RankStanding]) -> str:
    steps = [standing.step for standing in standings if standing.step is not None]
    if not steps:
        return "before the first step"
    return f"at {min(steps)}" if min(steps) == max(steps) else f"at {min(steps)} to {max(steps)}"


def _ranks(count: int) -> str:
    return "1 rank is" if count == 1 else f"{count} ranks are"


def _causes(stall: Stall) -> str:
    if stall.silent_s is not None:
        return SUSPENDED
    if stall.key == QUIET_KEY or stall.culprit is None:
        return COLLECTIVE
    return {"data_wait": LOADER, BETWEEN_STEPS: BETWEEN}.get(stall.culprit.phase, COLLECTIVE)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < LONGEST_IN_SECONDS_S else format_duration(seconds)
