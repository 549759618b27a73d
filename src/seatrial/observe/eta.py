"""When a run and a campaign will end, from what has been seen so far. Pure functions; None where nothing can be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from seatrial.records.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class StepMark:
    """A step and the time after launch at which it was seen."""

    step: int
    elapsed_s: float


def run_eta_s(first: StepMark | None, last: StepMark | None, total: int | None) -> float | None:
    """Time left of a run by the mean pace since the first step that was seen, so that start-up does not count."""
    if first is None or last is None or total is None or last.step <= first.step:
        return None
    pace_s = (last.elapsed_s - first.elapsed_s) / (last.step - first.step)
    # Steps count from 0, so the last one is total - 1.
    return max(0, total - 1 - last.step) * pace_s


def campaign_eta_s(
    todo: Sequence[RunSpec], group_s: Mapping[str, float], current_left_s: float | None, current_elapsed_s: float
) -> float | None:
    """Time left of a campaign: the current run's rest, and for each run to come its group's mean length so far, else the mean of all."""
    if not group_s and current_left_s is None:
        return None
    typical_s = fmean(group_s.values()) if group_s else current_elapsed_s + (current_left_s or 0.0)
    rest_s = sum(group_s.get(spec.group_key, typical_s) for spec in todo)
    left_s = current_left_s if current_left_s is not None else max(0.0, typical_s - current_elapsed_s)
    return rest_s + left_s
