"""What every report shows first: the headline in three parts, the most important findings, and how much more there is.

In: CampaignResults. Out: plain values that terminal, page and Markdown render: the criteria's verdict, the winner or that none is proven,
and the state of the platform, each with its own status, so that a PASS only means that the criteria are met. Findings are merged over
groups and runs; failures come first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.core.text import count, join_names
from seatrial.records import ranking
from seatrial.records.caution import OTHER_NETWORK, SMALLER_WORLD, STEPS_START_OVER, WORLD_UNKNOWN
from seatrial.records.measure import GroupStability, JitterCause, StabilityVerdict
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.view import campaign, problems, slow_nodes

MAX_GROUPS = 10
MAX_FINDINGS = 3
LONGEST_LEAD = 40
"""Characters of run names that may precede what happened to them."""


class Status(str, enum.Enum):
    """The colour of a part of the headline or of a finding."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"
    """Not proven or not stable: needs a look."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class HeadlinePart:
    """One answer, `PASS`, `no proven winner` or `platform stable`, with the facts in a clause."""

    question: str
    """`verdict`, `winner` or `platform`."""
    status: Status
    word: str
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class KeyFinding:
    """A finding that a reader must see first, and what to do about it."""

    status: Status
    text: str
    action: str = ""


VERDICT_STATUS = {Verdict.PASS: Status.GOOD, Verdict.FAIL: Status.BAD, Verdict.INCONCLUSIVE: Status.OPEN}
NO_PROVEN_WINNER, NO_WINNER = "no proven winner", "no winner"
PLATFORM = {Status.GOOD: "platform stable", Status.OPEN: "platform unstable", Status.UNKNOWN: "platform unknown"}
CAUSE_UNKNOWN = "cause unknown"
CONFOUNDED_ALLOWED = "with confounded groups compared"


def headline(results: CampaignResults) -> tuple[HeadlinePart, HeadlinePart, HeadlinePart]:
    """The criteria's verdict, the winner, the platform's state; the same in every report."""
    return _verdict(results), _winner(results), _platform(results)


def headline_text(results: CampaignResults) -> str:
    """`PASS · no proven winner · platform unstable`; `… · no proven winner: confounded by tower_graph · …`; `… · winner T32, if a step is
    the same work in every group · …`."""
    confounded, first = campaign.confounded_clause(results), _first_row(results)
    texts = []
    for part in headline(results):
        text = f"{part.word} {first.group}" if first and part.word == ranking.WINNER else part.word
        text = f"{text}, {CONFOUNDED_ALLOWED}" if part.question == "verdict" and results.verdict.confounded else text
        marks = (confounded, results.ranking.condition) if part.word in (ranking.WINNER, NO_PROVEN_WINNER) else ()
        marked = ", ".join(mark for mark in marks if mark)
        texts.append(f"{text}{', ' if part.word == ranking.WINNER else ': '}{marked}" if marked else text)
    return " · ".join(texts)


def _verdict(results: CampaignResults) -> HeadlinePart:
    judged = results.verdict
    allowed = CONFOUNDED_ALLOWED if judged.confounded else ""
    text = "; ".join(filter(None, (allowed, criteria_clause(judged.findings), _runs_clause(results))))
    return HeadlinePart(question="verdict", status=VERDICT_STATUS[judged.verdict], word=judged.verdict.value, text=text)


def _runs_clause(results: CampaignResults) -> str:
    """`12 of 12 runs ok`, `3 of 8 runs ok, 4 still to be run`; '' without any run."""
    ended = [run for run in results.runs if run.attempt.current and run.outcome and not run.outcome.is_cut_short]
    waiting = len(results.pending)
    ok = sum(run.outcome is Outcome.OK for run in ended)
    parts = [f"{ok} of {len(ended) + waiting} runs ok"] if ended else []
    parts += [f"{waiting} still to be run" if parts else f"{count(waiting, 'run')} still to be run"] if waiting else []
    return ", ".join(parts)


def criteria_clause(findings: Sequence[Finding]) -> str:
    """`2 of 2 criteria met`, `1 of 3 criteria failed: failed_runs; 1 undecided: loss_falls`."""
    if not findings:
        return "the plan has no criteria"
    of = "1 criterion" if len(findings) == 1 else f"{len(findings)} criteria"
    by_verdict = {verdict: [one for one in findings if one.verdict is verdict] for verdict in Verdict}
    parts: list[str] = []
    for verdict, word in ((Verdict.FAIL, "failed"), (Verdict.INCONCLUSIVE, "undecided")):
        if found := by_verdict[verdict]:
            names = dict.fromkeys(one.criterion.metric if one.criterion else one.id for one in found)
            parts.append(f"{len(found)}{'' if parts else f' of {of}'} {word}: {', '.join(names)}")
    return "; ".join(parts) if parts else f"{len(findings)} of {of} met"


SLOW_NODE_STATUS = {slow_nodes.SLOW: Status.BAD, slow_nodes.NONE_SLOW: Status.GOOD, slow_nodes.UNKNOWN: Status.UNKNOWN}


def _winner(results: CampaignResults) -> HeadlinePart:
    if (found := slow_nodes.find_slow_nodes(results)) is not None:
        # A campaign over nodes asks for the slow one, not for a winner.
        return HeadlinePart(question="winner", status=SLOW_NODE_STATUS[found.word], word=found.word, text=found.text)
    rows, first = campaign.main_rows(results), _first_row(results)
    if first is None:
        reason = results.ranking.reason or "no group could be ranked."
        return HeadlinePart(question="winner", status=Status.UNKNOWN, word=NO_WINNER, text=_clause(reason))
    value, debug = campaign.figure_text(results, first), campaign.debug_clause(first)
    condition = campaign.condition_clause(results)
    if first.note == ranking.WINNER:
        confounded = campaign.confounded_clause(results)
        text = f"{first.group}, {value}{f', {confounded}' if confounded else ''}{condition}{_next(first, rows)}{debug}"
        return HeadlinePart(question="winner", status=Status.OPEN if condition else Status.GOOD, word=ranking.WINNER, text=text)
    if first.note == ranking.ONLY_GROUP:
        return HeadlinePart(question="winner", status=Status.UNKNOWN, word=ranking.ONLY_GROUP, text=f"{first.group}, {value}{debug}")
    only = f"; only {results.ranking.condition}" if condition else ""
    text = f"{_not_all_equal(results)}{first.group} recommended{_why_unproven(results, first, rows)}{only}{debug}"
    return HeadlinePart(question="winner", status=Status.OPEN, word=NO_PROVEN_WINNER, text=text)


def _first_row(results: CampaignResults) -> RankedGroup | None:
    return next((row for row in campaign.main_rows(results) if campaign.is_first(row)), None)


def _not_all_equal(results: CampaignResults) -> str:
    """What had no effect, and what confounds the groups, for the beginning of the clause."""
    reasons = (*results.ranking.without_effect[:1], campaign.confounded_clause(results))
    return "".join(f"{text}; " for text in reasons if text)


def _next(winner: RankedGroup, rows: Sequence[RankedGroup]) -> str:
    rival = next((row for row in rows if row.can_win and row.group != winner.group and row.ratio), None)
    if rival is None:
        return ""
    interval = campaign.to_best_interval(rival)
    return f"; next {rival.group} at {campaign.to_best(rival)}{f' ({interval})' if interval else ''}"


def _why_unproven(results: CampaignResults, first: RankedGroup, rows: Sequence[RankedGroup]) -> str:
    """What keeps the first group from being the winner: the most important reason."""
    if failed := results.infrastructure_failures:
        return f"; {count(len(failed), 'run')} failed because of the platform: {join_names(failed)}"
    tied = [row.group for row in rows if row.tied and row.group != first.group]
    if tied and all(row.estimate is None or row.estimate.low is None for row in rows if row.tied):
        # Without an interval nothing was tested.
        return "; one run each: nothing is proven"
    if tied:
        # The next clause names the groups, unless the reason is about fewer than those.
        why = _clause(results.ranking.recommended_reason)
        why = why if " tied groups " in why else why.split(" of the ")[0].rstrip(",")
        return f"{f' for {why}' if why else ''}; tied with {join_names(tied, 2)}"
    if results.pending:
        return f"; {count(len(results.pending), 'run')} still to be run"
    if _not_all_equal(results):
        return ""
    return f"; {_clause(results.ranking.reason)}" if results.ranking.reason else ""


def _clause(sentence: str) -> str:
    return sentence.rstrip(".")


def _platform(results: CampaignResults) -> HeadlinePart:
    if failed := results.infrastructure_failures:
        return HeadlinePart(question="platform", status=Status.BAD, word="platform failed", text=_failed_text(failed))
    judged = [found for _, found in judged_stability(results)]
    unstable = [found for found in judged if found.verdict is StabilityVerdict.UNSTABLE]
    drifted = results.drift if results.drift and results.drift.verdict is StabilityVerdict.UNSTABLE else None
    if unstable:
        return _platform_part(Status.OPEN, f"{instability(results)}: {cause_clause(results)}")
    if drifted:
        return _platform_part(Status.OPEN, _clause(drifted.reason))
    unclear = [found for found in judged if found.verdict is StabilityVerdict.INCONCLUSIVE]
    if unclear or not judged:
        stable = len(judged) - len(unclear)
        known = f"{stable} of {len(judged)} groups stable; " if stable else ""
        return _platform_part(Status.UNKNOWN, f"{known}{_why_unclear(unclear)}")
    return _platform_part(Status.GOOD, f"{_all_of(len(judged), len(judged))}{_spread(judged)}")


def _failed_text(names: Sequence[str]) -> str:
    return f"{count(len(names), 'run')} failed: {join_names(names)}"


def _platform_part(status: Status, text: str) -> HeadlinePart:
    return HeadlinePart(question="platform", status=status, word=PLATFORM[status], text=text)


def judged_stability(results: CampaignResults) -> list[tuple[str, GroupStability]]:
    return [(group.group, group.stability) for group in results.groups if group.stability and group.mode != SENTINEL]


def instability(results: CampaignResults) -> str:
    """`all 4 groups, CV 7–9 %`, `1 of 4 groups (mb8), CV 6 %`."""
    judged = judged_stability(results)
    unstable = [(group, found) for group, found in judged if found.verdict is StabilityVerdict.UNSTABLE]
    named = f" ({unstable[0][0]})" if len(unstable) == 1 and len(judged) > 1 else ""
    return f"{_all_of(len(unstable), len(judged))}{named}{_spread([found for _, found in unstable])}"


def _all_of(some: int, of: int) -> str:
    if of == 1:
        return "its only group"
    return f"all {of} groups" if some == of else f"{some} of {of} groups"


def _spread(judged: Sequence[GroupStability]) -> str:
    """The range of the CV over the groups; the highest p90/p50 where no CV is known."""
    spreads = [found.cv_pct for found in judged if found.cv_pct is not None]
    ratios = [found.ratio_max for found in judged if found.ratio_max is not None]
    if spreads:
        ends = dict.fromkeys(f"{end:.0f}" if end >= 1 else f"{end:.1f}" for end in (min(spreads), max(spreads)))
        return f", CV {'–'.join(ends)} %"
    return f", p90/p50 up to {max(ratios):.2f}" if ratios else ""


def _why_unclear(unclear: Sequence[GroupStability]) -> str:
    if not unclear:
        return "no run to judge it by"
    # The first reason of the group with the most runs; the findings list all.
    reason = max(unclear, key=lambda found: found.runs).reason.removeprefix("Unknown: ")
    return _clause(reason.split(" (n = ")[0].split("; ")[0])


def cause_clause(results: CampaignResults) -> str:
    """The two strongest causes of instability in a few words, or that the cause is unknown."""
    causes = [cause for _, found in judged_stability(results) if found.verdict is StabilityVerdict.UNSTABLE for cause in found.causes]
    strongest: dict[str, JitterCause] = {}
    for cause in sorted(causes, key=lambda cause: -cause.strength):
        strongest.setdefault(cause.kind, cause)
    return "; ".join(_short_cause(cause) for cause in list(strongest.values())[:2]) or CAUSE_UNKNOWN


_CAUSES = {
    "host_load": ("other jobs used {others_pct:.0f} % of the CPU", "load {load:.1f} on {cores} CPUs"),
    "host_steal": ("the hypervisor took {steal_mean_pct:.0f} % of the CPU (steal)",),
    "power_cap": ("GPUs at their power limit",),
    "thermal": ("GPUs throttled by heat",),
    "throttling": ("GPUs throttled",),
    "anti_correlated_gpus": ("anti-correlated GPU utilisation",),
    "gpu_imbalance": ("uneven GPU utilisation",),
    "data_wait_bursts": ("ranks wait for data in bursts",),
    "data_wait": ("ranks wait for data",),
    "slow_rank": ("a slow rank",),
    "slow_host": ("a slow host",),
    "telemetry_gaps": ("telemetry has gaps, the host was too busy",),
}
"""Kind of cause → templates; the first one whose numbers are known is used."""


def _short_cause(cause: JitterCause) -> str:
    for template in _CAUSES.get(cause.kind, ()):
        try:
            return template.format(**cause.numbers)
        except (KeyError, ValueError, TypeError):
            continue
    # What preflight found, without the list of processes after it.
    found = str(cause.numbers.get("found", "")).split(": ")[0]
    return f"{found} before the start" if found else _clause(cause.text.split(". ")[0])


def key_findings(results: CampaignResults) -> list[KeyFinding]:
    """The most important first: failed runs, unmet criteria, what weakens the ranking, other problems; those of one kind together."""
    found = [*_failed_runs(results), *_unmet_criteria(results), *_weak_ranking(results), *_problems(results), *_notes(results)]
    first = {finding.action: at for at, finding in reversed(list(enumerate(found)))}
    # The same advice once.
    return [finding if first[finding.action] == at else replace(finding, action="") for at, finding in enumerate(found)]


def _failed_runs(results: CampaignResults) -> Iterator[KeyFinding]:
    """Long names of runs come last: they may be cut, the cause must not."""
    for failure in problems.failures(results):
        names, line = join_names(failure.runs), f" | {failure.where}" if failure.where else ""
        is_short = len(names) <= LONGEST_LEAD
        who = names if is_short else count(len(failure.runs), "run")
        cause = f"{who}: {failure.outcome}, {failure.cause}. {failure.detail}".rstrip(". ")
        text = f"{cause}{line} ({'' if is_short else f'{names}; '}after {failure.after})"
        yield KeyFinding(status=Status.BAD, text=text, action=failure.action or next(iter(failure.remarks), ""))


def _unmet_criteria(results: CampaignResults) -> Iterator[KeyFinding]:
    failed_runs_shown = any(problems.failures(results))
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        for finding in results.verdict.findings:
            metric = finding.criterion.metric if finding.criterion else ""
            # Failed runs are listed with their causes; pending ones are in the headline.
            is_shown = failed_runs_shown or (verdict is Verdict.INCONCLUSIVE and results.pending)
            if finding.verdict is not verdict or (metric == "failed_runs" and is_shown):
                continue
            action = finding.advice[0].text if finding.advice else ""
            yield KeyFinding(status=VERDICT_STATUS[verdict], text=f"[{problems.short_id(finding)}] {finding.text}", action=action)


WEAKEN_RANKING = frozenset(
    {"loss_not_finite", "axis_without_effect", "unlike_runs", "whole_run_only", "too_few_steps", "buffered_output"}
    | {WORLD_UNKNOWN, SMALLER_WORLD, OTHER_NETWORK, STEPS_START_OVER}
)
"""Kinds of cautions that weaken the ranking, beside the ranking's own."""


