"""Whether figures are reproducible: the stability of a group over its repeats, and the drift of the platform over a campaign.

In: the counted runs of a group, or all runs of a campaign. Out: `GroupStability` by stage 1's gates (median and highest p90/p50, spread
over repeats, share of unstable runs, GPUs that are anti-correlated or too hot), and `SentinelDrift`: a line and a change of level in the
throughput of the sentinel runs, which repeat one configuration throughout the campaign.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seatrial.analyse.statistics import t_quantile
from seatrial.analyse.step_times import UNSTABLE_ITER_RATIO, UNSTABLE_STEP_RATIO
from seatrial.core.text import format_duration
from seatrial.records.figures import FIGURES, THROUGHPUT
from seatrial.records.measure import (
    MIN_REPEATS,
    GroupStability,
    GroupSummary,
    JitterCause,
    RunMeasure,
    SentinelDrift,
    StabilityVerdict,
    exceeds,
)
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.results import MeasuredRun

Floats = npt.NDArray[np.float64]
MAX_RATIO_MEDIAN = 1.5
MAX_RATIO = 2.5
MAX_CV_PCT = 5.0
MAX_UNSTABLE = 0.05
"""Stage 1's gates; a figure at its bound passes."""
ALWAYS_UNSTABLE = {
    "anti_correlated_gpus": "anti-correlated GPU utilisation",
    "thermal": "its GPUs were throttled by heat",
}
"""Causes that make a group unstable whatever its step times, as in the stage-1 procedure: else one would tune for the platform's noise."""
CAUSES_IN_REASON = 3
CAUSE_UNKNOWN = "Cause unknown. Sample telemetry more often, let all ranks report, and check what else runs there."
MIN_RUNS = 3
"""Two runs always lie on a line."""
DRIFT_PCT = 3.0
"""Stage 1's allowance for a regression: a larger drift of the platform would look like one."""
MIN_PER_LEVEL = 2
LEVEL_P = 0.01
"""Probability of a false change of level, over all splits together: stricter than the line's, which is tested first."""


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """The figures of a group that the gates check."""

    runs: int
    ratios: tuple[float, ...]
    cv_pct: float | None
    metric: str
    ends: str
    """The slowest and the fastest repeat by that metric, as text."""
    unstable: int
    """The number of unstable runs."""


@dataclass(frozen=True, kw_only=True)
class _SentinelSeries:
    """The sentinels' metric on logs, in the order of time; higher is faster."""

    metric: str
    at_s: Floats
    logs: Floats


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line through the logs: its change from the first run to the last."""

    change: float
    low: float
    high: float
    residual: float
    """Sum of the squared residuals."""


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The best split of the runs into two levels."""

    before: int
    """Runs before the split."""
    change: float = 0.0
    p_value: float = 1.0
    residual: float = math.inf


def group_stability(runs: Sequence[MeasuredRun]) -> GroupStability:
    """The stability of a group by its counted runs."""
    measures = [run.measure for run in runs if run.measure is not None]
    figures = _figures(runs, measures)
    causes = _strongest(measures)
    broken = [*_broken(figures), *(ALWAYS_UNSTABLE[cause.kind] for cause in causes if cause.kind in ALWAYS_UNSTABLE)]
    verdict, reason = _verdict(figures, broken, [*_missing(figures, runs)], causes)
    return GroupStability(
        verdict=verdict,
        reason=reason,
        runs=figures.runs,
        ratio_median=statistics.median(figures.ratios) if figures.ratios else None,
        ratio_max=max(figures.ratios, default=None),
        cv_pct=figures.cv_pct,
        unstable_run_ratio=figures.unstable / figures.runs if figures.ratios else None,
        causes=causes,
    )


def with_possible_causes(groups: Sequence[GroupSummary], possible: tuple[JitterCause, ...]) -> tuple[GroupSummary, ...]:
    """The groups, unstable ones with causes that were seen outside their runs, after those found in the runs."""
    return tuple(replace(group, stability=_with_possible(group.stability, possible)) if group.stability else group for group in groups)


