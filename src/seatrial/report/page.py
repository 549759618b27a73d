"""summary.md: the verdict first, then the ranking with its intervals and windows, then what went wrong, then the seeds' sections.

In: CampaignResults. Out: the text of the page. Every name and log line in it is escaped; every figure has its window and n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial import units
from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.report import digest
from seatrial.report.digest import Standing
from seatrial.report.failures import Failure, failures
from seatrial.report.findings_section import findings_list, statements_section
from seatrial.report.health_section import health_section
from seatrial.report.markdown import code_block, escape, table
from seatrial.report.numbers import NONE, count, figure, instant, interval, ratio
from seatrial.report.rows import counted_runs
from seatrial.report.seed_sections import seed_sections
from seatrial.report.startup_section import startup_section
from seatrial.report.telemetry_section import telemetry_section

LOG_LINES = 15


def page(results: CampaignResults, paths: CampaignPaths) -> str:
    """The whole text of summary.md."""
    sections = [
        *_head(results),
        *_verdict(results),
        *_ranking(results),
        *statements_section(results),
        *_failures(results),
        *_cautions(results),
        *health_section(results),
        *seed_sections(results, paths),
        *startup_section(results),
        *telemetry_section(results),
        *_machine(results),
        *_files(paths),
    ]
    return "\n\n".join(sections) + "\n"


def _head(results: CampaignResults) -> Iterator[str]:
    yield f"# Sea trial: {escape(', '.join(results.plans) or results.output)}"
    yield f"Made {instant(results.generated_t)} from `{results.output.replace('`', '')}`."
    if made_of := digest.origin(results):
        yield escape(made_of)


def _verdict(results: CampaignResults) -> Iterator[str]:
    yield f"## Verdict: {results.verdict.verdict.value}"
    yield findings_list(results.verdict.findings)
    waiting = digest.pending_sentence(results)
    if waiting:
        yield f"Partial: {escape(waiting)}"
    if left_out := digest.left_out_sentence(results):
        yield escape(left_out)


def _ranking(results: CampaignResults) -> Iterator[str]:
    ranking = results.ranking
    yield "## Ranking"
    yield escape(digest.winners_sentence(results))
    placed = digest.standings(results)
    main_lane = [standing for standing in placed if standing.group.lane]
    if main_lane:
        yield _ranking_table(results, main_lane)
    if len(main_lane) < len(placed):
        yield "Off the main lane, ranked apart:"
        yield _ranking_table(results, [standing for standing in placed if not standing.group.lane])
    reasons = "\n".join(_reasons(placed))
    if reasons:
        yield reasons
    if placed:
        yield f"{'Higher' if ranking.higher_is_better else 'Lower'} is better. Figures are wall clock over the window, {_means()}."


def _reasons(placed: Sequence[Standing]) -> Iterator[str]:
    """Why groups stand where they do; those with the same reason in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for standing in placed:
        if standing.place.reason and standing.note:
            groups.setdefault((standing.note, standing.place.reason), []).append(standing.group.group)
    for (note, reason), names in groups.items():
        yield f"- {escape(', '.join(names))}: {escape(reason if reason.startswith(note) else f'{note}, {reason}')}"


def _ranking_table(results: CampaignResults, placed: Sequence[Standing]) -> str:
    axes = list(dict.fromkeys(name for standing in placed for name in standing.group.axes))
    unit = escape(results.ranking.unit or results.ranking.metric)
    headers = ["#", "group", *(escape(name) for name in axes), unit, "95 % interval", "to leader"]
    headers += ["p90/p50", "start-up", "runs", "window", "n", "note"]
    figures = range(2 + len(axes), 7 + len(axes))
    rows = [_ranking_row(results, standing, axes) for standing in placed]
    return table(headers, rows, right=[0, *figures, len(headers) - 2])


def _means() -> str:
    return "geometric means over the runs that ended ok; intervals are 95 %, taken on logs; n is the number of steps counted"


def _ranking_row(results: CampaignResults, standing: Standing, axes: Sequence[str]) -> list[object]:
    group, place = standing.group, standing.place
    return [
        place.rank,
        group.group,
        *(group.axes.get(name, NONE) for name in axes),
        figure(place.value),
        interval(standing.estimate),
        ("1" if standing.leads else NONE) if place.ratio is None else f"{ratio(place.ratio.mean)} ({_ratio_interval(standing)})",
        ratio(standing.mean("wall_p90_over_p50")),
        units.format_duration(standing.mean("startup_s")),
        digest.runs_text(group),
        _windows(results, group.group_key),
        group.window_n,
        standing.remarks,
    ]


def _ratio_interval(standing: Standing) -> str:
    estimate = standing.place.ratio
    return f"{ratio(estimate.low)} to {ratio(estimate.high)}" if estimate and estimate.low is not None else "no interval"


def _windows(results: CampaignResults, group_key: str) -> str:
    """The windows of a group's counted runs; most often they are one and the same."""
    of_group = (run for run in counted_runs(results) if run.attempt.spec.key == group_key)
    windows = (run.measure.window for run in of_group if run.measure and run.measure.window)
    spans = dict.fromkeys(f"{window.first_step}–{window.last_step}" for window in windows)
    return f"steps {digest.named(list(spans))}" if spans else "whole run"


def _failures(results: CampaignResults) -> Iterator[str]:
    yield "## Failures"
    found = failures(results)
    if not found:
        yield "No current run failed."
    for failure in found:
        yield from _failure(failure)


def _failure(failure: Failure) -> Iterator[str]:
    yield f"### {escape(failure.cause)}: {escape(digest.named(failure.runs))}"
    told = f"Ended {failure.outcome} after {units.format_duration(failure.duration_s)}. {escape(failure.detail)}".rstrip()
    yield f"{told}\n\nWhat to do: {escape(failure.action)}" if failure.action else told
    yield from map(escape, failure.remarks)
    if failure.telling:
        yield "The most telling lines:"
        yield code_block(failure.telling)
    elif failure.log_tail:
        yield f"Last lines of {escape(failure.runs[0])}:"
        yield code_block(failure.log_tail[-LOG_LINES:])


def _cautions(results: CampaignResults) -> Iterator[str]:
    yield "## Cautions"
    found = digest.warnings(results)
    if not found:
        yield "None."
        return
    yield "\n".join(
        f"- {escape(caution.kind)}: {escape(caution.text)}" + (f" ({escape(digest.named(caution.subjects))})" if caution.subjects else "")
        for caution in found
    )


def _machine(results: CampaignResults) -> Iterator[str]:
    yield "## Machine"
    found = digest.machines(results)
    yield "\n".join(f"- {escape(line)} ({count(runs, 'run')})" for line, runs in found) if found else "Nothing has run yet."


def _files(paths: CampaignPaths) -> Iterator[str]:
    yield "## Files"
    tables = (
        paths.manifest,
        paths.timing_points,
        paths.eta_points,
        paths.per_run_metrics,
        paths.group_summary,
        paths.ranked_groups,
        paths.skipped_runs,
    )
    names = ", ".join(f"`{path.name}`" for path in tables)
    yield f"Tables (one that has no rows is not written): {names}."
    yield f"The same in one document: `{paths.summary_json.name}`; the verdict alone: `{paths.verdict.name}`."
