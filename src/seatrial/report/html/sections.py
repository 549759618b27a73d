"""The sections of the page as plain values for the templates, which escape every text.

In: the page's data and its charts. Out: one dict with every value of the templates; for a section without charts, the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from seatrial.core.paths import CampaignPaths
from seatrial.core.text import MAX_NAMED, count, join_names, shortened
from seatrial.records import ranking
from seatrial.records.columns import CHART_TABLES
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Evidence, Finding, Verdict
from seatrial.report.html.data import Chart, PageData, unit_of
from seatrial.report.text import NONE, figure, margin, utc_time
from seatrial.report.view import campaign, first_screen, machine, problems, steps

SECTIONS = (
    ("verdict", "Verdict"), ("ranking", "Ranking"), ("found", "Other findings"), ("heat", "Across the axes"), ("steps", "Steps"),
    ("distribution", "Step times"), ("phases", "Phases"), ("startup", "Start-up"), ("timeline", "Timeline"), ("ranks", "Ranks"),
    ("eta", "ETA"), ("failures", "Failures"), ("cautions", "Cautions"), ("machine", "Machine"), ("files", "Files"),
)  # fmt: skip
"""Id and title, in the page's order."""
DRAWN = ("heat", "steps", "distribution", "phases", "startup", "timeline", "ranks", "eta")
NO_TABLES = "No tables to draw: `seatrial report OUT` writes them."
NOTHING = {
    "steps": "No run recorded its steps.",
    "distribution": steps.NO_STEPS,
    "phases": steps.NO_PHASES,
    "startup": steps.NO_STARTUP,
    "timeline": machine.NO_TELEMETRY,
    "ranks": "No run had several ranks with recorded steps.",
    "eta": "No run has an ETA.",
}
VERDICTS = {
    Verdict.PASS: ("✓", "Every criterion is met."),
    Verdict.FAIL: ("✗", "At least one criterion is not met."),
    Verdict.INCONCLUSIVE: ("?", "The data are inconclusive."),
}
NO_RUN_YET = "No run has ended yet."
LONGEST_TEXT = 420
LONGEST_KEY_TEXT = 260
MAX_GROUPS_NAMED = 6
MAX_HOST_ROWS = 256
MAX_NUMBERS = 30
"""Rows of evidence of a finding, which may have one for each of a thousand runs; `seatrial why` shows all."""
STATEMENT_TITLES = {Verdict.FAIL: "Problems", Verdict.INCONCLUSIVE: "Unknown", Verdict.PASS: "OK"}
STATEMENT_LOOKS = {Verdict.FAIL: ("look", "!"), Verdict.INCONCLUSIVE: ("inconclusive", "?"), Verdict.PASS: ("pass", "✓")}
"""Class and mark: only a FAIL, which changes the verdict, is red."""
EVIDENCE_COLUMNS = ("subject", "metric", "value", "window", "n", "file")
NOTE_CLASSES = {
    ranking.WINNER: "good",
    **dict.fromkeys((ranking.RECOMMENDED, ranking.TIED, ranking.NO_INTERVAL, ranking.CONFOUNDED, ranking.DUPLICATE), "open"),
    ranking.CANNOT_WIN: "bad",
    **dict.fromkeys((ranking.OFF_LANE, ranking.NOT_RUN, ranking.NOT_ENDED), "quiet"),
}
RANKING_COLUMNS = ("#", "group", "note", "95 % interval", "to best", "p90/p50", "start-up", "runs", "window", "n")
# Criteria may use stage 1's phases, so the title of this ratio names the wall clock.
COLUMN_TITLES = {"p90/p50": "wall p90/p50"}

Row = dict[str, Any]


