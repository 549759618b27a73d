"""A run without processes: ranks that step, stop, pause and beat to order, looked at once a second by a clock that is a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from seatrial.observe.progress import Progress, RankMark, RankStanding
from seatrial.observe.stall import Stall, StallWatch
from seatrial.records.run_spec import LimitsSpec, StallSpec

HEARTBEAT_S = 5.0
# The harness was started long before, and its monotonic clock has nothing to do with the wall clock.
MONOTONIC_0 = 50_000.0
WALL_0 = 1_790_000_000.0
LIMITS = LimitsSpec(start_s=900.0, stall=StallSpec(factor=20.0, floor_s=180.0))


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Steps of `iter_s` from 10 s on until `stops_s`, then `phase` for ever, or until `resumes_s`."""

    rank: int
    iter_s: float = 1.0
    stops_s: float = math.inf
    resumes_s: float = math.inf
    phase: str = "bwd"
    beats_until_s: float = math.inf
    first_s: float = 10.0
    total: int | None = None
    first_step: int = 0
    stride: int = 1

    def state(self, t: float) -> tuple[int | None, str, float]:
        """Last ended step, phase, and when that step ended."""
        stood_s = min(max(t - self.stops_s, 0.0), self.resumes_s - self.stops_s)
        run_s = t - stood_s - self.first_s
        if run_s < 0:
            return None, "startup:model", 0.0
        count = math.floor(run_s / self.iter_s)
        if self.total is not None and count >= self.total - 1:
            count, phase = self.total - 1, self.phase
        else:
            phase = self.phase if self.stops_s <= t < self.resumes_s else "fwd"
        ended_s = self.first_s + count * self.iter_s
        return self.first_step + count * self.stride, phase, ended_s

    def beat_s(self, t: float) -> float:
        """When the newest heartbeat at `t` was written; each rank's come at moments of its own."""
        offset_s = 0.61 * self.rank % HEARTBEAT_S
        newest_s = offset_s + HEARTBEAT_S * math.floor((t - offset_s) / HEARTBEAT_S)
        while newest_s > self.beats_until_s:
            newest_s -= HEARTBEAT_S
        return newest_s


Ranks = Sequence[Rank]
Clock = Callable[[float], float]


def progress_at(t: float, ranks: Ranks, wall: Clock = lambda t: WALL_0 + t, total: int | None = None) -> Progress:
    """What ProgressReader would say."""
    standings, marks = [], []
    for rank in ranks:
        beat_s = rank.beat_s(t)
        step, phase, ended_s = rank.state(beat_s)
        standings.append(
            RankStanding(rank=rank.rank, step=step, phase=phase, pid=100 + rank.rank, beat_ts=wall(beat_s), beat_bytes=round(300 * beat_s))
        )
        if step is not None:
            marks.append(RankMark(rank=rank.rank, step=step, step_t=wall(ended_s), iter_ms_p50=rank.iter_s * 1000))
    steps = [standing.step for standing in standings if standing.step is not None]
    everyone = len(steps) == len(standings)
    return Progress(
        step=min(steps) if everyone else None, total=total, alive=everyone, ranks=tuple(marks), standings=tuple(standings), output_bytes=100
    )


def watch(
    at: Callable[[float], Progress], until_s: float, limits: LimitsSpec = LIMITS, looks: Iterable[float] | None = None
) -> tuple[float, Stall, Progress] | None:
    """The first stall that is found, when, and in which progress."""
    stalls = StallWatch(limits)
    for t in looks if looks is not None else map(float, range(int(until_s) + 1)):
        progress = at(t)
        stall = stalls.look(progress, MONOTONIC_0 + t)
        if stall is not None:
            return t, stall, progress
    return None


def watch_ranks(
    ranks: Ranks, until_s: float = 3600.0, limits: LimitsSpec = LIMITS, total: int | None = None
) -> tuple[float, Stall, Progress] | None:
    return watch(lambda t: progress_at(t, ranks, total=total), until_s, limits)
