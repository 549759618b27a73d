"""Whether a group's figures can be relied on to come again.

In: the counted runs of a group. Out: `GroupStability` by the seeds' gates: the median and the highest p90/p50 of its runs, the spread over
its repeats, the share of unstable runs, GPUs that work in turns or are too hot; and why, from the causes of its runs. A gate that broke is
UNSTABLE whatever is missing; nothing broken is STABLE only where every run tells what the gates need.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.analyse.rank_metric import THROUGHPUT
from seatrial.analyse.seed_metrics import UNSTABLE_ITER_RATIO, UNSTABLE_STEP_RATIO
from seatrial.records.health import UnevenCause
from seatrial.records.measure import RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import LEAST_REPEATS, GroupStability, StabilityVerdict, exceeds

MOST_RATIO_MEDIAN = 1.5
MOST_RATIO = 2.5
MOST_CV_PCT = 5.0
MOST_UNSTABLE = 0.05
"""The seeds' gates; a figure at its bound holds."""
BY_THEMSELVES = {
    "anti_correlated_gpus": "its GPUs work in turns, which is jitter of the platform by itself",
    "thermal": "its GPUs were held back by heat",
}
"""Causes that break stability whatever the step times are, as the stage-1 procedure has it: such a platform's noise would be tuned."""
CAUSES_IN_REASON = 3


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """Of one group."""

    runs: int
    ratios: tuple[float, ...]
    cv_pct: float | None
    metric: str
    ends: str
    """The slowest and the fastest repeat by that figure, in words."""
    unstable: int

    @property
    def unstable_ratio(self) -> float | None:
        return self.unstable / self.runs if self.runs else None


def group_stability(runs: Sequence[MeasuredRun]) -> GroupStability:
    """The verdict of the counted runs of one group."""
    measures = [run.measure for run in runs if run.measure is not None]
    figures = _figures(runs, measures)
    causes = _strongest(measures)
    broken = [*_broken(figures), *(BY_THEMSELVES[cause.kind] for cause in causes if cause.kind in BY_THEMSELVES)]
    verdict, reason = _verdict(figures, broken, [*_missing(figures, runs)], causes)
    return GroupStability(
        verdict=verdict,
        reason=reason,
        runs=figures.runs,
        ratio_median=statistics.median(figures.ratios) if figures.ratios else None,
        ratio_max=max(figures.ratios, default=None),
        cv_pct=figures.cv_pct,
        unstable_run_ratio=figures.unstable_ratio if figures.ratios else None,
        causes=causes,
    )


def _figures(runs: Sequence[MeasuredRun], measures: Sequence[RunMeasure]) -> _Figures:
    ratios = tuple(ratio for measure in measures if (ratio := _ratio(measure)) is not None)
    # Of the first of these that all runs have.
    name = next((name for name in THROUGHPUT if len(_values(measures, name)) == len(runs)), "")
    values = _values(measures, name) if name else []
    return _Figures(
        runs=len(runs),
        ratios=ratios,
        cv_pct=100 * statistics.stdev(values) / statistics.fmean(values) if len(values) >= 2 else None,
        metric=name,
        ends=_ends(runs, values),
        unstable=sum(_is_unstable(measure) for measure in measures),
    )


def _ends(runs: Sequence[MeasuredRun], values: Sequence[float]) -> str:
    if len(values) != len(runs) or not values:
        return ""
    lowest, highest = (pick(range(len(values)), key=values.__getitem__) for pick in (min, max))
    names = [run.attempt.spec.run for run in runs]
    return f"from {values[lowest]:.4g} in {names[lowest]} to {values[highest]:.4g} in {names[highest]}"


def _ratio(measure: RunMeasure) -> float | None:
    """As the seeds take it, over the last timing window; ours over the whole window where there is none."""
    told = _number(measure.seed.get("iter_p90_over_p50"))
    return told if told is not None else _number(measure.wall_p90_over_p50)


def _is_unstable(measure: RunMeasure) -> bool:
    ratio, step_ratio = _ratio(measure), _number(measure.seed.get("step_p90_over_p50"))
    return (ratio is not None and exceeds(ratio, UNSTABLE_ITER_RATIO)) or (
        step_ratio is not None and exceeds(step_ratio, UNSTABLE_STEP_RATIO)
    )