def _cautions_of_the_ranking(results: CampaignResults) -> list[campaign.SharedCaution]:
    kinds = WEAKEN_RANKING | {caution.kind for caution in results.ranking.cautions}
    # The ranking reports it with the groups that ran the same.
    kinds -= {"axis_without_effect"} if results.ranking.without_effect else set()
    return [caution for caution in campaign.shown_cautions(results) if caution.kind in kinds]


def _weak_ranking(results: CampaignResults) -> Iterator[KeyFinding]:
    """Cautions that weaken the ranking; several of one kind are one."""
    by_kind: dict[str, list[campaign.SharedCaution]] = {}
    for caution in _cautions_of_the_ranking(results):
        by_kind.setdefault(caution.kind, []).append(caution)
    for found in by_kind.values():
        subjects = list(dict.fromkeys(subject for caution in found for subject in caution.subjects))
        named = f" ({join_names(subjects)})" if subjects else ""
        yield KeyFinding(status=Status.OPEN, text=f"{found[0].text}{named}")


IN_HEADLINE = frozenset({"stability", "drift"})


def _problems(results: CampaignResults) -> Iterator[KeyFinding]:
    """Problems that no criterion asked for; several of one kind are one."""
    by_kind: dict[str, list[Finding]] = {}
    for finding in problems.failed_statements(results):
        if finding.kind not in IN_HEADLINE:
            by_kind.setdefault(finding.kind, []).append(finding)
    for found in by_kind.values():
        others = f" And {len(found) - 1} more like it." if len(found) > 1 else ""
        yield KeyFinding(status=Status.OPEN, text=f"{found[0].text}{others}", action=found[0].advice[0].text if found[0].advice else "")


