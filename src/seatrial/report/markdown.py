"""summary.md, for a pull request: the headline and the criteria first, then the ranking, then the rest in `<details>`.

In: CampaignResults. Out: the text, with every name and log line escaped. It stays below GitHub's limit for a comment: tables are limited to
a number of rows, and if that is not enough, the longest sections are left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from seatrial.core.paths import CampaignPaths
from seatrial.core.text import count
from seatrial.records.results import CampaignResults
from seatrial.report.markdown_sections import (
    cautions_section,
    details,
    escape,
    failures_section,
    findings_list,
    health_section,
    hosts_section,
    phases_section,
    ranking_section,
    ranks_section,
    smoke_section,
    stage1_sections,
    startup_section,
    statements_section,
    step_time_section,
    telemetry_section,
)
from seatrial.report.text import one_line, utc_time
from seatrial.report.view.campaign import left_out_sentence, origin_sentence, pending_sentence
from seatrial.report.view.first_screen import Status, headline, headline_text
from seatrial.report.view.machine import communicator_lines, machines
from seatrial.report.view.problems import failures

# GitHub allows 65,536; the rest is for text that the user adds.
MAX_CHARACTERS = 60_000
MAX_OF_THE_HEAD = 40_000
MAX_MACHINES = 20
CIRCLES = {Status.GOOD: "🟢", Status.BAD: "🔴", Status.OPEN: "🟡", Status.UNKNOWN: "⚪"}
"""The colours of the headline: Markdown has no others."""
PICTURES = {
    "ranking": "Ranking with 95 % intervals",
    "heat": "Throughput by axes",
    "steps": "Step times",
    "loss": "Losses",
    "step_times": "Distribution of step times",
    "phases": "Phases of a step",
    "startup": "Start-up",
    "timeline": "Telemetry over the run",
    "ranks": "Work and wait of each rank",
    "eta": "ETA",
}
"""Titles of charts that may exist as PNG, by id; the first is shown with the ranking."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """Folded sections under one title, each a heading and its content."""

    title: str
    sections: tuple[str, ...]
    is_open: bool = False


def summary_md(results: CampaignResults, paths: CampaignPaths) -> str:
    """The whole text of summary.md."""
    pictures = dict(_pictures(results, paths))
    head = [*_head(results), *_verdict(results), *ranking_section(results), *(pictures[id] for id in ("ranking",) if id in pictures)]
    rest = [text for id, text in pictures.items() if id != "ranking"]
    return _within_limit(_cut("\n\n".join(head), MAX_OF_THE_HEAD), list(_folds(results, paths, rest)))


def _folds(results: CampaignResults, paths: CampaignPaths, pictures: list[str]) -> Iterator[Details]:
    failed = len(failures(results))
    wrong = [*failures_section(results), *statements_section(results), *cautions_section(results), *health_section(results)]
    title = f"Failures ({count(failed, 'cause')})" if failed else "No failures"
    yield Details(title=f"{title}, other findings, cautions, health", sections=_sections(wrong), is_open=bool(failed))
    steps = [*step_time_section(results), *phases_section(results), *startup_section(results), *ranks_section(results)]
    courses = [*steps, *telemetry_section(results), *(["## Charts", *pictures] if pictures else [])]
    if several := [*smoke_section(results), *hosts_section(results)]:
        yield Details(title="Smoke record, hosts", sections=_sections(several))
    yield Details(title="Step time, phases, start-up, ranks, telemetry", sections=_sections(courses))
    yield Details(title="Best config, ETA, groups", sections=_sections(stage1_sections(results, paths)))
    yield Details(title="Machine and files", sections=_sections([*_machine(results), *_files(paths)]))


def _sections(blocks: Iterable[str]) -> tuple[str, ...]:
    """Each heading with the blocks that follow it."""
    found: list[list[str]] = []
    for block in blocks:
        if block.startswith("## ") or not found:
            found.append([])
        found[-1].append(block)
    return tuple("\n\n".join(section) for section in found)


def _within_limit(head: str, folds: list[Details]) -> str:
    """The whole text, without its longest sections where it is too long."""
    left_out: list[str] = []
    while len(text := _assembled(head, folds, left_out)) > MAX_CHARACTERS and any(fold.sections for fold in folds):
        longest = max((section for fold in folds for section in fold.sections), key=len)
        left_out.append(longest.splitlines()[0].removeprefix("## "))
        folds = [replace(fold, sections=tuple(section for section in fold.sections if section is not longest)) for fold in folds]
    return text


def _assembled(head: str, folds: list[Details], left_out: list[str]) -> str:
    blocks = [head]
    if left_out:
        blocks.append(f"Left out for length: {', '.join(left_out)}. `summary.html`, `summary.json` and the tables have all of it.")
    for fold in folds:
        blocks += details(fold.title, fold.sections, is_open=fold.is_open) if fold.sections else []
    return "\n\n".join(blocks) + "\n"


def _cut(text: str, most: int) -> str:
    """The first whole lines, at most `most` characters."""
    if len(text) <= most:
        return text
    end = text.rfind("\n", 0, most)
    return f"{text[: end if end > 0 else most]}\n\nCut here for length: `summary.html` and `verdict.json` have all of it."


def _pictures(results: CampaignResults, paths: CampaignPaths) -> Iterator[tuple[str, str]]:
    """Pictures newer than the results; older ones are outdated."""
    for id, title in PICTURES.items():
        picture = paths.charts / f"{id}.png"
        if picture.is_file() and picture.stat().st_mtime >= results.generated_t:
            yield id, f"![{title}]({paths.charts.name}/{id}.png)"


def _head(results: CampaignResults) -> Iterator[str]:
    yield f"# Sea trial: {escape(', '.join(plan.name for plan in results.plans) or results.output)}"
    yield f"Written {utc_time(results.generated_t)} from `{one_line(results.output).replace('`', '')}`."
    if origin := origin_sentence(results):
        yield escape(origin)


def _verdict(results: CampaignResults) -> Iterator[str]:
    yield f"## {escape(headline_text(results))}"
    yield "\n".join(f"- {CIRCLES[part.status]} **{part.word}**: {escape(part.text)}" for part in headline(results))
    if results.verdict.findings:
        yield "Criteria:"
        yield findings_list(results.verdict.findings)
    waiting = pending_sentence(results)
    if waiting:
        yield f"Partial: {escape(waiting)}"
    if left_out := left_out_sentence(results):
        yield escape(left_out)


def _machine(results: CampaignResults) -> Iterator[str]:
    yield "## Machine"
    found = machines(results)
    lines = [f"- {escape(line)} ({count(runs, 'run')})" for line, runs in found[:MAX_MACHINES]]
    if len(found) > MAX_MACHINES:
        lines.append(f"- and {len(found) - MAX_MACHINES} more: `run_manifest.tsv` has them")
    lines += [f"- Process group: {escape(line)} ({count(runs, 'run')})" for line, runs in communicator_lines(results)[:MAX_MACHINES]]
    yield "\n".join(lines) if lines else "Nothing has run yet."


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
    yield f"Page with charts, works offline: `{paths.summary_html.name}`."
    yield f"Tables (empty ones are not written): {names}; data of the charts: `{paths.charts.name}/`."
    yield f"Everything as JSON: `{paths.summary_json.name}`; the verdict alone: `{paths.verdict.name}`."
