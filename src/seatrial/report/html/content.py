"""What the page says, section by section, before the template sets it.

In: the page's data and its charts. Out: one dict for the template: texts, rows, and for each section of charts why there is nothing where
there is nothing. Every text in it is plain; the template escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES
from seatrial.report.digest.eta import EXPLAINED as ETA_EXPLAINED
from seatrial.report.digest.phases import NOTHING as NO_PHASES
from seatrial.report.digest.startup import NOTHING as NO_STARTUP
from seatrial.report.digest.step_times import NOTHING as NO_STEPS
from seatrial.report.digest.telemetry import NOTHING as NO_TELEMETRY
from seatrial.report.html import failures, findings, hosts, loose, machine, ranking
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.summary_tables import axis_names, standings
from seatrial.wording import count

SECTIONS = (
    ("verdict", "Verdict"), ("ranking", "Ranking"), ("found", "Also found"), ("heat", "Across the axes"), ("steps", "Steps"),
    ("distribution", "Step times"), ("phases", "Phases"), ("startup", "Start-up"), ("timeline", "Timeline"), ("ranks", "Ranks"),
    ("eta", "Time to go"), ("failures", "Failures"), ("cautions", "Cautions"), ("machine", "Machine"), ("files", "Files"),
)  # fmt: skip
"""In the page's order: id and title."""
DRAWN = ("heat", "steps", "distribution", "phases", "startup", "timeline", "ranks", "eta")
NO_TABLES = "The tables to draw from are not there: `seatrial report` on the campaign's folder makes them."
NOTHING = {
    "steps": "No run told of its steps.",
    "distribution": NO_STEPS,
    "phases": NO_PHASES,
    "startup": NO_STARTUP,
    "timeline": NO_TELEMETRY,
    "eta": "No estimate of the time to go was made.",
    "ranks": "No run that counts had several ranks that told of their steps.",
}
VERDICT_WORDS = {
    "PASS": ("✓", "Every criterion holds."),
    "FAIL": ("✗", "At least one criterion does not hold."),
    "INCONCLUSIVE": ("?", "The data do not decide."),
}
NO_RUN_YET = "No run has ended yet."
LONGEST_SENTENCE = 420
UNKNOWN = ("?", "No verdict was found in summary.json.")


def content(data: PageData, charts: Sequence[Chart], *, has_bundle: bool) -> dict[str, Any]:
    """Everything that the template names."""
    summary = data.summary
    return {
        "title": title(summary),
        "head": _head(summary),
        "has_bundle": has_bundle,
        "verdict": _verdict(summary),
        "tiles": ranking.key_figures(summary),
        "criteria": findings.criteria(summary),
        "statements": findings.statements(summary),
        "decides": findings.what_they_decide(summary),
        "ranking": ranking.ranking_tables(summary),
        "reasons": ranking.reasons(summary),
        "reading": ranking.how_it_is_read(summary),
        "charts": {section: [chart for chart in charts if chart.section == section] for section in ("ranking", *DRAWN)},
        "nothing": {section: _nothing(section, data) for section in DRAWN},
        "has_runs": "runs" in data.tables,
        "startup": machine.startup(summary),
        "eta": {"text": loose.text(summary, "eta_quality", "text"), "explained": ETA_EXPLAINED},
        "failures": (failed := failures.failures(summary)),
        "failed": failures.in_short(failed),
        "health": failures.health(summary),
        "cautions": failures.cautions(summary),
        "machines": machine.machines(summary),
        "did": machine.what_it_did(summary),
        "hosts": hosts.hosts(summary),
        "smoke": hosts.smoke(summary),
        "files": list(_files()),
        "sections": [{"id": id, "title": name} for id, name in SECTIONS],
        "titles": dict(SECTIONS),
    }


def title(summary: dict[str, Any]) -> str:
    """The plans, or where they were run."""
    return ", ".join(loose.words(summary, "plans")) or _folder(summary) or "campaign"


def _head(summary: dict[str, Any]) -> dict[str, str]:
    return {
        "made": loose.text(summary, "generated_at"),
        "output": _folder(summary),
        "origin": loose.text(summary, "sentences", "origin"),
    }


