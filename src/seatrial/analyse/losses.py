"""Losses: whether a run's loss falls, its curve in few points, and whether a candidate's loss matches the baseline's.

In: rank 0's losses in order, or two groups of runs with their loss curves. Out: True/False/None, `LossCurve`, `LossParity`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seatrial.analyse.comparable import LOSS, comparable
from seatrial.analyse.statistics import MEDIAN_TO_MEAN_ERROR, level_and_width, mann_kendall, median, t_quantile
from seatrial.core.text import MAX_IN_PASSING, join_names
from seatrial.records.comparison import Comparability, ComparedGroup, ComparedRun, LossParity, LossVerdict
from seatrial.records.measure import LossCurve

Losses = npt.NDArray[np.float64]
MIN_LOSSES = 8
"""With fewer losses a quarter of them is a single one."""
LOSS_CHANCE = 0.05
"""The share of flat losses that count as falling by chance; as many count as rising."""
MAX_LOSSES = 250
"""More losses are thinned evenly before Kendall's test: they cost time and add nothing."""
ABOVE_ERRORS = 3.0
"""An end this many standard errors above the start is not noise."""
MAX_PARTS = 200
MIN_FOR_NOISE = 4
LAST_SHARE = 0.25
# Losses that end before this share of the longest run do not represent it.
ENDS_TOGETHER = 0.9
# Other kernels and orders of summation change a loss in its third digit without harm.
SMALLEST_SHARE = 0.01
# With a single run the difference between repeats is unknown.
SMALLEST_SHARE_OF_ONE = 0.03
# If more than this must be allowed, an insignificant difference proves nothing.
LARGEST_SHARE = 0.1
# Fewer parts of a curve have no usable residuals.
FEWEST_PARTS = 6
# With fewer losses in the window the noise outweighs the mean.
FEWEST_LOSSES = 8
GRID_POINTS = 32
TOO_FEW = "too few losses at steps that both have: log more often, or run more steps"


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The loss of one group in the window."""

    mean: float
    variance: float
    """Variance of the mean."""
    dof: float
    losses: int
    """Losses of the run that has the fewest."""
    runs: int


def loss_falls(losses: Sequence[float] | Losses) -> bool | None:
    """True if the loss falls; False if it rises, ends above its start or is not finite; None if neither shows beyond its noise.

    One of two medians is always lower, so a flat loss would pass half of the time: it falls if Kendall's test finds a significant
    trend and the end confirms it.
    """
    values = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(values).all():
        return False
    if len(values) < MIN_LOSSES:
        return None
    start, end, tail = values[: len(values) // 4], values[-(len(values) // 4) :], values[-max(1, len(values) // 10) :]
    trend, first, last = _trend(values), median(start), median(tail)
    error = MEDIAN_TO_MEAN_ERROR * _noise(values) * math.sqrt(1 / len(start) + 1 / len(tail))
    if trend > 0 or last - first > ABOVE_ERRORS * error:
        return False
    return True if trend < 0 and median(end) < first and last <= first else None


def loss_fall_pct(losses: Sequence[float] | Losses) -> float | None:
    """How far the last quarter's mean is below the first's, in percent; None where that is undefined."""
    values = np.asarray(losses, dtype=np.float64)
    if len(values) < MIN_LOSSES or not np.isfinite(values).all():
        return None
    quarter = len(values) // 4
    first = float(values[:quarter].mean())
    return 100 * (1 - float(values[-quarter:].mean()) / first) if first > 0 else None


def _trend(values: Losses) -> int:
    """-1 for a loss that falls, 1 for one that rises, 0 where chance explains it."""
    if np.ptp(values) == 0:
        return 0
    if len(values) > MAX_LOSSES:
        values = values[np.linspace(0, len(values) - 1, MAX_LOSSES).round().astype(np.intp)]
    found = mann_kendall(values)
    # The trend's direction is known: half of the two-sided p-value.
    return found.sign if found.p_value / 2 < LOSS_CHANCE else 0


def _noise(values: Losses) -> float:
    """Robust standard deviation of a loss about its curve, by differences of successive losses; of two losses or more."""
    return level_and_width(np.diff(values))[1] / math.sqrt(2)


def loss_curve(
    steps: npt.NDArray[np.int64], losses: npt.NDArray[np.float64], has_loss: npt.NDArray[np.bool_] | None = None
) -> LossCurve | None:
    """Means over at most MAX_PARTS equal parts, and the noise of a single loss; up to the first loss that is not finite. `has_loss` is
    False where a step has none, whatever `losses` holds there; None where every step has one. None without any loss."""
    if not len(steps):
        return None
    last_step = int(steps[-1])
    if has_loss is not None:
        steps, losses = steps[has_loss], losses[has_loss]
    if not len(losses):
        return None
    not_finite = np.flatnonzero(~np.isfinite(losses))
    count = int(not_finite[0]) if len(not_finite) else len(losses)
    points, means = _parts(steps[:count], losses[:count])
    return LossCurve(
        steps=points,
        losses=means,
        n=count,
        noise=_noise(losses[:count]) if count >= MIN_FOR_NOISE else 0.0,
        broken_step=int(steps[count]) if len(not_finite) else None,
        last_step=last_step,
    )


def _parts(steps: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Last step and mean of each of at most MAX_PARTS equal parts: of 500 losses, 200 parts of two and three."""
    if not len(losses):
        return (), ()
    edges = np.unique(np.linspace(0, len(losses), min(len(losses), MAX_PARTS) + 1).round().astype(np.intp))
    means = np.add.reduceat(losses, edges[:-1]) / np.diff(edges)
    return tuple(steps[edges[1:] - 1].tolist()), tuple(means.tolist())


