"""The campaign as every renderer shows it: ranking rows, unique labels, sentences about the whole, cautions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.core.text import count, format_duration, join_names
from seatrial.records.caution import Caution, Scalar
from seatrial.records.columns import ORIGINAL_SCRIPTS
from seatrial.records.measure import GroupSummary
from seatrial.records.outcome import Outcome
from seatrial.records.plan import RunSpec
from seatrial.records.ranking import CONFOUNDED, NO_INTERVAL, ONLY_GROUP, RECOMMENDED, WINNER, RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.run_table import qualified_name
from seatrial.report.text import NONE, axis_level, figure, interval, margin, ratio
from seatrial.report.view.problems import WHAT_FITS

MAX_NAMED = 3
DEBUG_ON = "debug on"
CONDITIONAL = "conditional"
NOTE_TEXTS = {RECOMMENDED: "recommended, not proven"}
"""Notes that are longer in reports than in summary.json."""
OFF_LANE_TITLE = "Off the main lane, ranked apart"
FIGURES_ARE = (
    "Figures are wall clock over the window, geometric means over the runs that ended ok; intervals are 95 %, taken on logs; n is the "
    "number of steps counted, for figures of whole runs the number of runs."
)


def main_rows(results: CampaignResults) -> list[RankedGroup]:
    """The rows of the main lane; all rows where every group is off it."""
    return [row for row in results.ranking_rows if row.summary.lane] or list(results.ranking_rows)


def is_first(row: RankedGroup) -> bool:
    """The winner, or the group to use as things are."""
    return row.note in (WINNER, RECOMMENDED, ONLY_GROUP)


def note_with_debug(row: RankedGroup) -> str:
    """The note as in summary.json: debug settings and confounding are marked beside every figure that they affect."""
    confounded = CONFOUNDED if row.confounded and row.can_win and row.note != CONFOUNDED else ""
    conditional = CONDITIONAL if row.is_conditional else ""
    return ", ".join(part for part in (row.note, conditional, confounded, DEBUG_ON if row.summary.debug else "") if part)


def note_text(row: RankedGroup) -> str:
    """`note_with_debug` as readers see it."""
    return note_with_debug(row).replace(row.note, NOTE_TEXTS.get(row.note, row.note), 1)


def mean_of(group: GroupSummary, metric: str) -> float | None:
    found = group.figures.get(metric)
    return found.mean if found else None


def axis_names(rows: Iterable[RankedGroup]) -> list[str]:
    """Names in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row.summary.axes))


def axis_labels(results: CampaignResults) -> dict[str, str]:
    """Axis → its short label in group names."""
    return {axis: label for run in results.runs for axis, label in run.attempt.spec.labels.items()}


def to_best(row: RankedGroup) -> str:
    """'0.986' of the best mean, '1' for the best itself."""
    return ratio(row.ratio.mean) if row.ratio else ("1" if row.is_best else NONE)


def to_best_interval(row: RankedGroup) -> str:
    """'0.971–1.002'; '' without an interval."""
    return f"{ratio(row.ratio.low)}–{ratio(row.ratio.high)}" if row.ratio and row.ratio.low is not None else ""


def ratio_text(row: RankedGroup) -> str:
    """'0.986 (0.971 to 1.002)' of the best mean, '1' for the best itself."""
    if row.ratio is None:
        return to_best(row)
    return f"{to_best(row)} ({to_best_interval(row).replace('–', ' to ') or NO_INTERVAL})"


def figure_text(results: CampaignResults, row: RankedGroup) -> str:
    """'1,279 samples/s ±1.6 %'."""
    return " ".join(part for part in (figure(row.value), results.ranking.unit, margin(row.estimate)) if part)


def confounded_clause(results: CampaignResults) -> str:
    """`confounded by tower_graph`; '' where all else is equal."""
    return f"{CONFOUNDED} by {join_names(results.ranking.confounded_by)}" if results.ranking.confounded_by else ""


def condition_clause(results: CampaignResults) -> str:
    """`, if a step is the same work in every group: pass --samples-per-step`; '' where nothing is assumed."""
    ranking = results.ranking
    return f", {ranking.condition}: {ranking.condition_remedy}" if ranking.condition else ""


def debug_clause(row: RankedGroup) -> str:
    """`, measured with NCCL_DEBUG=INFO on`; '' without debug settings."""
    return f", measured with {', '.join(row.summary.debug)} on" if row.summary.debug else ""


