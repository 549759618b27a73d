"""When a run that has begun stands still, and which rank the others wait for.

In: progress, look by look, and the monotonic clock of the harness: wall clocks may jump. Out: `Stall` or None. Pure.

With the probe, a rank stands still while the step its heartbeats tell stays the same, and its limit is the plan's. While the rank that
is furthest behind is between two steps, has taken them all or was started anew, all of them get at least as long as a start, since an
evaluation without a named pause looks like that. A named pause stops the clocks as long as its rank's heartbeat comes. Without the
probe, a script that tells its steps stands still while neither a step nor any output comes; it cannot say that it evaluates or saves,
so it gets at least as long as a start too, unless `quiet_s` says otherwise. One that tells no steps is judged by `quiet_s` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from seatrial.observe.culprit import behind, culprit_of
from seatrial.observe.progress import BETWEEN_STEPS, Progress, RankStanding
from seatrial.records.events import HEARTBEAT_EVERY_S
from seatrial.records.run_spec import LimitsSpec, StallSpec

# A longer gap between two looks means that the harness itself did not run; what it did not see it must not hold against the ranks.
HARNESS_GAP_S = 30.0
# Looks come every second, on a busy machine every few; APART_S covers what is not seen in a shorter gap.
LEAST_GAP_S = 5.0
# Ranks that stop together are heard of up to a heartbeat, a tick of the probe and a look apart. So long a rank is waited for beyond its
# limit, so that those it may be waiting for are over theirs too.
APART_S = HEARTBEAT_EVERY_S + 1.5
# A rank that is not heard of for longer has missed a beat: it is suspended, gone, or in a call that keeps the interpreter's lock.
SILENT_S = 1.6 * HEARTBEAT_EVERY_S
# A rank that moves is seen between two steps too, by chance, for as long as its next heartbeat takes.
PASSING_S = 2 * HEARTBEAT_EVERY_S
# A script prints a step now and then: of the longest time between two such lines this many are still usual.
USUAL_GAPS = 3.0
STALL_KEY, QUIET_KEY, START_KEY = "limits.stall", "limits.stall.quiet_s", "limits.start_s"


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A run that stands still."""

    still_s: float
    """Since the last step or output that was seen, or the end of what the limit does not count."""
    limit_s: float
    key: str
    """The key of the plan that set the limit."""
    culprit: RankStanding | None = None
    """The rank the others wait for, as far as can be told; None for a script without the probe."""
    silent_s: float | None = None
    """How long nothing was heard of that rank; None while its heartbeat comes."""
    others: tuple[RankStanding, ...] = ()
    """The other ranks that are not done."""
    moving: frozenset[int] = frozenset()
    """Those of them that still take steps."""
    num_done: int = 0
    iter_ms_p50: float | None = None
    """Of the slowest rank, before."""