def content(data: PageData, charts: Sequence[Chart], *, has_bundle: bool) -> Row:
    """Every value of the template."""
    results, health, found = data.results, problems.health_of(data.results), problems.failures(data.results)
    return {
        "title": title(results),
        "head": {"written": utc_time(results.generated_t), "output": _folder(results), "origin": campaign.origin_sentence(results)},
        "has_bundle": has_bundle,
        "verdict": _verdict(data),
        "headline": [{**asdict(part), "status": part.status.value} for part in first_screen.headline(results)],
        "first": _first_rows(results),
        "key": _key_findings(results),
        "more": _more(results),
        "criteria": criteria(results),
        "statements": statements(results),
        "statements_note": _statements_note(results),
        "ranking": ranking_tables(results),
        "reasons": [
            f"{join_names(groups, MAX_GROUPS_NAMED)}: {reason}" for groups, reason in campaign.grouped_reasons(results.ranking_rows)
        ],
        "figures_explained": campaign.figures_explained(higher_is_better=results.ranking.higher_is_better),
        "charts": {section: [chart for chart in charts if chart.section == section] for section in ("ranking", *DRAWN)},
        "nothing": {section: _why_empty(section, data) for section in DRAWN},
        "has_runs": "runs" in data.drawn.tables,
        "startup": _startup(results),
        "eta": {"text": machine.eta_line(results), "explained": machine.ETA_EXPLAINED},
        "failures": [failure_row(failure) for failure in found],
        "health": {
            "facts": list(problems.health_sentences(health)) if health.runs else [],
            "harmless": [[one.id, str(one.runs), str(one.lines), one.meaning] for one in health.harmless],
        },
        "cautions": [_caution(caution) for caution in campaign.shown_cautions(results)],
        "machines": machine_lines(results),
        "telemetry": _telemetry(results),
        "hosts": hosts_table(results),
        "smoke": smoke_table(results),
        "files": list(_file_descriptions()),
        "sections": [{"id": id, "title": name} for id, name in SECTIONS],
        "titles": dict(SECTIONS),
    }


def title(results: CampaignResults) -> str:
    """The plans, or the folder they ran in."""
    return ", ".join(plan.name for plan in results.plans) or _folder(results) or "campaign"


def _folder(results: CampaignResults) -> str:
    """The name of the campaign's folder, without its path, as the page may be sent to others."""
    return PurePath(results.output).name


def _verdict(data: PageData) -> Row:
    results, running = data.results, data.running
    waiting = len(results.pending)
    # Only a campaign that is not running needs advice on missing runs.
    pending = campaign.pending_sentence(results) if running is None else f"{count(waiting, 'run')} still to be run." if waiting else ""
    left_out = campaign.left_out_sentence(results)
    return {
        "running": "" if running is None else f"RUNNING, {running[0]} of {running[1]}",
        **_winners([NO_RUN_YET] if running is not None and not running[0] else campaign.winners_sentences(results)),
        "partial": [f"Partial: {pending}"] if pending else [],
        "notes": [left_out] if left_out else [],
    }


def _winners(sentences: Sequence[str]) -> dict[str, str]:
    """The sentences; of a long text, as of a hundred groups, only the first is shown at once."""
    text, (first, *others) = " ".join(sentences), sentences
    return {"winners": first, "others": " ".join(others)} if len(text) > LONGEST_TEXT else {"winners": text, "others": ""}


def _first_rows(results: CampaignResults) -> Row:
    """The ranking of the first view: the best groups, for the width of a phone."""
    rows = [
        {
            "rank": row.rank,
            "group": row.group,
            "note": campaign.note_with_debug(row),
            "class": NOTE_CLASSES.get(row.note, ""),
            "won": row.note == ranking.WINNER,
            "figure": figure(row.value),
            "margin": margin(row.estimate),
            "ratio": campaign.to_best(row),
            "interval": campaign.to_best_interval(row),
        }
        for row in first_screen.first_rows(results)
    ]
    return {"unit": unit_of(results) or "figure", "rows": rows}


def _key_findings(results: CampaignResults) -> list[Row]:
    found = first_screen.key_findings(results)[: first_screen.MAX_FINDINGS]
    cut = [(shortened(one.text, LONGEST_KEY_TEXT), shortened(one.action, LONGEST_KEY_TEXT)) for one in found]
    return [{"class": one.status.value, "text": text, "action": action} for one, (text, action) in zip(found, cut, strict=True)]


def _more(results: CampaignResults) -> list[tuple[str, str]]:
    """What the first view leaves out, with the section that has it."""
    causes = list(dict.fromkeys(failure.cause for failure in problems.failures(results)))
    failed = [("failures", f"what failed: {join_names(causes)}")] if causes else []
    return [*failed, *first_screen.left_over(results, len(first_screen.first_rows(results)), first_screen.MAX_FINDINGS)]


def ranking_tables(results: CampaignResults) -> list[Row]:
    """A table for each lane with groups; a row has its cells, the class of its note and whether it won."""
    rows = results.ranking_rows
    main, off_lane = [row for row in rows if row.summary.lane], [row for row in rows if not row.summary.lane]
    lanes = (("Main lane" if off_lane else "", main), (campaign.OFF_LANE_TITLE, off_lane))
    return [_ranking_table(results, heading, in_lane) for heading, in_lane in lanes if in_lane]