def _notes(results: CampaignResults) -> Iterator[KeyFinding]:
    drawn = [caution.text for caution in results.cautions if caution.kind == campaign.PAGE_NOT_DRAWN]
    for text in (campaign.left_out_sentence(results), *drawn):
        if text:
            yield KeyFinding(status=Status.OPEN, text=text)


def first_rows(results: CampaignResults, most: int = MAX_GROUPS) -> list[RankedGroup]:
    """The best groups of the main lane, always with the recommended one, which of a hundred tied groups may be the last."""
    rows = campaign.main_rows(results)
    rest = [row for row in rows[most:] if campaign.is_first(row)]
    return [*rows[: max(most - len(rest), 0)], *rest]


def left_over(results: CampaignResults, shown_groups: int, shown_findings: int) -> list[tuple[str, str]]:
    """What the first screen leaves out: section of the page, and `12 more groups`."""
    # Cautions of the ranking are among the key findings, the others are only counted.
    cautions = len(campaign.shown_cautions(results)) - len(_cautions_of_the_ranking(results))
    left = (
        ("ranking", len(results.ranking_rows) - shown_groups, "more group"),
        ("found", len(key_findings(results)) - shown_findings, "more finding"),
        ("cautions", cautions, "caution"),
    )
    return [(section, count(number, what)) for section, number, what in left if number > 0]