@dataclass
class _RankClock:
    """What is remembered of one rank."""

    mark: tuple[int | None, int | None]
    """Step and pid."""
    beat: tuple[float, int]
    heard_m: float
    moved_m: float
    """The last step, or the end of a named pause."""
    judged_m: float
    """The same, or the last look at which a rank was still before or between steps: from here on the plan's own limit counts."""


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One look at ranks with the probe."""

    progress: Progress
    now_m: float
    limit_s: float
    silent: frozenset[int]
    """Ranks that are not heard of any more."""

    @property
    def going_on(self) -> list[RankStanding]:
        return [standing for standing in self.progress.standings if not standing.is_done]

    def is_between_steps(self, standing: RankStanding) -> bool:
        """What it does now may take as long as a start."""
        total = self.progress.total
        if standing.step is None:
            return standing.rank not in self.silent
        if total is not None and standing.step >= total - 1:
            return True
        # The phase of a rank that is not heard of any more is where it was, not where it is.
        return standing.phase == BETWEEN_STEPS and standing.rank not in self.silent


class StallWatch:
    """Looks at one run again and again."""

    def __init__(self, limits: LimitsSpec) -> None:
        self._stall: StallSpec = limits.stall or StallSpec()
        self._off = limits.stall is None
        self._start_s = math.inf if limits.start_s is None else limits.start_s
        self.silent: frozenset[int] = frozenset()
        """Ranks that were not heard of for long, at the last look."""
        self._clocks: dict[int, _RankClock] = {}
        self._begun = False
        self._looked_m: float | None = None
        self._output_bytes = 0
        self._output_m = 0.0
        self._told: int | None = None
        self._told_m: float | None = None
        self._longest_gap_s = 0.0

    def look(self, progress: Progress, now_m: float) -> Stall | None:
        """A stall as soon as it is one."""
        if self._off:
            return None
        before_m, self._looked_m = self._looked_m, now_m
        if before_m is None or now_m - before_m > max(LEAST_GAP_S, min(HARNESS_GAP_S, self._stall.floor_s / 2)):
            self._start_anew(now_m)
        if progress.output_bytes != self._output_bytes:
            self._output_bytes, self._output_m = progress.output_bytes, now_m
        return self._of_ranks(progress, now_m) if progress.standings else self._of_script(progress, now_m)

    def _start_anew(self, now_m: float) -> None:
        self._told_m = None if self._told_m is None else now_m
        for clock in self._clocks.values():
            clock.heard_m = now_m
        self._hold(now_m)

    def _hold(self, now_m: float) -> None:
        """What was until now is no time that counts."""
        self._output_m = now_m
        for clock in self._clocks.values():
            clock.moved_m = clock.judged_m = now_m

    def _of_ranks(self, progress: Progress, now_m: float) -> Stall | None:
        for standing in progress.standings:
            self._hear(standing, now_m)
        self.silent = silent = frozenset(rank for rank, clock in self._clocks.items() if now_m - clock.heard_m > SILENT_S)
        self._begun = self._begun or _has_begun(progress, silent)
        if not self._begun:
            return None
        look = _Look(progress=progress, now_m=now_m, limit_s=self._limit_s(progress), silent=silent)
        if any(standing.is_paused and standing.rank not in silent for standing in progress.standings):
            self._hold(now_m)
            return None
        if not look.going_on and len(progress.standings) >= progress.num_ranks:
            return self._at_the_end(look)
        if not look.going_on:
            # A rank that never came to its probe is the start limit's.
            return None
        self._wait_between_steps(look)
        return self._within_steps(look) or self._beyond_a_start(look)

    def _hear(self, standing: RankStanding, now_m: float) -> None:
        mark, beat = (standing.step, standing.pid), (standing.beat_ts, standing.beat_bytes)
        clock = self._clocks.get(standing.rank)
        if clock is None:
            self._clocks[standing.rank] = _RankClock(mark=mark, beat=beat, heard_m=now_m, moved_m=now_m, judged_m=now_m)
            return
        if clock.beat != beat:
            clock.beat, clock.heard_m = beat, now_m
        if clock.mark != mark:
            clock.mark, clock.heard_m = mark, now_m
            clock.moved_m = clock.judged_m = now_m

    def _limit_s(self, progress: Progress) -> float:
        slowest_ms = _slowest_ms(progress)
        if slowest_ms is None:
            # Nothing is known of its pace yet.
            return max(self._stall.floor_s, self._start_s)
        return max(self._stall.floor_s, self._stall.factor * slowest_ms / 1000)

    def _wait_between_steps(self, look: _Look) -> None:
        """The plan's own limit does not count while those that the others wait for are between steps, and more than in passing."""
        for standing in behind(look.going_on):
            stood_s = look.now_m - self._clocks[standing.rank].moved_m
            if look.is_between_steps(standing) and (standing.step is None or stood_s >= PASSING_S):
                for clock in self._clocks.values():
                    clock.judged_m = look.now_m
                return

    def _within_steps(self, look: _Look) -> Stall | None:
        still_s = {standing.rank: look.now_m - self._clocks[standing.rank].judged_m for standing in look.going_on}
        return self._stall_of(still_s, look.limit_s, STALL_KEY, look)

    def _beyond_a_start(self, look: _Look) -> Stall | None:
        still_s = {standing.rank: look.now_m - self._clocks[standing.rank].moved_m for standing in look.going_on}
        key = START_KEY if self._start_s > look.limit_s else STALL_KEY
        return self._stall_of(still_s, max(look.limit_s, self._start_s), key, look)

    def _stall_of(self, still_s: dict[int, float], limit_s: float, key: str, look: _Look) -> Stall | None:
        # A rank that has not come to its first step is always one that others may wait for.
        still = [standing for standing in look.going_on if standing.step is None or still_s[standing.rank] >= limit_s]
        last = behind(still) if still else []
        longest_s = max((still_s[standing.rank] for standing in last), default=0.0)
        if longest_s < limit_s + APART_S:
            return None
        culprit = culprit_of(last, look.silent)
        return Stall(
            still_s=longest_s,
            limit_s=limit_s,
            key=key,
            culprit=culprit,
            silent_s=look.now_m - self._clocks[culprit.rank].heard_m if culprit.rank in look.silent else None,
            others=tuple(standing for standing in look.going_on if standing.rank != culprit.rank),
            moving=frozenset(rank for rank, seconds in still_s.items() if seconds < limit_s),
            num_done=len(look.progress.standings) - len(look.going_on),
            iter_ms_p50=_slowest_ms(look.progress),
        )

    def _at_the_end(self, look: _Look) -> Stall | None:
        """Every rank has said that it is done; a script may still have something to say after that."""
        limit_s = max(look.limit_s, self._start_s)
        since_m = max(self._output_m, *(clock.heard_m for clock in self._clocks.values()))
        if look.now_m - since_m < limit_s:
            return None
        key = STALL_KEY if limit_s == look.limit_s else START_KEY
        return Stall(still_s=look.now_m - since_m, limit_s=limit_s, key=key, num_done=len(look.progress.standings))

    def _of_script(self, progress: Progress, now_m: float) -> Stall | None:
        self._hear_script(progress, now_m)
        limit_s, key = self._script_limit(progress)
        still_s = now_m - max(self._output_m, self._told_m or 0.0)
        if not progress.alive or still_s < limit_s:
            return None
        return Stall(still_s=still_s, limit_s=limit_s, key=key, iter_ms_p50=_slowest_ms(progress))

    def _hear_script(self, progress: Progress, now_m: float) -> None:
        if progress.step == self._told:
            return
        if self._told_m is not None:
            self._longest_gap_s = max(self._longest_gap_s, now_m - self._told_m)
        self._told, self._told_m = progress.step, now_m

    def _script_limit(self, progress: Progress) -> tuple[float, str]:
        if self._stall.quiet_s is not None:
            return self._stall.quiet_s, QUIET_KEY
        if progress.step is None:
            return math.inf, QUIET_KEY
        limit_s = max(self._limit_s(progress), USUAL_GAPS * self._longest_gap_s)
        return (limit_s, STALL_KEY) if limit_s >= self._start_s else (self._start_s, START_KEY)


def _has_begun(progress: Progress, silent: frozenset[int]) -> bool:
    """Every rank has taken a step, or has fallen silent before it could tell of one while others did."""
    stepped = [standing.step is not None for standing in progress.standings]
    return any(stepped) and all(has or standing.rank in silent for has, standing in zip(stepped, progress.standings, strict=True))


def _slowest_ms(progress: Progress) -> float | None:
    return max((mark.iter_ms_p50 for mark in progress.ranks if mark.iter_ms_p50), default=None)