def _ranking_table(results: CampaignResults, heading: str, rows: Sequence[RankedGroup]) -> Row:
    axes, runs = campaign.axis_names(rows), campaign.runs_by_group(results)
    # The main columns come first, so that a phone shows them without scrolling.
    columns = ["#", "group", "note", unit_of(results) or "figure", "95 % interval", "to best"]
    columns += [*(f"{name} (axis)" if name in RANKING_COLUMNS else name for name in axes), "p90/p50", "start-up", "runs", "window", "n"]
    after_axes = 6 + len(axes)
    return {
        "title": heading,
        "columns": columns,
        "titles": [COLUMN_TITLES.get(column, column) for column in columns],
        "rows": [
            {
                "cells": _ranking_cells(row, axes, runs.get(row.summary.group_key, ())),
                "class": NOTE_CLASSES.get(row.note, ""),
                "won": row.note == ranking.WINNER,
            }
            for row in rows
        ],
        "right": [0, 3, 4, 5, after_axes, after_axes + 1, len(columns) - 1],
        "wraps": [5, len(columns) - 2],
        "name": 1,
        "note": 2,
    }


def _ranking_cells(row: RankedGroup, axes: Sequence[str], runs: Sequence[MeasuredRun]) -> list[str]:
    levels, (value, spread, to_best, *others) = campaign.ranking_cells(row, axes, runs)
    n = NONE if row.n is None else f"{row.n:,}"
    return [str(row.rank), row.group, campaign.note_text(row), value, spread, to_best, *levels, *others, n]


def criteria(results: CampaignResults) -> list[Row]:
    """Findings of the criteria: failed, undecided, met; each in the plan's order."""
    order = list(STATEMENT_TITLES)
    return [_finding(finding) for finding in sorted(results.verdict.findings, key=lambda finding: order.index(finding.verdict))]


def statements(results: CampaignResults) -> list[Row]:
    """Findings without a criterion, by verdict: `{"verdict", "title", "findings"}`."""
    rows = []
    for verdict, heading in STATEMENT_TITLES.items():
        look, mark = STATEMENT_LOOKS[verdict]
        stated = [finding for finding in results.verdict.statements if finding.verdict is verdict]
        found = [{**_finding(finding), "word": problems.WORDS[verdict], "class": look, "mark": mark} for finding in stated]
        if found:
            rows.append({"verdict": verdict.value, "title": heading, "findings": found})
    return rows


def _statements_note(results: CampaignResults) -> str:
    """That these findings do not change the verdict; '' for a FAIL with failed runs among them, which a criterion may count."""
    failed = any(finding.kind == "failure" for finding in results.verdict.statements)
    return "" if failed and results.verdict.verdict is Verdict.FAIL else problems.DECIDES_NOTHING


def _finding(finding: Finding) -> Row:
    verdict = finding.verdict.value
    return {
        "id": finding.id,
        "word": verdict,
        "class": verdict.lower(),
        "mark": VERDICTS[finding.verdict][0],
        "text": finding.text,
        "criterion": problems.criterion_text(finding.criterion) if finding.criterion else "",
        "because": finding.criterion.reason if finding.criterion else "",
        "advice": [advice.text for advice in finding.advice],
        "evidence": _evidence(finding),
    }


def _evidence(finding: Finding) -> Row | None:
    """The table of its numbers, without empty columns; None without numbers."""
    if not finding.evidence:
        return None
    metric = finding.criterion.metric if finding.criterion else ""
    shown = [_evidence_cells(one, metric) for one in finding.evidence[:MAX_NUMBERS]]
    kept = [at for at in range(len(EVIDENCE_COLUMNS)) if any(cells[at] != NONE for cells in shown)]
    left_out = len(finding.evidence) - len(shown)
    return {
        "title": count(len(finding.evidence), "number"),
        "columns": [EVIDENCE_COLUMNS[at] for at in kept],
        "rows": [[cells[at] for at in kept] for cells in shown],
        "right": [at for at, column in enumerate(kept) if EVIDENCE_COLUMNS[column] in ("value", "n")],
        "more": f"and {count(left_out, 'number')} more: `seatrial why` with this id and --json lists them all" if left_out else "",
    }


def _evidence_cells(one: Evidence, metric: str) -> list[str]:
    return [
        one.subject or NONE,
        one.name or metric or NONE,
        problems.value_text(one.value, one.unit),
        one.window or NONE,
        NONE if one.n is None else f"{one.n:,}",
        one.file or NONE,
    ]


