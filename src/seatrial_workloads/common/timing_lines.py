"""Timing lines for people, from the same numbers as the events. In: the probe's newest steps. Out: text, one string a line.

Timing(window=100): data_wait_ms:p50=0.41 p90=0.52 | preprocess_ms:p50=… | fwd_ms:… | bwd_ms:… | step_ms:… | iter_ms:p50=51.02 p90=53.40
TimingETA step=50 remain_steps=149 eta_sec=7.6 eta_hms=00:00:08 mode=rank0 basis_iter_ms=51.11 samples=50
TimingRank step=50 rank=1 loss=3.2710 data_wait=0.42 preprocess=0.00 fwd=17.90 bwd=28.80 step=4.90 iter=52.02

`iter` is the sum of the five phases. A GPU's phases are known of some steps only: those count, and what is not known is `nan`. The time
to go is wall clock, pauses included.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.eta.estimator import EtaEstimator
from seatrial.probe import StepRecord
from seatrial.probe.identity import RANK_SCOPES, whole_number
from seatrial.records import events
from seatrial.records.eta import GLOBAL_MAX, OFF, RANK0, EtaEstimate

ETA_MODES = (RANK0, GLOBAL_MAX, OFF)
COLUMNS = (*events.PHASES, "iter_ms")
FWD, BWD = events.PHASES.index("fwd_ms"), events.PHASES.index("bwd_ms")

Largest = Callable[[Sequence[float]], list[float]]
"""Of each number, the largest that any rank gave; every rank must call it."""


@dataclass(frozen=True, kw_only=True)
class LineChoices:
    """Which lines are said, as the plan asks."""

    window: int = 100
    """Steps in the rolling window of a Timing line."""
    eta_mode: str = RANK0
    eta_min_samples: int = 10
    """Steps that must have been timed before a time to go is said."""
    rank_scope: str = "rank0"
    """`all`: every rank says a TimingRank line of its own."""

    def __post_init__(self) -> None:
        for name, value, words in (("ETA mode", self.eta_mode, ETA_MODES), ("rank scope", self.rank_scope, RANK_SCOPES)):
            if value not in words:
                raise ValueError(f"the {name} is '{value}'; expected one of {', '.join(words)}")
        for name, number in (("timing window", self.window), ("least number of samples for an ETA", self.eta_min_samples)):
            if number < 1:
                raise ValueError(f"the {name} is {number}; expected 1 or more")


def choices_from(env: Mapping[str, str] = os.environ) -> LineChoices:
    """What the harness set; the defaults where a workload is started by hand."""
    default = LineChoices()
    return LineChoices(
        window=whole_number(env, events.ENV_TIMING_WINDOW, default.window),
        eta_mode=env.get(events.ENV_ETA_MODE) or default.eta_mode,
        eta_min_samples=whole_number(env, events.ENV_ETA_MIN_SAMPLES, default.eta_min_samples),
        rank_scope=env.get(events.ENV_RANK_SCOPE) or default.rank_scope,
    )


class TimingLines:
    """The timing lines of one rank; asked at logged steps, by every rank at the same ones."""

    def __init__(
        self,
        rank: int,
        total_steps: int,
        recent: Callable[[], Sequence[StepRecord]],
        largest: Largest = list,
        choices: LineChoices | None = None,
    ) -> None:
        self._rank, self._total_steps = rank, total_steps
        self._recent, self._largest = recent, largest
        self._choices = choices or choices_from()
        self._eta = EtaEstimator(total_steps, self._choices.eta_min_samples)
        self._fed = -1

    def of_step(self, step: int, loss: float) -> list[str]:
        """What this rank has to say of the step that has just ended."""
        choices, newest = self._choices, self._recent()
        said = [timing_line(newest, choices.window)] if newest and self._rank == 0 else []
        if choices.eta_mode != OFF:
            said += self._eta_lines(step, newest)
        if newest and choices.rank_scope == "all":
            said.append(rank_line(step, self._rank, loss, newest[-1]))
        return said

    def _eta_lines(self, step: int, newest: Sequence[StepRecord]) -> list[str]:
        if self._rank != 0 and self._choices.eta_mode == RANK0:
            return []
        for record in newest:
            if record.step > self._fed:
                self._eta.add(record.step, record.m, record.paused_s)
                self._fed = record.step
        estimate = self._eta.estimate()
        eta_s, basis_ms = (estimate.eta_s, estimate.basis_iter_ms) if estimate else (0.0, 0.0)
        if self._choices.eta_mode == GLOBAL_MAX:
            # A rank that cannot say yet, or has no steps at all, must still take part, or the others would wait for it.
            eta_s, basis_ms = self._largest([eta_s, basis_ms])
        if estimate is None or self._rank != 0:
            return []
        return [eta_line(step, self._total_steps - 1 - step, eta_s, basis_ms, self._choices.eta_mode, estimate)]


def timing_line(newest: Sequence[StepRecord], window: int) -> str:
    """Percentiles over the rolling window that ends with the newest step."""
    rows = [values for record in newest[-window:] if (values := seed_values(record))]
    parts = []
    for column, name in enumerate(COLUMNS):
        known = sorted(value for row in rows if (value := row[column]) is not None)
        parts.append(f"{name}:p50={quantile(known, 0.5):.2f} p90={quantile(known, 0.9):.2f}")
    return f"Timing(window={window}): {' | '.join(parts)}"


def eta_line(step: int, remain_steps: int, eta_s: float, basis_ms: float, mode: str, estimate: EtaEstimate) -> str:
    return (
        f"TimingETA step={step} remain_steps={remain_steps} eta_sec={eta_s:.1f} eta_hms={hms(eta_s)} mode={mode} "
        f"basis_iter_ms={basis_ms:.2f} samples={estimate.samples}"
    )


def rank_line(step: int, rank: int, loss: float, record: StepRecord) -> str:
    """The step itself, not a window."""
    values = seed_values(record) or (None,) * len(COLUMNS)
    told = (f"{name.removesuffix('_ms')}={math.nan if value is None else value:.2f}" for name, value in zip(COLUMNS, values, strict=True))
    return f"TimingRank step={step} rank={rank} loss={loss:.4f} {' '.join(told)}"


def seed_values(record: StepRecord) -> tuple[float | None, ...] | None:
    """The five phases and their sum; None for a step whose forward and backward are not known."""
    phases = record.phases_ms
    if phases[FWD] is None or phases[BWD] is None:
        return None
    return (*phases, sum(value for value in phases if value is not None))


def quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation; NaN of nothing."""
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def hms(seconds: float) -> str:
    """HH:MM:SS, seconds rounded up."""
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