def ranking_cells(row: RankedGroup, axes: Sequence[str], runs: Sequence[MeasuredRun]) -> tuple[list[str], list[str]]:
    """The cells of a row, in the order of every table: its level on each axis; figure, interval, ratio to the best, p90/p50, start-up, runs
    and window. `runs` are the group's."""
    group = row.summary
    levels = [axis_level(group.axes.get(name)) for name in axes]
    figures = [
        figure(row.value),
        interval(row.estimate),
        ratio_text(row),
        ratio(mean_of(group, "wall_p90_over_p50")),
        format_duration(mean_of(group, "startup_s")),
        runs_text(group),
        NONE if row.n is None else window_text(runs),
    ]
    return levels, figures


def ranking_values(results: CampaignResults) -> list[dict[str, Any]]:
    """The ranking rows as plain values, under the names of `standings` in summary.json and of the chart table `groups`."""
    runs = runs_by_group(results)
    return [_ranking_row_values(row, window_text(runs.get(row.summary.group_key, ()))) for row in results.ranking_rows]


def _ranking_row_values(row: RankedGroup, window: str) -> dict[str, Any]:
    group, estimate, to_best = row.summary, row.estimate, row.ratio
    return {
        "rank": row.rank,
        "group": group.group,
        "mode": group.mode,
        "lane": group.lane,
        "value": row.value,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "ratio": to_best.mean if to_best else (1.0 if row.is_best else None),
        "ratio_low": to_best.low if to_best else None,
        "ratio_high": to_best.high if to_best else None,
        "note": note_with_debug(row),
        "reason": row.reason,
        "runs": group.runs,
        "failed": group.failed_runs,
        "runs_text": runs_text(group),
        "p90_over_p50": mean_of(group, "wall_p90_over_p50"),
        "startup_s": mean_of(group, "startup_s"),
        "window": window,
        "n": row.n,
        "axes": group.axes,
    }


def figures_explained(*, higher_is_better: bool) -> str:
    """Whether higher or lower is better, and what the figures of a ranking are."""
    return f"{'Higher' if higher_is_better else 'Lower'} is better. {FIGURES_ARE}"


def grouped_reasons(rows: Iterable[RankedGroup]) -> list[tuple[list[str], str]]:
    """Groups with the same note and reason, and the sentence about them."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note and row.reason:
            by_reason.setdefault((row.note, row.reason), []).append(row.group)
    return [(groups, reason if reason.startswith(note) else f"{note}, {reason}") for (note, reason), groups in by_reason.items()]


def groups_in_order(results: CampaignResults) -> list[GroupSummary]:
    """Best first, then groups off the lane, then groups without a rank."""
    ranked = [row.summary for row in results.ranking_rows]
    keys = {group.group_key for group in ranked}
    return [*ranked, *(group for group in results.groups if group.group_key not in keys)]


def runs_by_group(results: CampaignResults) -> dict[str, list[MeasuredRun]]:
    """Group key → the counted runs."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in results.counted:
        found.setdefault(run.attempt.spec.key, []).append(run)
    return found


def window_text(runs: Iterable[MeasuredRun]) -> str:
    """The windows of a group's counted runs, mostly one and the same."""
    windows = (run.measure.window for run in runs if run.measure and run.measure.window)
    spans = dict.fromkeys(f"{window.first_step}–{window.last_step}" for window in windows)
    return f"steps {join_names(list(spans))}" if spans else "whole run"