def _with_possible(found: GroupStability, possible: tuple[JitterCause, ...]) -> GroupStability:
    if found.verdict is not StabilityVerdict.UNSTABLE or not possible:
        return found
    why = "Why: " + " ".join(cause.text for cause in possible[:CAUSES_IN_REASON])
    return replace(found, causes=(*found.causes, *possible), reason=found.reason.replace(CAUSE_UNKNOWN, why))


def _figures(runs: Sequence[MeasuredRun], measures: Sequence[RunMeasure]) -> _Figures:
    ratios = tuple(ratio for measure in measures if (ratio := _ratio(measure)) is not None)
    # By the first of these that all runs have.
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
    """p90/p50 of stage 1's last timing window; without one, of the whole window."""
    of_window = _number(measure.stage1.get("iter_p90_over_p50"))
    return of_window if of_window is not None else _number(measure.wall_p90_over_p50)


def _is_unstable(measure: RunMeasure) -> bool:
    ratio, step_ratio = _ratio(measure), _number(measure.stage1.get("step_p90_over_p50"))
    return (ratio is not None and exceeds(ratio, UNSTABLE_ITER_RATIO)) or (
        step_ratio is not None and exceeds(step_ratio, UNSTABLE_STEP_RATIO)
    )


def _values(measures: Sequence[RunMeasure], name: str) -> list[float]:
    return [value for measure in measures if (value := _number(getattr(measure, name, None))) is not None]


