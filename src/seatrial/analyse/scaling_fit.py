"""A step's time over the number of GPUs, fitted and projected.

In: step times of runs at several numbers of GPUs, with the work of one GPU in each. Out: `Fit`: compute, bandwidth and latency of a
step, none below 0; and what it makes of a number of GPUs that was not run, with a 95 % interval.

    T(N) = compute · w(N) + bandwidth · (N - 1) / N + latency · log2(N)

w is the work of one GPU over that at the smallest number: 1 where each GPU's work stays (weak scaling), less where the whole work does.
A ring passes (N - 1) / N of the data over every link, twice; a tree has log2(N) levels. Errors are shares of a time, so every row is
weighed by its own. Two sizes cannot tell bandwidth from latency: each alone is fitted, and a projection's interval holds both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

PARTS = ("compute", "bandwidth", "latency")
RESAMPLES = 300
"""Enough for the 2.5 % and 97.5 % points to hold to a few percent of the interval's width."""
ROUNDING = 1e-12
"""Of the largest part: less than this is what rounding leaves of none."""
SEED = 7
LOW_PCT, HIGH_PCT = 2.5, 97.5
Floats = npt.NDArray[np.float64]
Model = tuple[int, ...]
"""Which of the parts are fitted."""
ALL_PARTS: Model = (0, 1, 2)
OF_TWO_SIZES: tuple[Model, ...] = ((0, 1), (0, 2))


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One run."""

    gpus: int
    step_ms: float
    work: float = 1.0
    """Of one GPU, over that at the smallest number."""
    side: int = 0
    """Which runs are repeats of one another."""


@dataclass(frozen=True, kw_only=True)
class Projected:
    """The step time at a number of GPUs, in ms."""

    step_ms: float
    low_ms: float
    high_ms: float
    parts_ms: tuple[float, float, float]

    @property
    def largest(self) -> str:
        return PARTS[int(np.argmax(self.parts_ms))]


class Fit:
    """The parts of a step by these runs, at two sizes at least."""

    def __init__(self, runs: Sequence[Timed]) -> None:
        self._rows = _rows([run.gpus for run in runs], [run.work for run in runs])
        self._times = np.array([run.step_ms for run in runs])
        self._sides = np.array([run.side for run in runs])
        self.sizes = len({run.gpus for run in runs})
        self.models: tuple[Model, ...] = (ALL_PARTS,) if self.sizes > 2 else OF_TWO_SIZES
        self.parts = _fitted(self._rows, self._times, self.models[0])
        """compute, bandwidth and latency in ms; of two sizes the last one is 0."""

    @cached_property
    def noise(self) -> tuple[float, int] | None:
        """Of one run, as a share of its time, and its degrees of freedom: the spread of repeats, or what the fit leaves where that is
        more. None where neither can be had."""
        found = [each for each in (self._of_repeats(), self._of_residuals()) if each is not None]
        return max(found, default=None)

    def _of_repeats(self) -> tuple[float, int] | None:
        logs = np.log(self._times)
        groups = [logs[self._sides == side] for side in np.unique(self._sides)]
        freedom = sum(len(group) - 1 for group in groups)
        squares = sum(float(np.square(group - group.mean()).sum()) for group in groups)
        return (math.sqrt(squares / freedom), freedom) if freedom else None

    def _of_residuals(self) -> tuple[float, int] | None:
        freedom = len(self._times) - int((self.parts > 0).sum())
        if freedom < 1 or self.sizes < 3:
            return None
        left = np.log(self._times) - np.log(np.maximum(self._rows @ self.parts, 1e-12))
        return math.sqrt(float(np.square(left).sum()) / freedom), freedom

    @cached_property
    def _samples(self) -> Floats:
        """Parts by resampled times, of every model alike."""
        assert self.noise is not None, "asked for an interval without noise"
        sd, freedom = self.noise
        chance = np.random.default_rng(SEED)
        # Few repeats know their own spread badly: Student's t has the longer tails for it.
        factors = np.exp(sd * chance.standard_t(freedom, (RESAMPLES, len(self._times))))
        return np.array([_fitted(self._rows, self._times * row, model) for model in self.models for row in factors])

    def at(self, gpus: int, work: float) -> Projected | None:
        """None where no repeat and no further size tells how far the fit may be off."""
        if self.noise is None:
            return None
        row = _rows([gpus], [work])[0]
        central = [float(row @ _fitted(self._rows, self._times, model)) for model in self.models]
        low_ms, high_ms = np.percentile(self._samples @ row, (LOW_PCT, HIGH_PCT)).tolist()
        step_ms = math.exp(sum(map(math.log, central)) / len(central))
        compute, bandwidth, latency = (row * self.parts).tolist()
        return Projected(
            step_ms=step_ms, low_ms=min(low_ms, step_ms), high_ms=max(high_ms, step_ms), parts_ms=(compute, bandwidth, latency)
        )

    def growth_ms(self, start: int, end: int) -> tuple[float, float]:
        """What bandwidth and latency add to a step on the way from one number of GPUs to another."""
        first, last = _rows([start, end], [1.0, 1.0])
        _, bandwidth, latency = ((last - first) * self.parts).tolist()
        return bandwidth, latency


def _rows(gpus: Sequence[int], work: Sequence[float]) -> Floats:
    counts = np.array(gpus, dtype=np.float64)
    return np.column_stack([np.array(work), (counts - 1) / counts, np.log2(counts)])


def _fitted(rows: Floats, times: Floats, model: Model) -> Floats:
    """By least squares of relative errors, no part below 0; parts that the model leaves out are 0."""
    # Here and not above: it takes a quarter of a second to load, and most campaigns have one number of GPUs.
    from scipy.optimize import nnls

    found = np.zeros(len(PARTS))
    found[list(model)] = nnls(rows[:, list(model)] / times[:, None], np.ones(len(times)))[0]
    found[found < ROUNDING * found.max()] = 0.0
    return found
