"""How far the estimates of the time to go were off. In: CampaignResults. Out: the figures, one sentence, and why there are none."""

from __future__ import annotations

from seatrial.eta.errors import of_mode, quality
from seatrial.records.eta import OFF, EtaQuality
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.units import format_duration
from seatrial.wording import count

EXPLAINED = (
    "Estimates are made from the steps, one at every logged step, and errors are against what then happened, from a tenth of each run on. "
    "While a run runs its progress is heard of every five seconds only, so what was shown live may have been further off. An interval is "
    "made to hold the truth nine times of ten; estimates that a script printed itself have none."
)


def pooled_quality(results: CampaignResults) -> EtaQuality | None:
    """Over all points of the runs that count."""
    return quality(
        (of_mode(run.measure.eta_points, run.attempt.spec.timing.eta_mode), run.measure.eta_quality.length_s or 0.0)
        for run in results.counted
        if run.measure and run.measure.eta_quality
    )


def eta_line(results: CampaignResults) -> str:
    """One sentence on all estimates."""
    pooled = pooled_quality(results)
    if pooled is None:
        return f"ETA: no estimate to judge, as {why_none(results)}."
    held = "" if pooled.covered is None else f"; {whole_per_cent(pooled.covered)} of the intervals held"
    return (
        f"ETA: off by {format_duration(pooled.median_error_s)} in the median and {format_duration(pooled.p90_error_s)} at p90 "
        f"({per_cent(pooled.median_fraction)} and {per_cent(pooled.p90_fraction)} of a run), {count(pooled.points, 'estimate')}{held}."
    )


def why_none(results: CampaignResults) -> str:
    """Why there is no estimate that could be held against the truth."""
    runs = results.counted
    if not runs:
        return "no run that counts has ended"
    specs = [run.attempt.spec for run in runs]
    if all(spec.timing.eta_mode == OFF for spec in specs):
        return "the plan asks for none (`timing.eta_mode: off`)"
    if all(run.measure is None or run.measure.source == "whole" for run in runs):
        return "the runs tell of no steps"
    if all(spec.steps is None and not _has_points(run) for spec, run in zip(specs, runs, strict=True)):
        return "how many steps a run has is not known: give `steps` in the plan"
    if not any(_has_points(run) for run in runs):
        return "no run timed enough steps (`timing.eta_min_samples`), or none tells when they ended"
    return "no run tells when its last step ended, or only its first tenth was estimated"


def _has_points(run: MeasuredRun) -> bool:
    return run.measure is not None and bool(run.measure.eta_points)


def per_cent(fraction: float) -> str:
    """'2.81 %', '41 %'."""
    return f"{fraction * 100:.2f} %" if fraction < 0.1 else whole_per_cent(fraction)


def whole_per_cent(fraction: float) -> str:
    """'67 %'."""
    return f"{fraction * 100:.0f} %"
