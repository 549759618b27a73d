"""summary.json and summary.md: one campaign in one document, for programs and for people.

In: CampaignResults. Out: the two files. summary.json has the seeds' keys first, with values as they are (no text for numbers,
null where there is none), then the verdict, the ranking, cautions, windows and health.
"""

from __future__ import annotations

from typing import Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.results import CampaignResults
from seatrial.records.run_spec import TimingSpec
from seatrial.report import digest
from seatrial.report.best import best_config, find_best
from seatrial.report.eta_section import eta_line, pooled_quality
from seatrial.report.failures import failures
from seatrial.report.health_section import health_of
from seatrial.report.numbers import instant
from seatrial.report.page import page
from seatrial.report.rows import counted_runs, group_rows, per_run_rows, ranked_rows, rows_by_stability, skipped_rows


def write_summary(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write both; the page last."""
    files.write_json(paths.summary_json, summary_json(results))
    files.write_text(paths.summary_md, page(results, paths))


def summary_json(results: CampaignResults) -> dict[str, Any]:
    """The content of summary.json."""
    best = find_best(results)
    told: dict[str, Any] = to_json(
        {
            "generated_at": instant(results.generated_t),
            "output_root": results.output,
            "tail_points": _tail_points(results),
            "baseline_group": results.baseline_group,
            "groups": group_rows(results),
            "ranked_groups": ranked_rows(results),
            "ranked_groups_by_stability": rows_by_stability(results),
            "best": best_config(results, best) if best else None,
            "runs": per_run_rows(results),
            "skipped_runs": skipped_rows(results),
            "plans": results.plans,
            "verdict": results.verdict,
            "ranking": results.ranking,
            "winners": digest.winners_sentence(results),
            "cautions": digest.cautions(results),
            "failures": failures(results),
            "pending": results.pending,
            "windows": _windows(results),
            "eta_quality": _eta_quality(results),
            "old_attempts": _old_attempts(results),
            "health": health_of(results),
        }
    )
    return told


def _tail_points(results: CampaignResults) -> int:
    specs = (run.attempt.spec.timing for run in results.runs if run.attempt.current)
    return next(specs, TimingSpec()).tail_points


def _windows(results: CampaignResults) -> dict[str, Any]:
    """Which steps of each counted run count, and how they were found."""
    return {run.attempt.spec.run: run.measure.window for run in counted_runs(results) if run.measure}


def _eta_quality(results: CampaignResults) -> dict[str, Any]:
    """Over all runs that count, in one sentence, and run by run."""
    runs = {run.attempt.spec.run: run.measure.eta_quality for run in counted_runs(results) if run.measure}
    return {"all": pooled_quality(results), "text": eta_line(results), "runs": runs}


def _old_attempts(results: CampaignResults) -> list[dict[str, Any]]:
    """Attempts that no plan asks for any more, or that were run again: kept on disk and in the manifest, counted nowhere."""
    old = (run.attempt for run in results.runs if not run.attempt.current)
    return [{"run": attempt.spec.run, "attempt": attempt.number, "hash": attempt.spec.hash} for attempt in old]