def _folder(summary: dict[str, Any]) -> str:
    """The campaign's folder by its own name: where it lies on the machine that made it is nobody's matter who is sent the page."""
    return PurePath(loose.text(summary, "output_root")).name


def _verdict(summary: dict[str, Any]) -> dict[str, Any]:
    word = loose.text(summary, "verdict", "verdict")
    mark, _ = VERDICT_WORDS.get(word, UNKNOWN)
    running = loose.mapping(summary, "running")
    pending = _pending(summary, advises=not running)
    left_out = loose.text(summary, "sentences", "left_out") or loose.text(summary, "verdict", "notes", "left_out")
    return {
        "word": word if word in VERDICT_WORDS else "UNKNOWN",
        "mark": mark,
        "running": _running(running),
        "meaning": _meaning(summary, word),
        **_winners(NO_RUN_YET if running and not loose.whole(running, "finished") else loose.text(summary, "winners")),
        "partial": [f"Partial: {pending}"] if pending else [],
        "notes": [left_out] if left_out else [],
    }


def _running(running: dict[str, Any]) -> str:
    """The head of a page whose campaign runs at this moment; nothing else."""
    done, of = loose.whole(running, "finished"), loose.whole(running, "count")
    return "" if not running else "RUNNING" if done is None or of is None else f"RUNNING, {done} of {of}"


def _meaning(summary: dict[str, Any], word: str) -> str:
    """What the verdict rests on: which criteria do not hold or cannot be said, and whether runs are missing."""
    if word not in VERDICT_WORDS:
        return UNKNOWN[1]
    if not loose.objects(summary, "verdict", "findings"):
        return "No criterion was asked for."
    # While it runs they are not missing, only not made yet.
    waiting = 0 if loose.mapping(summary, "running") else len(loose.words(summary, "pending"))
    missing = f" {count(waiting, 'run')} {'is' if waiting == 1 else 'are'} missing." if waiting else ""
    return (findings.undecided(summary) or VERDICT_WORDS[word][1]) + missing


def _pending(summary: dict[str, Any], *, advises: bool) -> str:
    """What is still to be run; what to do about it only where nobody is at it."""
    told = loose.text(summary, "sentences", "pending")
    waiting = loose.words(summary, "pending")
    return told if told and advises else f"{count(len(waiting), 'run')} still to be run." if waiting else ""


def _winners(sentence: str) -> dict[str, str]:
    """A sentence that names a hundred groups is cut after who won; the rest can be opened."""
    won, stop, rest = sentence.partition(". ")
    return {"winners": won + stop.strip(), "others": rest} if len(sentence) > LONGEST_SENTENCE else {"winners": sentence, "others": ""}


def _nothing(section: str, data: PageData) -> str:
    """One sentence on why a section is empty."""
    if section == "heat":
        axes = len(axis_names(standings(data.summary)))
        return f"A heat map takes groups over two axes or more; this campaign has {count(axes, 'axis') if axes == 1 else f'{axes} axes'}."
    if section == "eta":
        return loose.text(data.summary, "eta_quality", "text") or NOTHING["eta"]
    return NOTHING[section] if set(data.tables) & set(CHART_TABLES) else NO_TABLES


def _files() -> Iterable[tuple[str, str]]:
    """Name and what it holds; a link to it works where the page lies in the campaign's folder."""
    names = CampaignPaths.__dict__
    for field, told in (
        ("summary_json", "this page's content in one document, for programs"),
        ("verdict", "the verdict alone, with every finding"),
        ("summary_md", "the same report as Markdown, for a pull request"),
        ("charts", "the tables that the charts are drawn from, as CSV"),
        ("ranked_groups", "the ranking as a table"),
        ("group_summary", "every group with its figures"),
        ("per_run_metrics", "every run that counts, with its figures"),
        ("manifest", "every attempt, how it ended and why"),
        ("timing_points", "rolling percentiles of the step time"),
        ("eta_points", "every estimate of the time to go"),
        ("best_config_json", "the winner's settings"),
    ):
        if field in names:
            yield names[field].name, told
