"""summary.json and summary.md: one campaign in one document, for programs and for people.

In: CampaignResults. Out: the two files. summary.json has the seeds' keys first, with values as they are (no text for numbers,
null where there is none), then the verdict, the ranking, cautions, windows and health, then what a page needs to say the same.
"""

from __future__ import annotations

from typing import Any

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_spec import TimingSpec
from seatrial.report.best import best_config, find_best
from seatrial.report.digest.cautions import cautions
from seatrial.report.digest.eta import eta_line, pooled_quality
from seatrial.report.digest.failures import failures
from seatrial.report.digest.health import facts, health_of
from seatrial.report.digest.hosts import hosts_of
from seatrial.report.digest.labels import Labels, labels_of
from seatrial.report.digest.machines import machines
from seatrial.report.digest.sentences import left_out_sentence, origin, pending_sentence, winners_sentence
from seatrial.report.digest.smoke import smoke_records
from seatrial.report.digest.standings import Standing, runs_by_group, runs_text, standings, windows_text
from seatrial.report.digest.timeline_runs import runs_in_time, timeline_runs
from seatrial.report.markdown.summary import summary_md
from seatrial.report.numbers import instant
from seatrial.report.rows import (
    group_rows,
    per_run_rows,
    ranked_rows,
    rows_by_stability,
    skipped_rows,
)


def write_summary(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write both; summary.md last."""
    files.write_json(paths.summary_json, summary_json(results))
    files.write_text(paths.summary_md, summary_md(results, paths))


def summary_json(results: CampaignResults) -> dict[str, Any]:
    """The content of summary.json."""
    best = find_best(results)
    labels = labels_of(results)
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
            "runs": labels.labelled(per_run_rows(results)),
            "skipped_runs": labels.labelled(skipped_rows(results)),
            "plans": results.plans,
            "verdict": results.verdict,
            "ranking": results.ranking,
            "winners": winners_sentence(results),
            "cautions": cautions(results),
            "failures": failures(results),
            "pending": results.pending,
            "windows": _windows(results, labels),
            "eta_quality": _eta_quality(results, labels),
            "old_attempts": _old_attempts(results),
            "health": health_of(results),
            "standings": _standings(results),
            "current_runs": _current_runs(results, labels),
            "axis_labels": {axis: label for run in results.runs for axis, label in run.attempt.spec.labels.items()},
            "machines": [{"text": text, "runs": runs} for text, runs in machines(results)],
            "sentences": _sentences(results),
            "charts": {"runs": runs_in_time(results), "runs_with_telemetry": len(timeline_runs(results))},
        }
    )
    # Only where there is one: a campaign on one host has the same document as ever.
    several = {"hosts": to_json(hosts_of(results)), "smoke_records": to_json(smoke_records(results))}
    return {**told, **{name: value for name, value in several.items() if value}}


def _tail_points(results: CampaignResults) -> int:
    specs = (run.attempt.spec.timing for run in results.runs if run.attempt.current)
    return next(specs, TimingSpec()).tail_points


def _windows(results: CampaignResults, labels: Labels) -> dict[str, Any]:
    """Which steps of each counted run count, and how they were found."""
    return {labels.run(run.attempt.spec): run.measure.window for run in results.counted if run.measure}


def _eta_quality(results: CampaignResults, labels: Labels) -> dict[str, Any]:
    """Over all runs that count, in one sentence, and run by run."""
    runs = {labels.run(run.attempt.spec): run.measure.eta_quality for run in results.counted if run.measure}
    return {"all": pooled_quality(results), "text": eta_line(results), "runs": runs}


def _old_attempts(results: CampaignResults) -> list[dict[str, Any]]:
    """Attempts that no plan asks for any more, or that were run again: kept on disk and in the manifest, counted nowhere."""
    old = (run.attempt for run in results.runs if not run.attempt.current)
    return [{"run": attempt.spec.run, "attempt": attempt.number, "hash": attempt.spec.hash} for attempt in old]


def _standings(results: CampaignResults) -> list[dict[str, Any]]:
    """Every ranked group with what its row in a table says: the main lane in order, then what is off it."""
    runs = runs_by_group(results)
    return [_standing(standing, windows_text(runs.get(standing.group.group_key, ()))) for standing in standings(results)]


def _standing(standing: Standing, window: str) -> dict[str, Any]:
    group, place, estimate = standing.group, standing.place, standing.estimate
    return {
        "rank": place.rank,
        "group": group.group,
        "mode": group.mode,
        "lane": group.lane,
        "value": place.value,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "ratio": place.ratio.mean if place.ratio else (1.0 if standing.is_best else None),
        "ratio_low": place.ratio.low if place.ratio else None,
        "ratio_high": place.ratio.high if place.ratio else None,
        "note": standing.remarks,
        "reason": place.reason,
        "runs": group.runs,
        "failed": group.failed_runs,
        "runs_text": runs_text(group),
        "p90_over_p50": standing.mean("wall_p90_over_p50"),
        "startup_s": standing.mean("startup_s"),
        "window": window,
        "n": standing.n,
        "axes": group.axes,
    }


def _current_runs(results: CampaignResults, labels: Labels) -> list[dict[str, Any]]:
    """How every run that the plan asks for ended, as far as it has, and in which folder it lies."""
    in_time = timeline_runs(results)
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
            **_hosts_drawn(run),
        }
        for run in results.runs
        if run.attempt.current
    ]


def _hosts_drawn(run: MeasuredRun) -> dict[str, int]:
    """Nothing of a run on one host."""
    return {"hosts": run.charts.hosts, "hosts_drawn": run.charts.hosts_drawn} if run.charts and run.charts.hosts else {}


def _sentences(results: CampaignResults) -> dict[str, Any]:
    """What every report of the campaign says in words; '' where there is nothing to say."""
    health = health_of(results)
    return {
        "origin": origin(results),
        "pending": pending_sentence(results),
        "left_out": left_out_sentence(results),
        "health": list(facts(health)) if health.runs else [],
    }