def loss_parity(a: ComparedGroup, b: ComparedGroup, comparability: Comparability | None = None) -> LossParity:
    """B's loss against A's: the guard of every speed-up. `comparability` is given where some reasons against the comparison are allowed.

    B is worse if a loss of any of its runs is not finite while all of A's are. Otherwise the losses are averaged over the last quarter of
    the steps that all runs have, each run at the same steps; B is worse if its mean exceeds A's by more than noise and the spread over
    repeats explain, and by more than a small share of the loss. The result is unknown, never comparable, if runs have no losses, some ran
    well beyond the others, losses scatter too much, or a step does not do the same work in both.
    """
    not_finite = _not_finite(a, b)
    if not_finite is not None:
        return not_finite
    why_not = (comparable(a, b) if comparability is None else comparability).why_not(LOSS)
    if why_not:
        return _unknown(f"{why_not}, so losses at one step cannot be compared")
    missing = _without_losses(a, b)
    if missing:
        return _unknown(f"{missing}: report losses with probe.loss, or log them")
    curves_a, curves_b = _curves(a), _curves(b)
    if any(len(curve.steps) < 2 for curve in (*curves_a, *curves_b)):
        return _unknown(TOO_FEW)
    # The last quarter of the steps that all of them have.
    begin, end = max(curve.steps[0] for curve in (*curves_a, *curves_b)), min(curve.steps[-1] for curve in (*curves_a, *curves_b))
    window = (end - LAST_SHARE * (end - begin), float(end))
    early = _ends_early(a, b, window[1])
    if early:
        return _unknown(early)
    levels = [_level(curves, window) for curves in (curves_a, curves_b)]
    if window[1] <= window[0] or min(level.losses for level in levels) < FEWEST_LOSSES:
        return _unknown(TOO_FEW)
    return _parity(levels[0], levels[1], window)


def _not_finite(a: ComparedGroup, b: ComparedGroup) -> LossParity | None:
    """The verdict for a loss that is not finite; None where all are finite."""
    for group in (a, b):
        for run in group.runs:
            if run.loss is not None and run.loss.broken_step is not None:
                last = f" (the last is {run.loss.last_step})" if run.loss.last_step is not None else ""
                what = f"the loss of {run.run} is not finite at step {run.loss.broken_step}{last}"
                if group is a:
                    return _unknown(f"{what}, so {a.name} cannot be the loss baseline: fix it, or use another baseline")
                return LossParity(verdict=LossVerdict.WORSE, reason=what, last_step=run.loss.broken_step, n=run.loss.n)
    return None


def _without_losses(a: ComparedGroup, b: ComparedGroup) -> str:
    """Which groups, or which of their runs, have no losses; empty where every run has losses."""
    groups = [group for group in (a, b) if not any(map(_has_losses, group.runs))]
    if groups:
        return f"{' and '.join(group.name for group in groups)} {'has' if len(groups) == 1 else 'have'} no losses"
    runs = [run.run for group in (a, b) for run in group.runs if not _has_losses(run)]
    return f"{join_names(runs, MAX_IN_PASSING)} {'has' if len(runs) == 1 else 'have'} no losses" if runs else ""


def _has_losses(run: ComparedRun) -> bool:
    return run.loss is not None and bool(run.loss.steps) and len(run.loss.losses) == len(run.loss.steps)


