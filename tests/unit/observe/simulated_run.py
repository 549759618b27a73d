"""A run without processes: ranks that step, stop and pause to order, checked once a second by a clock that is a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.observe.progress import LastStep, Progress, RankState
from seatrial.observe.stall import Stall, StallDetector
from seatrial.records.plan import LauncherSpec, LimitsSpec, PlaceSpec, RunSpec, StallSpec, WorkloadSpec

HEARTBEAT_S = 5.0
# The harness was started long before, and its monotonic clock has nothing to do with the wall clock.
MONOTONIC_0 = 50_000.0
WALL_0 = 1_790_000_000.0
LIMITS = LimitsSpec(start_s=900.0, stall=StallSpec(factor=20.0, floor_s=180.0))


def spec(**changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "run": "mb8_r1",
        "group": "mb8",
        "repeat": 1,
        "plan": "p",
        "workload": WorkloadSpec(name="train.py", script="train.py"),
        "launcher": LauncherSpec(kind="torchrun"),
        "place": PlaceSpec(ranks=2),
        "cwd": "/somewhere",
    }
    return RunSpec(**(values | changes))


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
    rank_states, last_steps = [], []
    for rank in ranks:
        beat_s = rank.beat_s(t)
        step, phase, ended_s = rank.state(beat_s)
        rank_states.append(
            RankState(
                rank=rank.rank, step=step, phase=phase, pid=100 + rank.rank, heartbeat_t=wall(beat_s), heartbeat_bytes=round(300 * beat_s)
            )
        )
        if step is not None:
            last_steps.append(LastStep(rank=rank.rank, step=step, step_t=wall(ended_s), iter_ms_p50=rank.iter_s * 1000))
    steps = [state.step for state in rank_states if state.step is not None]
    everyone = len(steps) == len(rank_states)
    return Progress(
        step=min(steps) if everyone else None,
        total=total,
        alive=everyone,
        last_steps=tuple(last_steps),
        rank_states=tuple(rank_states),
        output_bytes=100,
    )


def watch(
    at: Callable[[float], Progress], until_s: float, limits: LimitsSpec = LIMITS, looks: Iterable[float] | None = None
) -> tuple[float, Stall, Progress] | None:
    """The first stall that is found, when, and in which progress."""
    stalls = StallDetector(limits)
    for t in looks if looks is not None else map(float, range(int(until_s) + 1)):
        progress = at(t)
        stall = stalls.check(progress, MONOTONIC_0 + t)
        if stall is not None:
            return t, stall, progress
    return None


def watch_ranks(
    ranks: Ranks, until_s: float = 3600.0, limits: LimitsSpec = LIMITS, total: int | None = None
) -> tuple[float, Stall, Progress] | None:
    return watch(lambda t: progress_at(t, ranks, total=total), until_s, limits)
