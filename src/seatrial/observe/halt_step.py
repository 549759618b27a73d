"""The step before which all ranks can be asked to end together, so that none waits in a collective for one that has gone.

In: progress and the wall clock. Out: a step number that no rank has begun yet, as far as can be known, and that comes soon.
"""

from __future__ import annotations

import math

from seatrial.observe.progress import Progress, RankMark, RankStanding

# The probe looks for the request every half second, on a disk that may be slow to show it.
AHEAD_S = 2.0
LEAST_AHEAD_STEPS = 2
# A rank that was heard of longer ago, or by a clock that was set, is not taken to have gone on at its pace all the while.
LONGEST_AGE_S = 60.0
# Shorter steps than this are no training, and would make the number absurd.
LEAST_ITER_S = 0.0001
NOT_BEGUN = -1


def halt_step(progress: Progress, now_t: float) -> int:
    """Two seconds of steps, and at least two, beyond the furthest that any rank can have ended by `now_t`."""
    standings = {standing.rank: standing for standing in progress.standings}
    going_on = [mark for mark in progress.ranks if not (mark.rank in standings and standings[mark.rank].is_done)]
    ahead = (_halt_of(mark, standings.get(mark.rank), now_t) for mark in going_on or progress.ranks)
    return max(ahead, default=NOT_BEGUN + 1 + LEAST_AHEAD_STEPS)


def _halt_of(mark: RankMark, standing: RankStanding | None, now_t: float) -> int:
    if not mark.iter_ms_p50:
        return mark.step + LEAST_AHEAD_STEPS
    iter_s = max(mark.iter_ms_p50 / 1000, LEAST_ITER_S)
    ended = mark.step + math.floor(_untold_s(mark, standing, iter_s, now_t) / iter_s)
    return ended + max(LEAST_AHEAD_STEPS, math.ceil(AHEAD_S / iter_s))


def _untold_s(mark: RankMark, standing: RankStanding | None, iter_s: float, now_t: float) -> float:
    """Time in which steps may have ended that nobody has told of.

    At its newest beat a rank was in the step after the one it told, so of the time before that beat one step's counts at most: a rank
    that has stood still for long is not far ahead.
    """
    since_t = max(mark.step_t, standing.beat_ts - iter_s) if standing and standing.beat_ts <= now_t else mark.step_t
    return min(max(now_t - since_t, 0.0), LONGEST_AGE_S)
