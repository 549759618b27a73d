"""The section of summary.md on the estimates of the time to go: the seeds' ETA Overview.

In: CampaignResults. Out: heading, tables and what they mean. Where there is nothing to say, it says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.paths import CAMPAIGN_FILES
from seatrial.records.eta import EtaQuality
from seatrial.records.measure import Cell
from seatrial.records.results import CampaignResults
from seatrial.report.digest.eta import EXPLAINED, per_cent, pooled_quality, whole_per_cent, why_none
from seatrial.report.markdown.text import bounded_table
from seatrial.report.numbers import NONE, figure
from seatrial.report.rows import Row

OVERVIEW = (
    ("eta_points", "points"),
    ("eta_first_step", "first at step"),
    ("eta_first_hms", "first"),
    ("eta_last_step", "last at step"),
    ("eta_last_hms", "last"),
    ("eta_mode_effective", "mode"),
)
QUALITY = ("estimates", "median error s", "p90 error s", "median, of the run", "p90, of the run", "interval held")


def eta_section(results: CampaignResults) -> Iterator[str]:
    """Heading, first and last estimate of each run, and how far all of them were off."""
    yield "## ETA Overview"
    told = [(run.attempt.spec.run, run.measure.seed) for run in results.counted if run.measure]
    estimated: list[Row] = [{"run": name, **seed} for name, seed in told if seed.get("eta_points")]
    if estimated:
        headers = ["run", *(title for _, title in OVERVIEW)]
        yield bounded_table(headers, [_overview(row) for row in estimated], right=(1, 2, 4), where=CAMPAIGN_FILES.per_run_metrics.name)
    pooled = pooled_quality(results)
    if pooled is None:
        yield _quality_table([["all runs", "0", *[NONE] * (len(QUALITY) - 1)]])
        yield f"Not measured: {why_none(results)}."
        return
    judged = [(run.attempt.spec.run, run.measure.eta_quality) for run in results.counted if run.measure and run.measure.eta_quality]
    rows = [["all runs", *_quality(pooled)], *([name, *_quality(found)] for name, found in judged)]
    yield _quality_table(rows)
    yield EXPLAINED


def _quality_table(rows: Sequence[Sequence[str]]) -> str:
    """In every summary, with no figures where there are none."""
    return bounded_table(["ETA quality", *QUALITY], rows, right=range(1, len(QUALITY) + 1), where=CAMPAIGN_FILES.per_run_metrics.name)


def _overview(row: Row) -> list[Cell]:
    return [row["run"], *(NONE if row.get(column) in (None, "") else row[column] for column, _ in OVERVIEW)]


def _quality(found: EtaQuality) -> list[str]:
    held = NONE if found.covered is None else whole_per_cent(found.covered)
    errors = (figure(found.median_error_s), figure(found.p90_error_s), per_cent(found.median_fraction), per_cent(found.p90_fraction))
    return [str(found.points), *errors, held]