def _number(value: object) -> float | None:
    """A positive finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return None
    return float(value)


def _broken(figures: _Figures) -> Iterator[str]:
    """Every gate that fails. With too few repeats, only what more repeats could not change."""
    if figures.ratios and exceeds(max(figures.ratios), MAX_RATIO):
        yield f"the highest p90/p50 of its runs is {max(figures.ratios):.2f} (at most {MAX_RATIO:g})"
    if figures.runs < MIN_REPEATS:
        return
    if figures.ratios and exceeds(statistics.median(figures.ratios), MAX_RATIO_MEDIAN):
        yield f"the median p90/p50 of its runs is {statistics.median(figures.ratios):.2f} (at most {MAX_RATIO_MEDIAN:g})"
    if figures.cv_pct is not None and exceeds(figures.cv_pct, MAX_CV_PCT):
        yield f"{figures.metric} varies by {figures.cv_pct:.1f} % (CV, at most {MAX_CV_PCT:g} %) over the repeats, {figures.ends}"
    if exceeds(figures.unstable / figures.runs, MAX_UNSTABLE):
        yield (
            f"{figures.unstable} of {figures.runs} runs are unstable (iter p90/p50 above {UNSTABLE_ITER_RATIO:g} or step p90/p50 above "
            f"{UNSTABLE_STEP_RATIO:g}; at most {MAX_UNSTABLE * 100:g} % of runs)"
        )


def _missing(figures: _Figures, runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """What the gates need and the runs lack, and how to get it."""
    if figures.runs == 0:
        yield f"no run ended ok, and {MIN_REPEATS} are needed"
    elif figures.runs < MIN_REPEATS:
        yield f"{figures.runs} of the {MIN_REPEATS} repeats needed ended ok: raise repeats"
    lacking = figures.runs - len(figures.ratios)
    if lacking:
        yield f"{lacking} of {figures.runs} runs have no p90/p50: run more steps, or let the script print its step times"
    unsteady = [run.attempt.spec.run for run in runs if run.measure and (run.measure.window is None or not run.measure.window.steady)]
    if unsteady:
        yield f"no steady state was found in {', '.join(unsteady[:CAUSES_IN_REASON])}: run more steps"
    if figures.cv_pct is None and figures.runs >= MIN_REPEATS:
        yield "not every run has a throughput: run more steps"


def _verdict(figures: _Figures, broken: list[str], missing: list[str], causes: tuple[JitterCause, ...]) -> tuple[StabilityVerdict, str]:
    counted = f"n = {figures.runs} {'run' if figures.runs == 1 else 'runs'}"
    if broken:
        why = "Why: " + " ".join(cause.text for cause in causes[:CAUSES_IN_REASON])
        return StabilityVerdict.UNSTABLE, f"Not stable: {'; '.join(broken)} ({counted}). {why if causes else CAUSE_UNKNOWN}"
    if missing:
        return StabilityVerdict.INCONCLUSIVE, f"Unknown: {'; '.join(missing)} ({counted})."
    return StabilityVerdict.STABLE, (
        f"Stable: p90/p50 of its runs is {statistics.median(figures.ratios):.2f} (median) and {max(figures.ratios):.2f} (highest), "
        f"{figures.metric} varies by {figures.cv_pct or 0.0:.1f} % (CV) over the repeats ({counted})."
    )


def _strongest(measures: Sequence[RunMeasure]) -> tuple[JitterCause, ...]:
    """Each kind of cause once, from the run with the strongest evidence; the strongest first."""
    found: dict[str, JitterCause] = {}
    for cause in (cause for measure in measures for cause in measure.jitter_causes):
        if cause.kind not in found or cause.strength > found[cause.kind].strength:
            found[cause.kind] = cause
    return tuple(sorted(found.values(), key=lambda cause: -cause.strength))


def sentinel_drift(runs: Sequence[MeasuredRun]) -> SentinelDrift | None:
    """The drift of the platform by its sentinel; None without sentinel runs."""
    group, members = _sentinels(runs)
    if not members:
        return None
    series = _sentinel_series(members)
    empty = SentinelDrift(verdict=StabilityVerdict.INCONCLUSIVE, reason="", group=group, runs=0)
    if series is None or len(series.logs) < MIN_RUNS:
        known = 0 if series is None else len(series.logs)
        reason = f"{known} of {len(members)} runs of {group} have a throughput, at least {MIN_RUNS} are needed to see a drift"
        return replace(empty, reason=f"{reason}: let the campaign go on, or run the sentinel more often.", runs=known)
    line, level = _line(series), _level(series)
    verdict, sentence = _drift_verdict(series, line, level)
    length = format_duration(float(series.at_s[-1] - series.at_s[0]))
    fingerprints = {run.attempt.provenance.fingerprint for run in members} - {""}
    changed = " Machine or code changed in between (see provenance.json of its runs)." if len(fingerprints) > 1 else ""
    return replace(
        empty,
        verdict=verdict,
        reason=f"{sentence} ({group}, {series.metric}, n = {len(series.logs)} runs over {length}).{changed}",
        runs=len(series.logs),
        metric=series.metric,
        drift_pct=_pct(line.change),
        drift_low=_pct(line.low),
        drift_high=_pct(line.high),
        level_change_pct=_pct(level.change) if _shifts(line, level) else None,
        spread_pct=_spread_pct(series),
        first_t=float(series.at_s[0]),
        last_t=float(series.at_s[-1]),
    )


def _sentinels(runs: Sequence[MeasuredRun]) -> tuple[str, list[MeasuredRun]]:
    """Name and current runs of the sentinel; of several, of the one with the most runs."""
    found = [run for run in runs if run.attempt.spec.mode == SENTINEL and run.attempt.current]
    if not found:
        return "", []
    key, _ = Counter(run.attempt.spec.group_key for run in found).most_common(1)[0]
    members = [run for run in found if run.attempt.spec.group_key == key]
    return members[0].attempt.spec.group, members


def _sentinel_series(members: Sequence[MeasuredRun]) -> _SentinelSeries | None:
    """The series of the first metric that every sentinel run that ended ok has; None where there is none."""
    ended = [(run.attempt.outcome.started_t, run.measure) for run in members if run.attempt.outcome and run.outcome is Outcome.OK]
    known = sorted(((at, measure) for at, measure in ended if measure is not None and at > 0), key=lambda pair: pair[0])
    for metric in THROUGHPUT:
        values = _values([measure for _, measure in known], metric)
        if known and len(values) == len(known):
            logs = np.array([math.log(value) for value in values])
            return _SentinelSeries(
                metric=metric, at_s=np.array([at for at, _ in known]), logs=logs if FIGURES[metric].higher_is_better else -logs
            )
    return None


def _line(series: _SentinelSeries) -> _Line:
    """A line by least squares on logs, with its 95 % interval by Student's t."""
    at = series.at_s - series.at_s.mean()
    spread = float((at**2).sum())
    length, dof = float(series.at_s[-1] - series.at_s[0]), len(at) - 2
    if spread <= 0:
        return _Line(change=0.0, low=-math.inf, high=math.inf, residual=math.inf)
    slope = float((at * series.logs).sum()) / spread
    residual = float(((series.logs - series.logs.mean() - slope * at) ** 2).sum())
    half = t_quantile(dof) * math.sqrt(residual / dof / spread)
    return _Line(change=slope * length, low=(slope - half) * length, high=(slope + half) * length, residual=residual)


