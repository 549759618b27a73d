"""When a run and a campaign will end, from what has been seen so far, each with the interval it is expected in nine times of ten.

In: the ranks' marks of every look at a run, and the lengths of the runs that are over. Out: `RunLeft` and `TimeLeft`, None where
nothing can be said. No clock in here: the time of a look is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from seatrial.eta.estimator import Z_90, EtaEstimator
from seatrial.observe.progress import RankMark
from seatrial.records.eta import GLOBAL_MAX, RANK0, EtaEstimate
from seatrial.records.run_spec import RunSpec

FALLBACK = "fallback_local"
# How far a run may be off the mean of its group while only one was seen, and off the mean of all while none was.
UNKNOWN_REPEAT_RATIO = 0.05
UNKNOWN_GROUP_RATIO = 0.3
# The newest steps are so much slower than an estimate that hears of a run every five seconds: it has not caught up yet.
JUMP_RATIO = 1.5
# A heartbeat comes every five seconds, and a step may be under way: for so long silence is taken for progress, and no longer.
UNTOLD_S = 6.0
UNTOLD_STEPS = 1.5


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Time from now on, with its interval."""

    eta_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class RunLeft:
    """What can be said of the run under way: the fields of a LiveState."""

    left: TimeLeft | None = None
    mode: str = ""
    """`rank0` or `global_max`, `fallback_local` while only a pace is known, nothing while nothing is."""
    iter_ms_p50: float | None = None
    """Of the slowest rank."""


class RunEta:
    """The marks of all ranks of one run, look by look."""

    def __init__(self, total_steps: int | None, *, mode: str = RANK0, least_samples: int = 10) -> None:
        """`mode` is the plan's `timing.eta_mode`; `off` silences the seeds' lines and columns, not this: rank 0 is followed then."""
        self._total_steps, self._least_samples = total_steps, least_samples
        self._mode = GLOBAL_MAX if mode == GLOBAL_MAX else RANK0
        self._estimators: dict[int, EtaEstimator] = {}
        self._newest: dict[int, RankMark] = {}

    def look(self, marks: Sequence[RankMark], now_t: float) -> RunLeft:
        """Take in the newest mark of every rank, and say what is left at `now_t`, by the same clock as the marks' `step_t`."""
        for mark in marks:
            self._add(mark)
        paces = [mark.iter_ms_p50 for mark in marks if mark.iter_ms_p50 is not None]
        slowest_ms = max(paces, default=None)
        estimate = self.global_max(now_t) if self._mode == GLOBAL_MAX else self.rank0(now_t)
        if estimate is not None and (slowest_ms or 0.0) <= JUMP_RATIO * estimate.basis_iter_ms:
            return RunLeft(left=_left(estimate), mode=self._mode, iter_ms_p50=slowest_ms)
        guess = self._guess(marks, slowest_ms, now_t)
        return RunLeft(left=guess, mode=FALLBACK if guess else "", iter_ms_p50=slowest_ms)

    def rank0(self, now_t: float) -> EtaEstimate | None:
        """The estimate of the lowest rank that tells its steps."""
        return self._of_rank(min(self._newest), now_t) if self._newest else None

    def global_max(self, now_t: float) -> EtaEstimate | None:
        """The estimate of the rank that needs the longest."""
        estimates = [found for rank in self._newest if (found := self._of_rank(rank, now_t))]
        return max(estimates, key=lambda estimate: estimate.eta_s, default=None)

    def _add(self, mark: RankMark) -> None:
        if self._total_steps is None or self._newest.get(mark.rank) == mark:
            return
        self._newest[mark.rank] = mark
        estimator = self._estimators.setdefault(mark.rank, EtaEstimator(self._total_steps, self._least_samples))
        estimator.add(mark.step, mark.step_t, mark.paused_s)

    def _of_rank(self, rank: int, now_t: float) -> EtaEstimate | None:
        """Its estimate less the time that has passed since its newest step, as long as steps may have ended that nobody has told of."""
        estimate = self._estimators[rank].estimate()
        if estimate is None:
            return None
        passed_s = _untold_s(now_t - self._newest[rank].step_t, estimate.basis_iter_ms)
        eta_s, low_s, high_s = (max(value - passed_s, 0.0) for value in (estimate.eta_s, estimate.low_s, estimate.high_s))
        return replace(estimate, eta_s=eta_s, low_s=low_s, high_s=high_s)

    def _guess(self, marks: Sequence[RankMark], slowest_ms: float | None, now_t: float) -> TimeLeft | None:
        """Steps to go by the newest median step time alone, as the seeds' driver does before there is an estimate."""
        if self._total_steps is None or slowest_ms is None:
            return None
        last = min(marks, key=lambda mark: mark.step)
        eta_s = max(self._total_steps - 1 - last.step, 0) * slowest_ms / 1000
        eta_s = max(eta_s - _untold_s(now_t - last.step_t, slowest_ms), 0.0)
        return TimeLeft(eta_s=eta_s, low_s=eta_s * (1 - UNKNOWN_GROUP_RATIO), high_s=eta_s * (1 + UNKNOWN_GROUP_RATIO))


