"""The seeds' own rules for a winner, by name.

In: two sides and the name of a rule. Out: one sentence with the rule's figures and its winner, to stand before what the interval says.

last50        mean and standard deviation over the last 50 counted steps of each run, the higher rate wins
highest_mean  the higher mean over the runs wins, and of two equal ones the lower variance

A rule knows no chance: it names a winner between two that are the same. So it is said, and the interval decides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.analyse.rank_metric import Metric
from seatrial.errors import UsageError, did_you_mean
from seatrial.records.comparison import Side
from seatrial.wording import count

LAST50, HIGHEST_MEAN = "last50", "highest_mean"
PRESETS = (LAST50, HIGHEST_MEAN)
# The seeds compare rates as their logs print them, which is to about so many digits.
TIE_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """A side by a rule."""

    name: str
    mean: float
    deviation: float | None
    text: str


def check_preset(preset: str) -> None:
    """A UsageError for a name that is no rule's; the empty name is none."""
    if preset and preset not in PRESETS:
        raise UsageError(f"preset '{preset}' is not known; {did_you_mean(preset, PRESETS)}")


def ruling(preset: str, a: Side, b: Side, metric: Metric) -> str:
    """The rule's sentence; empty without a rule."""
    if not preset:
        return ""
    standings = [_by_last_steps(side) if preset == LAST50 else _by_mean(side, metric) for side in (a, b)]
    known = [standing for standing in standings if standing is not None]
    if len(known) < 2:
        needs = "its last 50 steps" if preset == LAST50 else metric.name
        return f"By the rule {preset} nothing can be said: not every run tells {needs}."
    higher = metric.higher_is_better or preset == LAST50
    return f"By the rule {preset}: {known[0].text}; {known[1].text}; {_winner(known[0], known[1], higher)}."


def _by_last_steps(side: Side) -> _Standing | None:
    """Runs are put together as if their last steps were one list."""
    last = [run.last_steps for run in side.runs if run.last_steps is not None]
    if not last or len(last) < len(side.runs):
        return None
    n = sum(one.n for one in last)
    mean_ms = sum(one.n * one.mean_ms for one in last) / n
    squares = sum(one.n * (one.stdev_ms**2 + (one.mean_ms - mean_ms) ** 2) for one in last)
    deviation = math.sqrt(squares / n)
    per_s = statistics.fmean(one.per_s for one in last)
    steps = " and ".join(sorted({str(one.n) for one in last}))
    seen = f"last {steps} steps of {count(len(last), 'run')}"
    text = f"{side.name} {mean_ms:.4g} ms a step, stdev {deviation:.3g} ms, {per_s:.4g} a second ({seen})"
    return _Standing(name=side.name, mean=per_s, deviation=deviation / mean_ms * per_s if mean_ms else None, text=text)


def _by_mean(side: Side, metric: Metric) -> _Standing | None:
    values = [run.figures[metric.name] for run in side.runs if metric.name in run.figures]
    if not values or len(values) < len(side.runs):
        return None
    deviation = _deviation(values)
    spread = "one run" if deviation is None else f"stdev {deviation:.3g}"
    mean = statistics.fmean(values)
    text = f"{side.name} {mean:.5g} {metric.unit} in the mean, {spread} ({count(len(values), 'run')})"
    return _Standing(name=side.name, mean=mean, deviation=deviation, text=text)


def _winner(a: _Standing, b: _Standing, higher_is_better: bool) -> str:
    if f"{a.mean:.{TIE_DIGITS}g}" != f"{b.mean:.{TIE_DIGITS}g}":
        best = max(a, b, key=lambda one: one.mean if higher_is_better else -one.mean)
        return f"{best.name} wins by its mean"
    if a.deviation is None or b.deviation is None or a.deviation == b.deviation:
        return "neither wins"
    return f"the means tie and {min(a, b, key=lambda one: one.deviation or 0.0).name} wins by the lower variance"


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