def failure_row(failure: problems.Failure) -> Row:
    return {
        "cause": failure.cause,
        "runs": join_names(failure.runs),
        "all_runs": failure.runs if len(failure.runs) > MAX_NAMED else (),
        "ended": f"Ended {failure.outcome} after {failure.after}.",
        "detail": failure.detail,
        "action": failure.action,
        "remarks": failure.remarks,
        "telling": failure.telling,
        "log_tail": failure.log_tail,
        "first_run": failure.runs[0],
    }


def _caution(caution: campaign.SharedCaution) -> Row:
    return {
        "kind": caution.kind.replace("_", " "),
        "text": caution.text,
        "subjects": join_names(caution.subjects),
        "all": caution.subjects if len(caution.subjects) > MAX_NAMED else (),
    }


def machine_lines(results: CampaignResults) -> list[str]:
    """One line for each kind of machine and code, with its number of runs."""
    groups = [(f"Process group: {text}", runs) for text, runs in machine.communicator_lines(results)]
    return [f"{text} ({count(runs, 'run')})" for text, runs in (*machine.machines(results), *groups)]


def _telemetry(results: CampaignResults) -> Row | None:
    """Telemetry by group; None where nothing was sampled."""
    columns, rows = machine.telemetry_table(results)
    return _table(columns, rows, machine.TELEMETRY_EXPLAINED) if rows else None


def _startup(results: CampaignResults) -> Row | None:
    """Start-up by part, in seconds; None where no run recorded it."""
    columns, rows = steps.startup_table(results)
    return _table(columns, rows, steps.STARTUP_EXPLAINED) if rows else None


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], explained: str) -> Row:
    return {"columns": columns, "rows": rows, "right": range(1, len(columns)), "explained": explained}


def hosts_table(results: CampaignResults) -> Row | None:
    """One row per host and run, of too many the odd ones first; None for a campaign on one host."""
    runs = machine.hosts_of(results)
    if not runs:
        return None
    rows = [row for run in runs for row in run.hosts]
    shown = rows if len(rows) <= MAX_HOST_ROWS else sorted(rows, key=lambda row: not row.odd)[:MAX_HOST_ROWS]
    left_out = f" {count(len(rows) - len(shown), 'more row')} in summary.json." if len(shown) < len(rows) else ""
    return {
        "sentences": [machine.hosts_sentence(run) for run in runs[: machine.MAX_RUNS]],
        "columns": machine.HOST_COLUMNS,
        "rows": [machine.host_cells(row) for row in shown],
        "right": machine.HOST_RIGHT_ALIGNED,
        "explained": machine.HOSTS_EXPLAINED + left_out,
    }


def smoke_table(results: CampaignResults) -> Row | None:
    """The smoke records of the first runs side by side."""
    records = machine.smoke_records(results)
    if not records:
        return None
    columns, rows = machine.smoke_table(records)
    left_out = f" {count(len(records) - machine.MAX_RECORDS, 'more run')} in summary.json." if len(records) > machine.MAX_RECORDS else ""
    return {"columns": columns, "rows": rows, "right": (), "explained": machine.SMOKE_EXPLAINED + left_out}


def _why_empty(section: str, data: PageData) -> str:
    """Why a section has no chart."""
    if section == "heat":
        axes = len(campaign.axis_names(data.results.ranking_rows))
        return f"A heat map needs two axes or more; this campaign has {count(axes, 'axis') if axes == 1 else f'{axes} axes'}."
    if section == "eta":
        return machine.eta_line(data.results)
    return NOTHING[section] if set(data.drawn.tables) & set(CHART_TABLES) else NO_TABLES


def _file_descriptions() -> Iterator[tuple[str, str]]:
    """File names and their content; the links work while the page is in the campaign's folder."""
    names = CampaignPaths.__dict__
    for field, description in (
        ("summary_json", "the content of this page, for programs"),
        ("verdict", "the verdict alone, with every finding"),
        ("summary_md", "the same report as Markdown, for a pull request"),
        ("charts", "the tables that the charts are drawn from, as CSV"),
        ("ranked_groups", "the ranking as a table"),
        ("group_summary", "every group with its figures"),
        ("per_run_metrics", "every run that counts, with its figures"),
        ("manifest", "every attempt, how it ended and why"),
        ("timing_points", "rolling percentiles of the step time"),
        ("eta_points", "every ETA"),
        ("best_config_json", "the recommended group's settings"),
    ):
        yield names[field].name, description