def _untold_s(passed_s: float, iter_ms: float) -> float:
    """How much of the time since a step was heard of may have gone into steps that nobody has told of yet."""
    return min(max(passed_s, 0.0), max(UNTOLD_S, UNTOLD_STEPS * iter_ms / 1000))


def _left(estimate: EtaEstimate) -> TimeLeft:
    return TimeLeft(eta_s=estimate.eta_s, low_s=estimate.low_s, high_s=estimate.high_s)


@dataclass(frozen=True, kw_only=True)
class CurrentRun:
    """The run under way."""

    group_key: str
    elapsed_s: float
    """Since its launch: start-up counts, as it does in the lengths of the runs that are over."""
    left: TimeLeft | None = None


def campaign_eta(
    todo: Sequence[RunSpec],
    lengths_s: Mapping[str, Sequence[float]],
    current: CurrentRun | None = None,
    *,
    budget_left_s: float | None = None,
) -> TimeLeft | None:
    """The current run's rest and every run of `todo`, each by its group's lengths so far (`lengths_s`, by group key), else by all.

    A run that would end beyond the budget is not started, so it and those after it do not count.
    """
    known = _Lengths(lengths_s, current)
    if not known:
        return None
    parts = [known.rest_of(current)] if current else []
    until_s = sum(part.mean_s for part in parts)
    for spec in todo:
        if budget_left_s is not None and until_s + known.least_s(spec.group_key) > budget_left_s:
            break
        parts.append(known.of(spec.group_key))
        until_s += parts[-1].mean_s
    return _sum(parts)


@dataclass(frozen=True, kw_only=True)
class _Length:
    """How long one run is expected to take; `shared` uncertainty is the same for all runs of its group and does not average out."""

    mean_s: float
    own_sd_s: float
    shared_sd_s: float
    group_key: str


class _Lengths:
    """What the runs so far, and the one under way, say of runs to come."""

    def __init__(self, lengths_s: Mapping[str, Sequence[float]], current: CurrentRun | None) -> None:
        self._seen = {key: list(lengths) for key, lengths in lengths_s.items() if lengths}
        self._known_only = {key: fmean(lengths) for key, lengths in self._seen.items()}
        if current is not None and current.left is not None:
            self._seen.setdefault(current.group_key, []).append(current.elapsed_s + current.left.eta_s)
        means_s = [fmean(lengths) for lengths in self._seen.values()]
        self._typical_s = fmean(means_s) if means_s else 0.0
        self._between_s = max(stdev(means_s), 0.0) if len(means_s) > 1 else self._typical_s * UNKNOWN_GROUP_RATIO

    def __bool__(self) -> bool:
        return bool(self._seen)

    def of(self, group_key: str) -> _Length:
        lengths = self._seen.get(group_key)
        if not lengths:
            own_s = self._typical_s * UNKNOWN_REPEAT_RATIO
            return _Length(mean_s=self._typical_s, own_sd_s=own_s, shared_sd_s=self._between_s, group_key=group_key)
        mean_s = fmean(lengths)
        # Few repeats that happen to agree say little of the next one.
        own_s = max(stdev(lengths), 0.01 * mean_s) if len(lengths) > 2 else mean_s * UNKNOWN_REPEAT_RATIO
        return _Length(mean_s=mean_s, own_sd_s=own_s, shared_sd_s=own_s / math.sqrt(len(lengths)), group_key=group_key)

    def least_s(self, group_key: str) -> float:
        """What the campaign itself goes by when it decides whether a run still fits: nothing for a group that no run of is over."""
        return self._known_only.get(group_key, 0.0)

    def rest_of(self, current: CurrentRun) -> _Length:
        if current.left is None:
            whole = self.of(current.group_key)
            return replace(whole, mean_s=max(whole.mean_s - current.elapsed_s, 0.0))
        sd_s = (current.left.high_s - current.left.low_s) / (2 * Z_90)
        return _Length(mean_s=current.left.eta_s, own_sd_s=sd_s, shared_sd_s=0.0, group_key=current.group_key)


def _sum(parts: Sequence[_Length]) -> TimeLeft:
    eta_s = sum(part.mean_s for part in parts)
    shared_s: dict[str, float] = {}
    for part in parts:
        shared_s[part.group_key] = shared_s.get(part.group_key, 0.0) + part.shared_sd_s
    spread_s = Z_90 * math.sqrt(sum(part.own_sd_s**2 for part in parts) + sum(value**2 for value in shared_s.values()))
    return TimeLeft(eta_s=eta_s, low_s=max(eta_s - spread_s, 0.0), high_s=eta_s + spread_s)
