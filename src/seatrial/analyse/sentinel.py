"""What the platform did over a campaign, seen in one configuration that was run again and again in between.

In: measured runs; those whose mode is `sentinel` count. Out: `SentinelDrift`: a line through the logs of their throughput against the
time at which they started, with its t interval, and a level that changed. None where the plan has no sentinel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.measure import CONFIDENCE, RunMeasure
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import SentinelDrift, StabilityVerdict
from seatrial.units import format_duration

LEAST_RUNS = 3
"""Two always lie on a line."""
DRIFT_PCT = 3.0
"""The seeds' allowance for a regression: a platform that moves by more would pass for one."""
LEAST_PER_LEVEL = 2
LEVEL_CHANCE = 0.01
"""Of a change of level in a steady platform, all places looked at together: stricter than the line's, which is asked first."""
FIGURES = ("samples_per_s", "tokens_per_s", "steps_per_s", "duration_s")
FALLING = ("duration_s",)
"""Of these less is better, so that a rise is a slower platform."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Course:
    """The sentinels' figure over time, in the order of time; logs, higher is faster."""

    metric: str
    at_s: Floats
    logs: Floats


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Change from the first run to the last, on logs."""

    change: float
    low: float
    high: float
    left: float
    """Sum of squares that it does not explain."""


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The best place to part the runs in two levels."""

    before: int
    """Runs before it."""
    change: float = 0.0
    chance: float = 1.0
    left: float = math.inf


def sentinel_drift(runs: Sequence[MeasuredRun]) -> SentinelDrift | None:
    """Whether the platform stayed as it was."""
    group, members = _sentinels(runs)
    if not members:
        return None
    course = _course(members)
    empty = SentinelDrift(verdict=StabilityVerdict.INCONCLUSIVE, reason="", group=group, runs=0)
    if course is None or len(course.logs) < LEAST_RUNS:
        told = 0 if course is None else len(course.logs)
        reason = f"{told} of {len(members)} runs of {group} tell their throughput; at least {LEAST_RUNS} are needed to see a drift"
        return replace(empty, reason=f"{reason}: let the campaign go on, or ask for the sentinel more often.", runs=told)
    line, level = _line(course), _level(course)
    verdict, sentence = _judged(course, line, level)
    length = format_duration(float(course.at_s[-1] - course.at_s[0]))
    return replace(
        empty,
        verdict=verdict,
        reason=f"{sentence} ({group}, {course.metric}, n = {len(course.logs)} runs over {length}).{_changed(members)}",
        runs=len(course.logs),
        metric=course.metric,
        drift_pct=_pct(line.change),
        drift_low=_pct(line.low),
        drift_high=_pct(line.high),
        level_change_pct=_pct(level.change) if _shifts(line, level) else None,
        spread_pct=_spread_pct(course),
        first_t=float(course.at_s[0]),
        last_t=float(course.at_s[-1]),
    )


def _sentinels(runs: Sequence[MeasuredRun]) -> tuple[str, list[MeasuredRun]]:
    """The current runs of the sentinel; of several sentinels, of the one with the most runs."""
    found = [run for run in runs if run.attempt.spec.mode == SENTINEL and run.attempt.current]
    if not found:
        return "", []
    key, _ = Counter(run.attempt.spec.group_key for run in found).most_common(1)[0]
    members = [run for run in found if run.attempt.spec.group_key == key]
    return members[0].attempt.spec.group, members


def _course(members: Sequence[MeasuredRun]) -> _Course | None:
    """By the first figure that every sentinel which ended well tells."""
    ended = [(run.attempt.outcome.started_t, run.measure) for run in members if run.attempt.outcome and run.outcome is Outcome.OK]
    told = sorted(((at, measure) for at, measure in ended if measure is not None and at > 0), key=lambda pair: pair[0])
    for metric in FIGURES:
        values = [_value(measure, metric) for _, measure in told]
        if values and None not in values:
            logs = np.array([math.log(value) for value in values if value is not None])
            return _Course(metric=metric, at_s=np.array([at for at, _ in told]), logs=-logs if metric in FALLING else logs)
    return None