def runs_text(group: GroupSummary) -> str:
    """'2 ok', '1 ok, 1 failed, 1 set aside'."""
    parts = [f"{group.runs} ok"]
    parts += [f"{group.failed_runs} failed"] if group.failed_runs else []
    parts += [f"{count(len(group.infrastructure_failures), 'platform failure')}"] if group.infrastructure_failures else []
    parts += [f"{group.set_aside_runs} set aside"] if group.set_aside_runs else []
    return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Unique names of runs and groups in charts and summary.json.

    Plans that share a folder may give one name to two configurations. Such a group has digits of its key after its name, and a run whose
    name occurs in another configuration gets the same digits: `mb16_r1~427b`.
    """

    groups: dict[str, str]
    """Group key → label."""
    runs: dict[tuple[Scalar, Scalar], str]
    """Name of the run and label of its group → label of the run; only runs whose name is not unique."""

    def group(self, spec: RunSpec) -> str:
        return self.groups.get(spec.key, spec.group)

    def run(self, spec: RunSpec) -> str:
        return self.runs.get((spec.run, self.group(spec)), spec.run)

    def run_key(self, spec: RunSpec) -> tuple[Scalar, ...]:
        """The cells of records.columns.RUN_KEY_COLUMNS."""
        return self.run(spec), self.group(spec), spec.repeat

    def labelled(self, rows: Iterable[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
        """Rows of runs, with unique group names already, with unique run names."""
        return [{**row, "run": self.runs.get((row["run"], row["group"]), row["run"])} for row in rows]


def labels_of(results: CampaignResults) -> Labels:
    specs = {(run.attempt.spec.run, run.attempt.spec.key): run.attempt.spec for run in results.runs if run.attempt.current}
    labels = Labels(groups={group.group_key: group.group for group in results.groups}, runs={})
    uses = Counter(run for run, _ in specs)
    for spec in specs.values():
        if uses[spec.run] > 1:
            label = labels.group(spec)
            # Groups with different names may still give the same run name.
            digits = label.removeprefix(spec.group) if label.startswith(spec.group) else ""
            labels.runs[spec.run, label] = f"{spec.run}{digits}" if digits else qualified_name(spec.run, spec.key)
    return labels


def origin_sentence(results: CampaignResults) -> str:
    """What the campaign was translated from, for the top of a report, or ''."""
    return next((caution.text for caution in results.cautions if caution.kind == ORIGINAL_SCRIPTS), "")


def winners_sentence(results: CampaignResults) -> str:
    """The winner by the ranked figure, or the recommended group where none is proven; and the winner by latency."""
    return " ".join(winners_sentences(results))


def winners_sentences(results: CampaignResults) -> list[str]:
    """The same as a list; the first sentence names the winner, or states that there is none."""
    ranking = results.ranking
    chosen = next((row for row in results.ranking_rows if row.group == ranking.recommended), None)
    if chosen is None:
        return ["No winner.", ranking.reason or "No group could be ranked."]
    return [*_winner_sentences(results, chosen), *filter(None, [_latency_sentence(results)])]


def _winner_sentences(results: CampaignResults, chosen: RankedGroup) -> list[str]:
    ranking = results.ranking
    is_throughput = ranking.metric.endswith("_per_s")
    group = f"{chosen.group} ({figure_text(results, chosen)}){debug_clause(chosen)}"
    if results.is_only_group:
        return [f"{'Throughput' if is_throughput else ranking.metric} of the only group: {group}."]
    if not results.is_undecided:
        title = "Throughput winner" if is_throughput else f"Winner by {ranking.metric}"
        confounded = confounded_clause(results)
        mark = f", but {confounded}, which was allowed" if confounded else ""
        return [f"{title}: {group}, ahead of every other group by more than the noise{mark}{condition_clause(results)}."]
    because = f", for {ranking.recommended_reason}" if ranking.recommended_reason else ""
    because += condition_clause(results)
    unproven = f"No winner by {'throughput' if is_throughput else ranking.metric} is proven."
    return [unproven, f"{_unproven(results)}.", f"Recommended: {group}{because}."]


def _unproven(results: CampaignResults) -> str:
    """Why no group is the winner, without the last full stop."""
    reason = (results.ranking.reason or "The groups are statistically indistinguishable").rstrip(".")
    if results.not_started and len(results.ranking.groups) == 1:
        reason = "No run of another group has ended yet"
    if failed := results.infrastructure_failures:
        again = f"Run {'it' if len(failed) == 1 else 'them'} again before naming a winner"
        return f"{reason}. {count(len(failed), 'run')} failed because of the platform: {join_names(failed)}. {again}"
    return f"{reason}. {count(len(results.pending), 'run')} still to be run" if results.pending else reason


def why_no_tail(results: CampaignResults) -> str:
    """Why runs with timing points have no tail figures, and what to do; empty where all have them."""
    short = [run for run in results.counted if run.measure and run.measure.timing_points and not run.measure.stage1.get("tail_points_used")]
    if not short or short[0].measure is None:
        return ""
    timing, last = short[0].attempt.spec.timing, short[0].measure.timing_points[-1].step
    # The first timing point whose window does not contain step 0.
    needed = math.ceil(timing.timing_window / timing.log_every) * timing.log_every + 1
    return (
        f"No tail figures for {join_names([run.attempt.spec.run for run in short], MAX_NAMED)}: the last timing point, one every "
        f"{timing.log_every} steps (timing.log_every), is at step {last}, and its window of {timing.timing_window} steps "
        f"(timing.timing_window) contains the first step. Run at least {needed} steps, or lower timing.timing_window."
    )


def _latency_sentence(results: CampaignResults) -> str:
    ranking = results.ranking
    name = ranking.latency_winner or ranking.lowest_latency
    group = next((group for group in results.groups if group.group == name), None)
    if group is None:
        # A latency winner belongs to the stage-1 procedure; a sweep of a script has none.
        why = why_no_tail(results) if any(not run.attempt.spec.workload.script for run in results.counted) else ""
        return f"Latency winner: none. {why}" if why else ""
    p50_ms = group.stage1.get("tail_mean_iter_p50_ms_mean")
    per_run = [run.measure.stage1 for run in results.counted if run.measure and run.attempt.spec.group == group.group]
    # Timing points are sums of phases for runs that recorded forward and backward, else whole steps.
    has_phases = any(cells.get("last_fwd_p50_ms") is not None and cells.get("last_bwd_p50_ms") is not None for cells in per_run)
    what = "sum of phases" if has_phases else "step"
    value = (
        f" ({figure(p50_ms)} ms: the mean, over its runs and their last timing points, of the median {what})"
        if isinstance(p50_ms, float)
        else ""
    )
    same = "the same, " if name == ranking.recommended else ""
    if ranking.latency_unlike:
        return f"No latency winner: step times cannot be compared, as {ranking.latency_unlike}."
    if ranking.latency_winner is None:
        return f"No latency winner: {CONFOUNDED}, {ranking.latency_confounded}. Lowest latency: {same}{name}{value}."
    mark = f"; {CONFOUNDED}, which was allowed: {ranking.latency_confounded}" if ranking.latency_confounded else ""
    return f"Latency winner: {same}{name}{value}{mark}."


def left_out_sentence(results: CampaignResults) -> str:
    """The runs that `--only` left out, or ''."""
    return results.verdict.notes.get("left_out", "")


def pending_sentence(results: CampaignResults) -> str:
    """The pending runs, or ''."""
    if not results.pending:
        return ""
    waiting = f"{count(len(results.pending), 'run')} still to be run: {join_names(results.pending)}."
    if origin_sentence(results):
        return f"{waiting} The original manifest does not say how that ended, so it counts in no figure."
    return f"{waiting} The same command again runs only what is missing."


PAGE_NOT_DRAWN = "page_not_drawn"
"""Kind of the caution of a report without its page."""
REPORT_NOT_WRITTEN = "report_not_written"
"""Kind of the caution of a report that could not be written; the caller prints why."""
SHOWN_ELSEWHERE = (ORIGINAL_SCRIPTS, WHAT_FITS, REPORT_NOT_WRITTEN)
"""Cautions with a place of their own: the origin at the top, what fits with the failures."""


@dataclass(frozen=True, kw_only=True)
class SharedCaution:
    """A caution and all runs or groups that it is about."""

    kind: str
    text: str
    subjects: tuple[str, ...]


def shown_cautions(results: CampaignResults) -> list[SharedCaution]:
    """Cautions that no other section shows."""
    return [caution for caution in all_cautions(results) if caution.kind not in SHOWN_ELSEWHERE]


def all_cautions(results: CampaignResults) -> list[SharedCaution]:
    """Cautions of the campaign, its groups and its current runs; the same caution on several subjects is one."""
    together: dict[tuple[str, str], dict[str, None]] = {}
    for caution, owner in _all_cautions(results):
        subject = caution.subject or owner
        together.setdefault((caution.kind, caution.text), {}).update({subject: None} if subject else {})
    return [SharedCaution(kind=kind, text=text, subjects=tuple(subjects)) for (kind, text), subjects in together.items()]


def _all_cautions(results: CampaignResults) -> Iterable[tuple[Caution, str]]:
    yield from ((caution, "") for caution in (*results.cautions, *results.ranking.cautions))
    for group in results.groups:
        yield from ((caution, group.group) for caution in group.cautions)
    for run in results.runs:
        if run.attempt.current:
            # Figures of a failed run count nowhere: their cautions would only distract from its cause.
            measured = run.measure.cautions if run.measure and run.outcome is Outcome.OK else ()
            yield from ((caution, run.attempt.spec.run) for caution in (*run.attempt.cautions, *measured))