def _ends_early(a: ComparedGroup, b: ComparedGroup, end: float) -> str:
    """Which group's losses end well before the last step of any run; empty where none do."""
    curves = [*_curves(a), *_curves(b)]
    last = max(max(curve.last_step or 0, curve.steps[-1]) for curve in curves)
    first = min(curve.steps[0] for curve in curves)
    if end - first >= ENDS_TOGETHER * (last - first):
        return ""
    shorter = min((a, b), key=lambda group: min(curve.steps[-1] for curve in _curves(group)))
    return f"the losses of {shorter.name} end at step {end:.0f}, but a run went on to step {last}: run all equally long, and log to the end"


def _parity(a: _Level, b: _Level, window: tuple[float, float]) -> LossParity:
    difference = b.mean - a.mean
    explained = _quantile(a, b) * math.sqrt(a.variance + b.variance)
    share = SMALLEST_SHARE if min(a.runs, b.runs) > 1 else SMALLEST_SHARE_OF_ONE
    allowed = max(explained, share * abs(a.mean))
    n = min(a.losses, b.losses)
    where = f"steps {math.ceil(window[0])}–{math.floor(window[1])}, {n} losses or more in each of {a.runs} and {b.runs} runs"
    verdict, text = _verdict(difference, allowed, abs(a.mean))
    return LossParity(
        verdict=verdict,
        reason=f"loss {b.mean:.4g} against {a.mean:.4g}: {text} ({where})",
        difference=difference,
        allowed=allowed,
        loss_a=a.mean,
        loss_b=b.mean,
        last_step=math.floor(window[1]),
        n=n,
    )


def _verdict(difference: float, allowed: float, level: float) -> tuple[LossVerdict, str]:
    if difference > allowed:
        return LossVerdict.WORSE, f"the difference {difference:+.3g} is more than the {allowed:.3g} allowed"
    if difference < -allowed:
        return LossVerdict.COMPARABLE, "lower"
    if allowed > LARGEST_SHARE * level:
        return (
            LossVerdict.UNKNOWN,
            f"the difference {difference:+.3g} is within their scatter of {allowed:.3g}, which is too wide: repeat the runs, or make "
            "them longer",
        )
    return LossVerdict.COMPARABLE, f"the difference {difference:+.3g} is within the {allowed:.3g} allowed"


def _unknown(reason: str) -> LossParity:
    return LossParity(verdict=LossVerdict.UNKNOWN, reason=reason)


def _curves(group: ComparedGroup) -> list[LossCurve]:
    return [run.loss for run in group.runs if run.loss is not None]


def _level(curves: Sequence[LossCurve], window: tuple[float, float]) -> _Level:
    """The level of a group's losses. Repeats show how far runs differ; a single run, and repeats that agree by chance, only the noise of
    their losses."""
    # At the same points for every curve: a falling loss would be lower where a curve has more points late.
    means = [float(np.interp(np.linspace(*window, GRID_POINTS), _middles(curve), curve.losses).mean()) for curve in curves]
    spans = [curve.steps[-1] - curve.steps[0] for curve in curves]
    shares = [min((window[1] - window[0]) / span, 1.0) if span > 0 else 0.0 for span in spans]
    counts = [round(curve.n * share) for curve, share in zip(curves, shares, strict=True)]
    noise = sum(_variance(curve, count, window) for curve, count in zip(curves, counts, strict=True)) / len(curves) ** 2
    spread = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    dof = len(means) - 1 if spread > noise else max(sum(counts) - len(counts), 1)
    return _Level(mean=float(np.mean(means)), variance=max(spread, noise), dof=dof, losses=min(counts), runs=len(means))


def _variance(curve: LossCurve, count: int, window: tuple[float, float]) -> float:
    """Variance of a run's mean: from the noise of single losses, or from the scatter of its parts about a line, which is larger where
    losses are autocorrelated."""
    single = curve.noise**2 / max(count, 1)
    middles = _middles(curve)
    inside = (middles >= window[0]) & (middles <= window[1])
    parts = int(inside.sum())
    if parts < FEWEST_PARTS:
        return single
    steps, losses = middles[inside] - middles[inside].mean(), np.asarray(curve.losses)[inside]
    line = losses.mean() + steps * float(steps @ losses) / float(steps @ steps)
    return max(single, float(((losses - line) ** 2).sum()) / (parts - 2) / parts)


def _middles(curve: LossCurve) -> Losses:
    """The middle of the steps that each point averages."""
    last = np.asarray(curve.steps, dtype=float)
    before = np.concatenate([[2 * last[0] - last[1]], last[:-1]])
    return np.asarray((before + last) / 2)


def _quantile(a: _Level, b: _Level) -> float:
    total = a.variance + b.variance
    if total == 0:
        return 0.0
    dof = 1 / sum((level.variance / total) ** 2 / level.dof for level in (a, b))
    return t_quantile(dof)
