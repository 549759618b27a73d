"""When a run and a campaign will end, each with its 90 % interval.

In: the ranks' last steps, polled, and the durations of finished runs. Out: `RunEstimate` and `TimeLeft`, None where nothing
can be estimated. The current time is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from seatrial.observe.progress import LastStep
from seatrial.records.eta import GLOBAL_MAX, RANK0, Z_90, EtaEstimate, EtaEstimator
from seatrial.records.plan import RunSpec

FALLBACK = "fallback_local"
# Assumed spread of a run around its group's only run, or around the mean of all while the group has none.
UNKNOWN_REPEAT_RATIO = 0.05
UNKNOWN_GROUP_RATIO = 0.3
# Latest steps slower than this: the estimate, updated every five seconds, has not caught up.
JUMP_RATIO = 1.5
# Silence counts as progress for so long: heartbeats come every five seconds, and a step may be under way.
UNSEEN_S = 6.0
UNSEEN_STEPS = 1.5


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Time from now on, with its interval."""

    eta_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """Estimate for the current run: the fields of a LiveState."""

    left: TimeLeft | None = None
    mode: str = ""
    """`rank0` or `global_max`, `fallback_local` while only a step time is known, empty while nothing is."""
    iter_ms_p50: float | None = None
    """Median step time of the slowest rank."""


class RunEtaTracker:
    """The ETA of one run from the last steps of its ranks."""

    def __init__(self, total_steps: int | None, *, mode: str = RANK0, least_samples: int = 10) -> None:
        """`mode` is the plan's `timing.eta_mode`; `off` switches off stage 1's lines and columns, not this: rank 0 is followed then."""
        self._total_steps, self._least_samples = total_steps, least_samples
        self._mode = GLOBAL_MAX if mode == GLOBAL_MAX else RANK0
        self._estimators: dict[int, EtaEstimator] = {}
        self._latest: dict[int, LastStep] = {}

    def update(self, last_steps: Sequence[LastStep], now_t: float) -> RunEstimate:
        """Add the last step of every rank and estimate what is left at `now_t`, by the same clock as their `step_t`."""
        for last in last_steps:
            self._add(last)
        slowest_ms = max((last.iter_ms_p50 for last in last_steps if last.iter_ms_p50 is not None), default=None)
        estimate = self.global_max(now_t) if self._mode == GLOBAL_MAX else self.rank0(now_t)
        if estimate is not None and (slowest_ms or 0.0) <= JUMP_RATIO * estimate.basis_iter_ms:
            left = TimeLeft(eta_s=estimate.eta_s, low_s=estimate.low_s, high_s=estimate.high_s)
            return RunEstimate(left=left, mode=self._mode, iter_ms_p50=slowest_ms)
        guess = self._guess(last_steps, slowest_ms, now_t)
        return RunEstimate(left=guess, mode=FALLBACK if guess else "", iter_ms_p50=slowest_ms)

    def rank0(self, now_t: float) -> EtaEstimate | None:
        """The estimate of the lowest rank that reports steps."""
        return self._estimate_of(min(self._latest), now_t) if self._latest else None

    def global_max(self, now_t: float) -> EtaEstimate | None:
        """The estimate of the rank that needs the longest."""
        estimates = [estimate for rank in self._latest if (estimate := self._estimate_of(rank, now_t))]
        return max(estimates, key=lambda estimate: estimate.eta_s, default=None)

    def _add(self, last: LastStep) -> None:
        if self._total_steps is None or self._latest.get(last.rank) == last:
            return
        self._latest[last.rank] = last
        estimator = self._estimators.setdefault(last.rank, EtaEstimator(self._total_steps, self._least_samples))
        estimator.add(last.step, last.step_t, last.paused_s)

    def _estimate_of(self, rank: int, now_t: float) -> EtaEstimate | None:
        """The rank's estimate less the time since its last step, as long as unreported steps may have ended."""
        estimate = self._estimators[rank].estimate()
        if estimate is None:
            return None
        passed_s = _unseen_s(now_t - self._latest[rank].step_t, estimate.basis_iter_ms)
        eta_s, low_s, high_s = (max(value - passed_s, 0.0) for value in (estimate.eta_s, estimate.low_s, estimate.high_s))
        return replace(estimate, eta_s=eta_s, low_s=low_s, high_s=high_s)

    def _guess(self, last_steps: Sequence[LastStep], slowest_ms: float | None, now_t: float) -> TimeLeft | None:
        """Remaining steps at the latest median step time, as stage 1's driver does before there is an estimate."""
        if self._total_steps is None or slowest_ms is None:
            return None
        last = min(last_steps, key=lambda last: last.step)
        eta_s = max(self._total_steps - 1 - last.step, 0) * slowest_ms / 1000
        eta_s = max(eta_s - _unseen_s(now_t - last.step_t, slowest_ms), 0.0)
        return TimeLeft(eta_s=eta_s, low_s=eta_s * (1 - UNKNOWN_GROUP_RATIO), high_s=eta_s * (1 + UNKNOWN_GROUP_RATIO))


