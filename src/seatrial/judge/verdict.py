"""The verdict: each criterion becomes a finding, the findings become one verdict, with other findings beside it.

In: a plan's criteria and the measured runs. Out: `CampaignVerdict` (verdict.json). Missing data never passes: a finding is PASS only when
every value it checks exists and meets the bound, and no run is pending. Where a figure has an interval, all of it must meet the bound, or
none of it. A figure of one run has no interval: its value decides. Findings without a criterion never change the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from seatrial.core.text import count, format_number
from seatrial.judge.advice import advice_for
from seatrial.judge.criteria import evaluate
from seatrial.judge.cross_run_criteria import COUNTED, count_text
from seatrial.judge.evidence import BoundStatus, Compared, CriterionValue, JudgedCampaign, judged_campaign, listed, without_numbers
from seatrial.judge.findings import other_findings
from seatrial.records.comparison import Scaling
from seatrial.records.measure import GroupSummary, SentinelDrift
from seatrial.records.ranking import Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import (
    CAMPAIGN,
    DEFAULT_CRITERIA,
    EVERY_GROUP,
    EVERY_RUN,
    WINNER,
    CampaignVerdict,
    Criterion,
    Finding,
    Verdict,
    metric_entry,
)

_ORDER = {BoundStatus.VIOLATED: 0, BoundStatus.UNDECIDED: 1, BoundStatus.MET: 2}
_WHERE = {CAMPAIGN: "", EVERY_RUN: " in every run", EVERY_GROUP: " in every group", WINNER: " of the recommended group"}
# By metric, the text where all runs or groups meet it.
_MET = {"loss_falls": "loss fell in all {} runs", "loss_finite": "loss finite in all {} runs", "stable": "all {} groups stable"}
# Above this, repeats cannot decide a value so near its bound.
MAX_REPEATS_ADVISED = 100


def judge(
    criteria: Sequence[Criterion],
    runs: Sequence[MeasuredRun],
    groups: Sequence[GroupSummary],
    ranking: Ranking,
    pending: Sequence[str],
    *,
    comparisons: Mapping[tuple[str, str], Compared] = MappingProxyType({}),
    scaling: Scaling | None = None,
    drift: SentinelDrift | None = None,
    left_out: Sequence[str] = (),
) -> CampaignVerdict:
    """The verdict over all criteria; a plan without criteria must have no failed runs.

    `comparisons` holds, by group and `Baseline.text`, the group against that baseline, or why there is none;
    `left_out` names the runs that `--only` did not select.
    """
    by_outcome = judged_campaign(runs, groups, ranking, pending)
    ran = {run.attempt.spec.run for run in runs if run.attempt.current}
    not_run = tuple(name for name in left_out if name not in ran)
    campaign = replace(by_outcome, comparisons=comparisons, scaling=scaling, drift=drift, left_out=not_run)
    findings = tuple(_finding(number, criterion, campaign) for number, criterion in enumerate(criteria or DEFAULT_CRITERIA, start=1))
    return CampaignVerdict(
        verdict=_worst([finding.verdict for finding in findings]),
        findings=findings,
        statements=other_findings(campaign),
        partial=bool(campaign.pending),
        confounded=_allowed_confounding(campaign),
        notes=_notes(campaign, selected=len(ran | set(pending))),
    )


def _allowed_confounding(campaign: JudgedCampaign) -> tuple[str, ...]:
    """What confounds groups that were ranked, or compared for a criterion, because that was allowed; () where it was not."""
    if not campaign.ranking.allow_confounded:
        return ()
    compared = [one.confounded for one in campaign.comparisons.values() if not isinstance(one, str)]
    ranked = [row.confounded for row in campaign.ranking.groups if not row.is_best]
    return tuple(dict.fromkeys(text for text in (*ranked, *compared) if text))


def _finding(number: int, criterion: Criterion, campaign: JudgedCampaign) -> Finding:
    values = evaluate(criterion, campaign)
    verdict, text = _decide(criterion, values, campaign)
    # Violations first: of a thousand numbers only the first few are read.
    values.sort(key=lambda value: _ORDER[_status(criterion, value)])
    violating = [value.subject for value in values if _status(criterion, value) is BoundStatus.VIOLATED]
    return Finding(
        id=f"{number}-{criterion.metric}-{criterion.group or criterion.scope}",
        criterion=criterion,
        verdict=verdict,
        text=text,
        evidence=tuple(evidence for value in values for evidence in value.evidence()),
        advice=advice_for(criterion, violating, campaign),
    )


def _decide(criterion: Criterion, values: Sequence[CriterionValue], campaign: JudgedCampaign) -> tuple[Verdict, str]:
    question = criterion_text(criterion)
    if question is None and not any(value.missing for value in values):
        return Verdict.INCONCLUSIVE, f"{criterion.metric} has no bound: give the criterion `at_most` or `at_least`."
    by_status = {status: [one for one in values if _status(criterion, one) is status] for status in BoundStatus}
    if violating := by_status[BoundStatus.VIOLATED]:
        reason = f" (reason: {criterion.reason.rstrip('.')})" if criterion.reason else ""
        return Verdict.FAIL, f"{question}: {violated_text(criterion, violating, len(values))}{reason}."
    if undecided := by_status[BoundStatus.UNDECIDED]:
        return Verdict.INCONCLUSIVE, f"{question or criterion.metric}: undecided: {undecided_text(criterion, undecided)}."
    if not values:
        return Verdict.INCONCLUSIVE, f"{question}: undecided: no run has ended. Run the plan."
    text = f"{question}: {met_text(criterion, values)}"
    if campaign.pending:
        return Verdict.INCONCLUSIVE, f"{text}, but {pending_text(campaign)}."
    if campaign.may_have_failed:
        return Verdict.INCONCLUSIVE, f"{text}, but {listed(campaign.may_have_failed, '; ')}."
    return Verdict.PASS, f"{text}."


def _status(criterion: Criterion, value: CriterionValue) -> BoundStatus:
    return value.status(criterion, needs_bound=needs_bound(criterion))


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


def _notes(campaign: JudgedCampaign, selected: int) -> dict[str, str]:
    platform = f"{len(campaign.platform_failed)} failed because of the platform, " if campaign.platform_failed else ""
    notes = {"runs": f"{len(campaign.ok)} ended ok, {len(campaign.failed)} failed, {platform}{len(campaign.pending)} pending"}
    if campaign.pending:
        notes["pending"] = f"{pending_text(campaign)}: {listed(campaign.pending)}."
    if campaign.left_out:
        planned = selected + len(campaign.left_out)
        notes["left_out"] = f"{selected} of the plan's {count(planned, 'run')} were selected; left out: {listed(campaign.left_out)}."
    if not campaign.finished:
        notes["nothing_ran"] = "No run has ended, so nothing was judged."
    return notes


def criterion_text(criterion: Criterion) -> str | None:
    """The criterion as text; None where it needs a bound and has none."""
    where = f" of {criterion.group}" if criterion.group else _WHERE.get(criterion.scope, "")
    subject = f"{criterion.metric}{where}"
    against = f" against {criterion.baseline.shown}" if criterion.baseline and criterion.baseline.text else ""
    if not needs_bound(criterion):
        return f"{subject}{against}"
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    bounds_text = [f"{word} {bound:,.10g}{unit_text(unit_of(criterion))}" for word, bound in bounds if bound is not None]
    return f"{subject}{against} {' and '.join(bounds_text)}" if bounds_text else None


def needs_bound(criterion: Criterion) -> bool:
    entry = metric_entry(criterion.metric)
    return entry is None or entry.needs_bound


def unit_of(criterion: Criterion) -> str:
    entry = metric_entry(criterion.metric)
    unit = criterion.unit or (entry.unit if entry else "")
    return "" if unit in ("ratio", "runs") else unit


def unit_text(unit: str) -> str:
    return f" {unit}" if unit and unit != "runs" else ""


def violated_text(criterion: Criterion, violation: Sequence[CriterionValue], of: int) -> str:
    """'1 of 7 runs failed: …', '1,270 samples/s in mb16', 'violated in 2 of 8: a_r1 (3.1 → 3.4), b_r2 (…)'."""
    texts = [_value_text(criterion, value) for value in violation]
    return texts[0] if of == 1 else f"violated in {len(violation)} of {of}: {listed(texts)}"


def met_text(criterion: Criterion, values: Sequence[CriterionValue]) -> str:
    """The value nearest to its bound, of values that all meet it."""
    if len(values) == 1:
        return _value_text(criterion, values[0])
    if not needs_bound(criterion):
        note = list(dict.fromkeys(value.note for value in values if value.note))
        met = _MET.get(criterion.metric, "met in all {}").format(len(values))
        return met + (f" ({listed(note)})" if note else "")
    nearest = min if criterion.at_most is None else max
    worst = nearest(values, key=lambda value: float(value.value or 0))
    return f"met in all {len(values)}, nearest {_value_text(criterion, worst)}"


def undecided_text(criterion: Criterion, values: Sequence[CriterionValue]) -> str:
    """Each reason once, with the number of others that differ from it only in numbers."""
    together: dict[str, list[str]] = {}
    for value in values:
        why = _why_undecided(criterion, value)
        together.setdefault(without_numbers(why), []).append(why)
    reasons = [first if not more else f"{first} (and {len(more)} more)" for first, *more in together.values()]
    return listed(reasons, "; ").rstrip("?")


def _why_undecided(criterion: Criterion, value: CriterionValue) -> str:
    if value.missing:
        return value.missing
    text = _value_text(criterion, value)
    if value.confidence is None or value.is_inside(criterion):
        return f"{text}; {value.unsettled}"
    return f"{text}: the interval includes the bound; {repeats_wanted(value, criterion)}"


def repeats_wanted(value: CriterionValue, criterion: Criterion) -> str:
    """Repeats that would decide it: the width of the interval shrinks with the square root of the number of runs."""
    if value.low is None or value.high is None or not isinstance(value.value, (int, float)) or not value.repeats:
        return "more repeats may decide it"
    bounds = [bound for bound in (criterion.at_least, criterion.at_most) if bound is not None and value.low <= bound <= value.high]
    distance = min((abs(value.value - bound) for bound in bounds), default=0.0)
    half = (value.high - value.low) / 2
    if distance <= 0 or half / distance > MAX_REPEATS_ADVISED:
        return "the value lies on the bound, repeats will not decide it"
    more = max(1, math.ceil(((half / distance) ** 2 - 1) * value.repeats))
    entry = metric_entry(criterion.metric)
    of_each = " of each" if entry is not None and (entry.compares or entry.scopes == (CAMPAIGN,)) else ""
    if more > MAX_REPEATS_ADVISED:
        return f"about {more:,} more repeats{of_each} would be needed"
    return f"about {count(more, 'more repeat')}{of_each} would decide it"


def _value_text(criterion: Criterion, value: CriterionValue) -> str:
    if criterion.metric in COUNTED:
        return count_text(criterion.metric, value)
    detail = ", ".join(part for part in (value.detail, value.note) if part)
    number = float(value.value or 0)
    shown = f"{f'{number:.3g}' if value.unit == '%' else format_number(number)}{unit_text(value.unit)}"
    text = value.subject if isinstance(value.value, bool) else f"{shown} in {value.subject}"
    if value.violation:
        text = f"{text} was rejected: {value.violation.rstrip('.')}"
    return f"{text} ({detail})" if detail else text


def pending_text(campaign: JudgedCampaign) -> str:
    pending = len(campaign.pending)
    return f"{count(pending, 'run')} {'is' if pending == 1 else 'are'} pending"