def _level(series: _SentinelSeries) -> _Level:
    """The split at which two levels differ most by a pooled t test; its p-value is corrected for all splits."""
    tried = [_split(series.logs, at) for at in range(MIN_PER_LEVEL, len(series.logs) - MIN_PER_LEVEL + 1)]
    if not tried:
        return _Level(before=0)
    best = min(tried, key=lambda level: level.p_value)
    return replace(best, p_value=min(1.0, best.p_value * len(tried)))


def _split(logs: Floats, at: int) -> _Level:
    before, after = logs[:at], logs[at:]
    change, dof = float(after.mean() - before.mean()), len(logs) - 2
    residual = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    from scipy.special import stdtr

    error = math.sqrt(residual / dof * (1 / len(before) + 1 / len(after)))
    p_value = 2 * float(stdtr(dof, -abs(change) / error)) if error else float(change == 0)
    return _Level(before=at, change=change, p_value=p_value, residual=residual)


def _drift_verdict(series: _SentinelSeries, line: _Line, level: _Level) -> tuple[StabilityVerdict, str]:
    interval = f"95 % interval {_pct(line.low):+.1f} to {_pct(line.high):+.1f} %"
    drift, spread = f"{_pct(line.change):+.1f} % from the first sentinel to the last, {interval}", _spread_pct(series)
    if _shifts(line, level):
        return StabilityVerdict.UNSTABLE, (
            f"The platform's speed changed by {_pct(level.change):+.1f} % after {level.before} of {len(series.logs)} sentinels "
            f"(p = {level.p_value:.2g}): compare no run before with one after"
        )
    if _drifts(line):
        way = "slower" if line.change < 0 else "faster"
        return StabilityVerdict.UNSTABLE, f"The platform became {way}: {drift}; do not compare early runs with late ones"
    if spread > DRIFT_PCT and not -DRIFT_PCT <= _pct(line.low) <= _pct(line.high) <= DRIFT_PCT:
        return StabilityVerdict.INCONCLUSIVE, (
            f"The sentinels scatter by {spread:.1f} % ({drift}), too much to see a drift of {DRIFT_PCT:g} %: run the sentinel more often"
        )
    return StabilityVerdict.STABLE, f"The platform was stable: {drift}, spread {spread:.1f} %"


def _drifts(line: _Line) -> bool:
    return abs(_pct(line.change)) > DRIFT_PCT and not line.low <= 0 <= line.high


def _shifts(line: _Line, level: _Level) -> bool:
    """Whether two levels fit, and better than a line."""
    shifts = abs(_pct(level.change)) > DRIFT_PCT and level.p_value < LEVEL_P
    return shifts and (not _drifts(line) or level.residual < line.residual)


def _pct(log_change: float) -> float:
    """A difference of logs in percent, kept finite."""
    return 100 * math.expm1(min(log_change, 100.0))


def _spread_pct(series: _SentinelSeries) -> float:
    return _pct(float(series.logs.max() - series.logs.min()))