def _values(measures: Sequence[RunMeasure], name: str) -> list[float]:
    return [value for measure in measures if (value := _number(getattr(measure, name, None))) is not None]


def _number(value: object) -> float | None:
    """A positive number that is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return None
    return float(value)


def _broken(figures: _Figures) -> Iterator[str]:
    """Each gate that does not hold. Of fewer repeats than the gates ask for, only what more of them could not mend."""
    if figures.ratios and exceeds(max(figures.ratios), MOST_RATIO):
        yield f"the highest p90/p50 of its runs is {max(figures.ratios):.2f}, at most {MOST_RATIO:g} is allowed"
    if figures.runs < LEAST_REPEATS:
        return
    if figures.ratios and exceeds(statistics.median(figures.ratios), MOST_RATIO_MEDIAN):
        yield f"the median p90/p50 of its runs is {statistics.median(figures.ratios):.2f}, at most {MOST_RATIO_MEDIAN:g} is allowed"
    if figures.cv_pct is not None and exceeds(figures.cv_pct, MOST_CV_PCT):
        spread = f"{figures.metric} varies by {figures.cv_pct:.1f} % (CV) from repeat to repeat, {figures.ends}"
        yield f"{spread}; at most {MOST_CV_PCT:g} % is allowed"
    if figures.unstable_ratio is not None and exceeds(figures.unstable_ratio, MOST_UNSTABLE):
        yield (
            f"{figures.unstable} of {figures.runs} runs are unstable (iter p90/p50 above {UNSTABLE_ITER_RATIO:g} or step p90/p50 above "
            f"{UNSTABLE_STEP_RATIO:g}), at most {MOST_UNSTABLE * 100:g} % may be"
        )


def _missing(figures: _Figures, runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """What the gates need and the runs do not tell, with the way to get it."""
    if figures.runs < LEAST_REPEATS:
        yield f"{figures.runs} of the {LEAST_REPEATS} repeats that the gates ask for ended well: raise repeats"
    lacking = figures.runs - len(figures.ratios)
    if lacking:
        yield f"{lacking} of {figures.runs} runs tell no p90/p50: run more steps, or make the script print its step times"
    unsteady = [run.attempt.spec.run for run in runs if run.measure and (run.measure.window is None or not run.measure.window.steady)]
    if unsteady:
        yield f"no steady state was found in {', '.join(unsteady[:CAUSES_IN_REASON])}: run more steps"
    if figures.cv_pct is None and figures.runs >= LEAST_REPEATS:
        yield "not every run tells its throughput: run more steps"


def _verdict(figures: _Figures, broken: list[str], missing: list[str], causes: tuple[UnevenCause, ...]) -> tuple[StabilityVerdict, str]:
    counted = f"n = {figures.runs} {'run' if figures.runs == 1 else 'runs'}"
    if broken:
        return StabilityVerdict.UNSTABLE, f"Not stable: {'; '.join(broken)} ({counted}). {_why(causes)}"
    if missing:
        return StabilityVerdict.INCONCLUSIVE, f"Cannot be told: {'; '.join(missing)} ({counted})."
    return StabilityVerdict.STABLE, (
        f"Stable: p90/p50 of its runs is {statistics.median(figures.ratios):.2f} in the median and {max(figures.ratios):.2f} at most, "
        f"{figures.metric} varies by {figures.cv_pct or 0.0:.1f} % (CV) from repeat to repeat ({counted})."
    )


def _why(causes: tuple[UnevenCause, ...]) -> str:
    if not causes:
        return "No cause was seen: sample the machine more often (telemetry), let all ranks report, and look at what else runs there."
    return "Why: " + " ".join(cause.text for cause in causes[:CAUSES_IN_REASON])


def _strongest(measures: Sequence[RunMeasure]) -> tuple[UnevenCause, ...]:
    """Each kind once, of the run that shows it most; the strongest first."""
    found: dict[str, UnevenCause] = {}
    for cause in (cause for measure in measures for cause in measure.uneven):
        if cause.kind not in found or cause.strength > found[cause.kind].strength:
            found[cause.kind] = cause
    return tuple(sorted(found.values(), key=lambda cause: -cause.strength))
