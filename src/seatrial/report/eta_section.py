"""What is said of the estimates of the time to go: summary.md's ETA Overview, summary.json's `eta_quality`, one line for the terminal.

In: CampaignResults. Out: text and values. Where there is nothing to say, it says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.eta.errors import of_mode, quality
from seatrial.records.eta import OFF, EtaQuality
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.markdown import bounded_table
from seatrial.report.numbers import NONE, count, figure
from seatrial.report.rows import Row, counted_runs
from seatrial.units import format_duration

OVERVIEW = (
    ("eta_points", "points"),
    ("eta_first_step", "first at step"),
    ("eta_first_hms", "first"),
    ("eta_last_step", "last at step"),
    ("eta_last_hms", "last"),
    ("eta_mode_effective", "mode"),
)
QUALITY = ("estimates", "median error s", "p90 error s", "median, of the run", "p90, of the run", "interval held")
EXPLAINED = (
    "Estimates are made from the steps, one at every logged step, and errors are against what then happened, from a tenth of each run on. "
    "While a run runs its progress is heard of every five seconds only, so what was shown live may have been further off. An interval is "
    "made to hold the truth nine times of ten; estimates that a script printed itself have none."
)


def eta_section(results: CampaignResults) -> Iterator[str]:
    """Heading, first and last estimate of each run, and how far all of them were off."""
    yield "## ETA Overview"
    told = [(run.attempt.spec.run, run.measure.seed) for run in counted_runs(results) if run.measure]
    estimated: list[Row] = [{"run": name, **seed} for name, seed in told if seed.get("eta_points")]
    if estimated:
        headers = ["run", *(title for _, title in OVERVIEW)]
        yield bounded_table(headers, [_overview(row) for row in estimated], right=(1, 2, 4), where="per_run_metrics.csv")
    pooled = pooled_quality(results)
    if pooled is None:
        yield _quality_table([["all runs", "0", *[NONE] * (len(QUALITY) - 1)]])
        yield f"Not measured: {why_none(results)}."
        return
    judged = [(run.attempt.spec.run, run.measure.eta_quality) for run in counted_runs(results) if run.measure and run.measure.eta_quality]
    rows = [["all runs", *_quality(pooled)], *([name, *_quality(found)] for name, found in judged)]
    yield _quality_table(rows)
    yield EXPLAINED


def _quality_table(rows: Sequence[Sequence[str]]) -> str:
    """In every summary, with no figures where there are none."""
    return bounded_table(["ETA quality", *QUALITY], rows, right=range(1, len(QUALITY) + 1), where="per_run_metrics.csv")


def pooled_quality(results: CampaignResults) -> EtaQuality | None:
    """Over all points of the runs that count."""
    return quality(
        (of_mode(run.measure.eta_points, run.attempt.spec.timing.eta_mode), run.measure.eta_quality.length_s or 0.0)
        for run in counted_runs(results)
        if run.measure and run.measure.eta_quality
    )


def eta_line(results: CampaignResults) -> str:
    """One sentence on all estimates."""
    pooled = pooled_quality(results)
    if pooled is None:
        return f"ETA: no estimate to judge, as {why_none(results)}."
    held = "" if pooled.covered is None else f"; {_whole(pooled.covered)} of the intervals held"
    return (
        f"ETA: off by {format_duration(pooled.median_error_s)} in the median and {format_duration(pooled.p90_error_s)} at p90 "
        f"({_share(pooled.median_fraction)} and {_share(pooled.p90_fraction)} of a run), {count(pooled.points, 'estimate')}{held}."
    )


def why_none(results: CampaignResults) -> str:
    """Why there is no estimate that could be held against the truth."""
    runs = counted_runs(results)
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


def _overview(row: Row) -> list[Cell]:
    return [row["run"], *(NONE if row.get(column) in (None, "") else row[column] for column, _ in OVERVIEW)]


def _quality(found: EtaQuality) -> list[str]:
    held = NONE if found.covered is None else _whole(found.covered)
    errors = (figure(found.median_error_s), figure(found.p90_error_s), _share(found.median_fraction), _share(found.p90_fraction))
    return [str(found.points), *errors, held]


def _share(fraction: float) -> str:
    return f"{fraction * 100:.2f} %" if fraction < 0.1 else _whole(fraction)


def _whole(fraction: float) -> str:
    return f"{fraction * 100:.0f} %"