def _unseen_s(passed_s: float, iter_ms: float) -> float:
    """How much of the time since the last reported step may have gone into steps that are not reported yet."""
    return min(max(passed_s, 0.0), max(UNSEEN_S, UNSEEN_STEPS * iter_ms / 1000))


@dataclass(frozen=True, kw_only=True)
class CurrentRun:
    group_key: str
    elapsed_s: float
    """Since its launch: start-up counts, as in the durations of finished runs."""
    left: TimeLeft | None = None


def campaign_eta(
    remaining: Sequence[RunSpec],
    durations_s: Mapping[str, Sequence[float]],
    current: CurrentRun | None = None,
    *,
    budget_left_s: float | None = None,
) -> TimeLeft | None:
    """What is left of the current run and every run of `remaining`, each by its group's durations so far (`durations_s`, by group key),
    else by all.

    A run that would exceed the budget is not started, so it and those after it do not count.
    """
    known = _Durations(durations_s, current)
    if not known:
        return None
    parts = [known.rest_of(current)] if current else []
    until_s = sum(part.mean_s for part in parts)
    for spec in remaining:
        if budget_left_s is not None and until_s + known.finished_mean_s(spec.group_key) > budget_left_s:
            break
        parts.append(known.of(spec.group_key))
        until_s += parts[-1].mean_s
    return _sum(parts)


@dataclass(frozen=True, kw_only=True)
class _Duration:
    """Expected duration of one run; `shared` uncertainty is the same for all runs of its group and does not average out."""

    mean_s: float
    own_sd_s: float
    shared_sd_s: float
    group_key: str


class _Durations:
    """Durations of the runs so far, and of the current one, as a forecast for runs to come."""

    def __init__(self, durations_s: Mapping[str, Sequence[float]], current: CurrentRun | None) -> None:
        self._seen = {key: list(durations) for key, durations in durations_s.items() if durations}
        self._finished_mean_s = {key: fmean(durations) for key, durations in self._seen.items()}
        if current is not None and current.left is not None:
            self._seen.setdefault(current.group_key, []).append(current.elapsed_s + current.left.eta_s)
        means_s = [fmean(durations) for durations in self._seen.values()]
        self._typical_s = fmean(means_s) if means_s else 0.0
        self._between_s = max(stdev(means_s), 0.0) if len(means_s) > 1 else self._typical_s * UNKNOWN_GROUP_RATIO

    def __bool__(self) -> bool:
        return bool(self._seen)

    def of(self, group_key: str) -> _Duration:
        durations = self._seen.get(group_key)
        if not durations:
            own_s = self._typical_s * UNKNOWN_REPEAT_RATIO
            return _Duration(mean_s=self._typical_s, own_sd_s=own_s, shared_sd_s=self._between_s, group_key=group_key)
        mean_s = fmean(durations)
        # A few repeats that happen to agree do not bound the next one.
        own_s = max(stdev(durations), 0.01 * mean_s) if len(durations) > 2 else mean_s * UNKNOWN_REPEAT_RATIO
        return _Duration(mean_s=mean_s, own_sd_s=own_s, shared_sd_s=own_s / math.sqrt(len(durations)), group_key=group_key)

    def finished_mean_s(self, group_key: str) -> float:
        """Mean duration of the group, by which the campaign decides whether a run still fits; 0 without a finished run."""
        return self._finished_mean_s.get(group_key, 0.0)

    def rest_of(self, current: CurrentRun) -> _Duration:
        if current.left is None:
            whole = self.of(current.group_key)
            return replace(whole, mean_s=max(whole.mean_s - current.elapsed_s, 0.0))
        sd_s = (current.left.high_s - current.left.low_s) / (2 * Z_90)
        return _Duration(mean_s=current.left.eta_s, own_sd_s=sd_s, shared_sd_s=0.0, group_key=current.group_key)


def _sum(parts: Sequence[_Duration]) -> TimeLeft:
    eta_s = sum(part.mean_s for part in parts)
    shared_s: dict[str, float] = {}
    for part in parts:
        shared_s[part.group_key] = shared_s.get(part.group_key, 0.0) + part.shared_sd_s
    spread_s = Z_90 * math.sqrt(sum(part.own_sd_s**2 for part in parts) + sum(value**2 for value in shared_s.values()))
    return TimeLeft(eta_s=eta_s, low_s=max(eta_s - spread_s, 0.0), high_s=eta_s + spread_s)
