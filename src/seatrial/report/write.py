"""Every file of a report, from one CampaignResults: verdict.json, tables, the winner's files, summary.json, summary.md and summary.html.

summary.md is written after everything it names, summary.html last. If the page cannot be drawn, an older one is removed, a caution reports
it, and everything else is written.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from seatrial.core import files
from seatrial.core.durable_writes import DISK_ERRNOS
from seatrial.core.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.codec import to_json
from seatrial.records.plan import TimingSpec
from seatrial.records.ranking import Ranking
from seatrial.records.results import CampaignResults
from seatrial.report import tables
from seatrial.report.best_config import best_config, find_best, write_best
from seatrial.report.html.data import page_data
from seatrial.report.html.page import summary_page
from seatrial.report.markdown import summary_md
from seatrial.report.text import one_line, utc_time
from seatrial.report.view import campaign, machine
from seatrial.report.view.first_screen import headline
from seatrial.report.view.problems import failures, health_of, health_sentences

if TYPE_CHECKING:
    import polars

log = logging.getLogger(__name__)

LONGEST_CAUSE = 200


def write_report(results: CampaignResults, paths: CampaignPaths) -> CampaignResults:
    """Write every file and remove outdated ones. Returns the results, with another caution where the page could not be drawn."""
    frames = dict(tables.chart_frames(results))
    files.write_json(paths.verdict, verdict_json(results))
    tables.write_tables(results, paths)
    write_best(results, paths)
    tables.write_chart_tables(frames, paths)
    write_summary(results, paths)
    caution = _write_page(results, frames, paths)
    if caution is None:
        return results
    results = replace(results, cautions=(*results.cautions, caution))
    write_summary(results, paths)
    return results


def write_summary(results: CampaignResults, paths: CampaignPaths) -> None:
    """summary.json, then summary.md."""
    files.write_json(paths.summary_json, summary_json(results))
    files.write_text(paths.summary_md, summary_md(results, paths))


def _write_page(results: CampaignResults, frames: Mapping[str, polars.DataFrame], paths: CampaignPaths) -> Caution | None:
    """Write the page; a caution where it cannot be drawn."""
    from polars.exceptions import PanicException

    try:
        files.write_text(paths.summary_html, summary_page(page_data(results, frames)))
    # A panic of polars is not an Exception, and no reason to lose a verdict either.
    except (Exception, PanicException) as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
            raise
        # An older page would show what no longer holds.
        with contextlib.suppress(OSError):
            paths.summary_html.unlink(missing_ok=True)
        log.debug("%s could not be drawn", paths.summary_html, exc_info=error)
        cause = one_line(f"{type(error).__name__}: {error}")[:LONGEST_CAUSE]
        text = (
            f"{paths.summary_html.name} could not be drawn ({cause}). Verdict and figures are not affected: {paths.summary_md.name}, "
            f"{paths.summary_json.name} and the tables have all of it."
        )
        return Caution(kind=campaign.PAGE_NOT_DRAWN, text=text)
    return None


def verdict_json(results: CampaignResults) -> dict[str, Any]:
    """The content of verdict.json."""
    verdict: dict[str, Any] = to_json(results.verdict)
    return {
        "verdict": verdict.pop("verdict"),
        "exit_code": results.verdict.verdict.exit_code,
        "partial": verdict.pop("partial"),
        "confounded": verdict.pop("confounded"),
        **verdict,
        "pending": list(results.pending),
        "generated_at": utc_time(results.generated_t),
    }


def summary_json(results: CampaignResults) -> dict[str, Any]:
    """The content of summary.json."""
    best = find_best(results)
    labels = campaign.labels_of(results)
    old_attempts = [run.attempt for run in results.runs if not run.attempt.current]
    document: dict[str, Any] = to_json(
        {
            "generated_at": utc_time(results.generated_t),
            "output_root": results.output,
            "tail_points": next((run.attempt.spec.timing for run in results.runs if run.attempt.current), TimingSpec()).tail_points,
            "baseline_group": results.baseline_group,
            "groups": tables.group_rows(results),
            "ranked_groups": tables.ranked_rows(results),
            "ranked_groups_by_stability": tables.rows_by_stability(results),
            "best": best_config(results, best) if best else None,
            "runs": labels.labelled(tables.per_run_rows(results)),
            "skipped_runs": labels.labelled(tables.skipped_rows(results)),
            "plans": [plan.name for plan in results.plans],
            "verdict": results.verdict,
            "ranking": _ranking(results.ranking),
            "winners": campaign.winners_sentence(results),
            "cautions": campaign.all_cautions(results),
            "failures": failures(results),
            "pending": results.pending,
            "windows": {labels.run(run.attempt.spec): run.measure.window for run in results.counted if run.measure},
            "eta_quality": _eta_quality(results, labels),
            # Attempts that no plan names any more, or that were run again: on disk and in the manifest, but not counted.
            "old_attempts": [{"run": old.spec.run, "attempt": old.number, "hash": old.spec.hash} for old in old_attempts],
            "health": health_of(results),
            "standings": campaign.ranking_values(results),
            "current_runs": _current_runs(results, labels),
            "axis_labels": campaign.axis_labels(results),
            "machines": [{"text": text, "runs": runs} for text, runs in machine.machines(results)],
            "sentences": _sentences(results),
            "charts": {"runs": tables.num_runs_with_timeline(results), "runs_with_telemetry": len(tables.timeline_runs(results))},
            "headline": headline(results),
        }
    )
    # Keys of campaigns on several hosts only.
    several = {
        "hosts": to_json(machine.hosts_of(results)),
        "smoke_records": to_json(machine.smoke_records(results)),
        "process_groups": _process_groups(results),
    }
    return {**document, **{name: value for name, value in several.items() if value}}


def _process_groups(results: CampaignResults) -> dict[str, Any]:
    """Communicators of current runs whose ranks are known, rank by rank."""
    labels = campaign.labels_of(results)
    found = {labels.run(run.attempt.spec): run.measure.communicators for run in results.runs if run.attempt.current and run.measure}
    return {run: to_json(communicators) for run, communicators in found.items() if communicators}


def _eta_quality(results: CampaignResults, labels: campaign.Labels) -> dict[str, Any]:
    """The quality over all counted runs, as values and as a sentence, and of each run."""
    runs = {labels.run(run.attempt.spec): run.measure.eta_quality for run in results.counted if run.measure}
    return {"all": machine.pooled_quality(results), "text": machine.eta_line(results), "runs": runs}


def _ranking(ranking: Ranking) -> dict[str, Any]:
    """The ranking with short rows: `standings` has what reports show."""
    short = ("rank", "group", "value", "ratio", "tied", "can_win", "reason")
    rows = {lane: [{name: getattr(row, name) for name in short} for row in getattr(ranking, lane)] for lane in ("groups", "off_lane")}
    return {field.name: rows.get(field.name, getattr(ranking, field.name)) for field in fields(ranking)}


def _current_runs(results: CampaignResults, labels: campaign.Labels) -> list[dict[str, Any]]:
    """Every run of the plans, how it ended, and its folder."""
    in_time = tables.timeline_runs(results)
    return [
        {
            "run": labels.run(run.attempt.spec),
            "group": labels.group(run.attempt.spec),
            "repeat": run.attempt.spec.repeat,
            "folder": run.attempt.spec.run,
            "attempt": run.attempt.number,
            "outcome": run.outcome.value if run.outcome else "running",
            "cause": run.attempt.outcome.cause.value if run.attempt.outcome else "",
            "gpus": run.charts.gpus if run.charts else None,
            "gpus_drawn": run.charts.gpus_drawn if run.charts and run.attempt.folder in in_time else None,
            # Only of runs on several hosts.
            **({"hosts": run.charts.hosts, "hosts_drawn": run.charts.hosts_drawn} if run.charts and run.charts.hosts else {}),
        }
        for run in results.runs
        if run.attempt.current
    ]


def _sentences(results: CampaignResults) -> dict[str, Any]:
    """Sentences of every report; '' for one that does not apply."""
    health = health_of(results)
    return {
        "origin": campaign.origin_sentence(results),
        "pending": campaign.pending_sentence(results),
        "left_out": campaign.left_out_sentence(results),
        "health": list(health_sentences(health)) if health.runs else [],
    }