def _changed(members: Sequence[MeasuredRun]) -> str:
    """Said beside every verdict: the platform itself is then another one."""
    known = {run.attempt.provenance.fingerprint for run in members} - {""}
    return " Machine or code changed in between (provenance.json of its runs tells what)." if len(known) > 1 else ""


def _value(measure: RunMeasure, metric: str) -> float | None:
    value = getattr(measure, metric)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _line(course: _Course) -> _Line:
    """Least squares on logs; 95 % interval by Student's t."""
    at = course.at_s - course.at_s.mean()
    spread = float((at**2).sum())
    length, freedom = float(course.at_s[-1] - course.at_s[0]), len(at) - 2
    if spread <= 0:
        return _Line(change=0.0, low=-math.inf, high=math.inf, left=math.inf)
    slope = float((at * course.logs).sum()) / spread
    left = float(((course.logs - course.logs.mean() - slope * at) ** 2).sum())
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * math.sqrt(left / freedom / spread)
    return _Line(change=slope * length, low=(slope - half) * length, high=(slope + half) * length, left=left)


def _level(course: _Course) -> _Level:
    """The place at which two levels differ most by a pooled t test; its chance is for all places together."""
    count = len(course.logs)
    places = range(LEAST_PER_LEVEL, count - LEAST_PER_LEVEL + 1)
    tried = [_parted(course.logs, place) for place in places]
    if not tried:
        return _Level(before=0)
    best = min(tried, key=lambda level: level.chance)
    return replace(best, chance=min(1.0, best.chance * len(tried)))


def _parted(logs: Floats, place: int) -> _Level:
    before, after = logs[:place], logs[place:]
    change, freedom = float(after.mean() - before.mean()), len(logs) - 2
    left = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    error = math.sqrt(left / freedom * (1 / len(before) + 1 / len(after)))
    chance = 2 * float(stdtr(freedom, -abs(change) / error)) if error else float(change == 0)
    return _Level(before=place, change=change, chance=chance, left=left)


def _judged(course: _Course, line: _Line, level: _Level) -> tuple[StabilityVerdict, str]:
    interval = f"95 % interval {_pct(line.low):+.1f} to {_pct(line.high):+.1f} %"
    drift, spread = f"{_pct(line.change):+.1f} % from the first sentinel to the last, {interval}", _spread_pct(course)
    if _shifts(line, level):
        return StabilityVerdict.UNSTABLE, (
            f"The platform changed its level by {_pct(level.change):+.1f} % after {level.before} of {len(course.logs)} sentinels "
            f"(chance {level.chance:.2g}); compare no run before that with one after it"
        )
    if _drifts(line):
        way = "slower" if line.change < 0 else "faster"
        return StabilityVerdict.UNSTABLE, f"The platform became {way}: {drift}; compare no runs of its beginning with runs of its end"
    if spread > DRIFT_PCT and not -DRIFT_PCT <= _pct(line.low) <= _pct(line.high) <= DRIFT_PCT:
        return StabilityVerdict.INCONCLUSIVE, (
            f"The sentinels lie {spread:.1f} % apart without a direction ({drift}): a drift of {DRIFT_PCT:g} % would not be seen in them; "
            "ask for the sentinel more often"
        )
    return StabilityVerdict.STABLE, f"The platform stayed as it was: {drift}, highest over lowest {spread:.1f} %"


def _drifts(line: _Line) -> bool:
    return abs(_pct(line.change)) > DRIFT_PCT and not line.low <= 0 <= line.high


def _shifts(line: _Line, level: _Level) -> bool:
    """Whether two levels are there and tell the course better than a line does."""
    shifts = abs(_pct(level.change)) > DRIFT_PCT and level.chance < LEVEL_CHANCE
    return shifts and (not _drifts(line) or level.left < line.left)


def _pct(log_change: float) -> float:
    """A difference of logs as percent; one beyond all measure stays finite."""
    return 100 * math.expm1(min(log_change, 100.0))


def _spread_pct(course: _Course) -> float:
    return _pct(float(course.logs.max() - course.logs.min()))
