"""The verdict: each criterion becomes a finding, the findings become one verdict, with statements beside them.

In: a plan's criteria and the measured runs. Out: `CampaignVerdict` (verdict.json). Missing data never passes: a finding is PASS only when
every value it checks exists and meets the bound, and no run is pending. Where a figure has an interval, all of it must meet the bound, or
none of it. A figure of one run has no interval: its value decides. Statements never change the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from seatrial.core.text import count, format_number
from seatrial.judge.advice import advice_for
from seatrial.judge.criteria import read
from seatrial.judge.cross_run_criteria import COUNTED, count_text
from seatrial.judge.evidence import BoundStatus, Compared, Facts, Reading, collect_facts, listed, without_numbers
from seatrial.judge.statements import statements
from seatrial.records.comparison import Scaling
from seatrial.records.measure import GroupSummary, SentinelDrift
from seatrial.records.ranking import Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import CAMPAIGN, EVERY_GROUP, EVERY_RUN, WINNER, CampaignVerdict, Criterion, Finding, Verdict, metric_entry

DEFAULT_CRITERIA = (Criterion(metric="failed_runs", scope="campaign", at_most=0),)
_ORDER = {BoundStatus.VIOLATED: 0, BoundStatus.UNDECIDED: 1, BoundStatus.MET: 2}
_WHERE = {CAMPAIGN: "", EVERY_RUN: " in every run", EVERY_GROUP: " in every group", WINNER: " of the recommended group"}
# By metric, that all runs or groups meet it.
_MET = {"loss_falls": "loss fell in all {} runs", "loss_finite": "loss finite in all {} runs", "stable": "all {} groups stable"}
# Beyond this, repeats are no way to decide a value so near its bound.
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
    """The verdict over all criteria; a plan without any must have no failed runs.

    `comparisons` holds, by group and `Baseline.text`, the group against that baseline, or why there is none;
    `left_out` names the runs that `--only` did not select.
    """
    by_outcome = collect_facts(runs, groups, ranking, pending)
    ran = {run.attempt.spec.run for run in runs if run.attempt.current}
    not_run = tuple(name for name in left_out if name not in ran)
    facts = replace(by_outcome, comparisons=comparisons, scaling=scaling, drift=drift, left_out=not_run)
    findings = tuple(_finding(number, criterion, facts) for number, criterion in enumerate(criteria or DEFAULT_CRITERIA, start=1))
    return CampaignVerdict(
        verdict=_worst([finding.verdict for finding in findings]),
        findings=findings,
        statements=statements(facts),
        partial=bool(facts.pending),
        confounded=_allowed_confounding(facts),
        notes=_notes(facts, selected=len(ran | set(pending))),
    )


def _allowed_confounding(facts: Facts) -> tuple[str, ...]:
    """What confounds groups that were ranked, or compared for a criterion, because that was allowed."""
    if not facts.ranking.allow_confounded:
        return ()
    compared = [one.confounded for one in facts.comparisons.values() if not isinstance(one, str)]
    ranked = [place.confounded for place in facts.ranking.groups if not place.is_best]
    return tuple(dict.fromkeys(text for text in (*ranked, *compared) if text))


def _finding(number: int, criterion: Criterion, facts: Facts) -> Finding:
    readings = read(criterion, facts)
    verdict, text = _decide(criterion, readings, facts)
    # Violations first: of a thousand numbers few are read.
    readings.sort(key=lambda reading: _ORDER[_status(criterion, reading)])
    violating = [reading.subject for reading in readings if _status(criterion, reading) is BoundStatus.VIOLATED]
    return Finding(
        id=f"{number}-{criterion.metric}-{criterion.group or criterion.scope}",
        criterion=criterion,
        verdict=verdict,
        text=text,
        evidence=tuple(evidence for reading in readings for evidence in reading.evidence()),
        advice=advice_for(criterion, violating, facts),
    )


def _decide(criterion: Criterion, readings: Sequence[Reading], facts: Facts) -> tuple[Verdict, str]:
    question = criterion_text(criterion)
    if question is None and not any(reading.missing for reading in readings):
        return Verdict.INCONCLUSIVE, f"{criterion.metric} has no bound: give the criterion `at_most` or `at_least`."
    by_status = {status: [one for one in readings if _status(criterion, one) is status] for status in BoundStatus}
    if violating := by_status[BoundStatus.VIOLATED]:
        reason = f" (reason: {criterion.reason.rstrip('.')})" if criterion.reason else ""
        return Verdict.FAIL, f"{question}: {violated_text(criterion, violating, len(readings))}{reason}."
    if undecided := by_status[BoundStatus.UNDECIDED]:
        return Verdict.INCONCLUSIVE, f"{question or criterion.metric}: undecided: {undecided_text(criterion, undecided)}."
    if not readings:
        return Verdict.INCONCLUSIVE, f"{question}: undecided, as no run has ended. Run the plan."
    text = f"{question}: {met_text(criterion, readings)}"
    if facts.pending:
        return Verdict.INCONCLUSIVE, f"{text}, but {pending_text(facts)}."
    if facts.may_have_failed:
        return Verdict.INCONCLUSIVE, f"{text}, but {listed(facts.may_have_failed, '; ')}."
    return Verdict.PASS, f"{text}."


def _status(criterion: Criterion, reading: Reading) -> BoundStatus:
    return reading.status(criterion, needs_bound=needs_bound(criterion))


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


def _notes(facts: Facts, selected: int) -> dict[str, str]:
    platform = f"{len(facts.platform_failed)} failed by the platform, " if facts.platform_failed else ""
    notes = {"runs": f"{len(facts.ok)} ended ok, {len(facts.failed)} failed, {platform}{len(facts.pending)} pending"}
    if facts.pending:
        notes["pending"] = f"{pending_text(facts)}: {listed(facts.pending)}."
    if facts.left_out:
        planned = selected + len(facts.left_out)
        notes["left_out"] = f"{selected} of the plan's {count(planned, 'run')} were selected; left out: {listed(facts.left_out)}."
    if not facts.finished:
        notes["nothing_ran"] = "No run has ended, so nothing was judged."
    return notes


def criterion_text(criterion: Criterion) -> str | None:
    """The criterion as text; None when it needs a bound and has none."""
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


def violated_text(criterion: Criterion, violation: Sequence[Reading], of: int) -> str:
    """'1 of 7 runs failed: …', '1,270 samples/s in mb16', 'not so in 2 of 8: a_r1 (3.1 → 3.4), b_r2 (…)'."""
    texts = [_reading_text(criterion, reading) for reading in violation]
    return texts[0] if of == 1 else f"violated in {len(violation)} of {of}: {listed(texts)}"


def met_text(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """All are met: the value nearest to its bound is shown."""
    if len(readings) == 1:
        return _reading_text(criterion, readings[0])
    if not needs_bound(criterion):
        note = list(dict.fromkeys(reading.note for reading in readings if reading.note))
        met = _MET.get(criterion.metric, "met in all {}").format(len(readings))
        return met + (f" ({listed(note)})" if note else "")
    nearest = min if criterion.at_most is None else max
    worst = nearest(readings, key=lambda reading: float(reading.value or 0))
    return f"met in all {len(readings)}, nearest {_reading_text(criterion, worst)}"


def undecided_text(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """Reasons that differ only in numbers are given once, with how many more there are."""
    together: dict[str, list[str]] = {}
    for reading in readings:
        why = _why_undecided(criterion, reading)
        together.setdefault(without_numbers(why), []).append(why)
    reasons = [first if not more else f"{first} (and {len(more)} more)" for first, *more in together.values()]
    return listed(reasons, "; ").rstrip("?")


def _why_undecided(criterion: Criterion, reading: Reading) -> str:
    if reading.missing:
        return reading.missing
    text = _reading_text(criterion, reading)
    if reading.confidence is None or reading.is_inside(criterion):
        return f"{text}; {reading.unsettled}"
    return f"{text}: the interval includes the bound; {repeats_wanted(reading, criterion)}"


def repeats_wanted(reading: Reading, criterion: Criterion) -> str:
    """For an interval that includes its bound: its width shrinks with the root of the number of runs."""
    if reading.low is None or reading.high is None or not isinstance(reading.value, (int, float)) or not reading.repeats:
        return "more repeats may decide it"
    bounds = [bound for bound in (criterion.at_least, criterion.at_most) if bound is not None and reading.low <= bound <= reading.high]
    distance = min((abs(reading.value - bound) for bound in bounds), default=0.0)
    half = (reading.high - reading.low) / 2
    if distance <= 0 or half / distance > MAX_REPEATS_ADVISED:
        return "it is on the bound, where repeats do not help"
    more = max(1, math.ceil(((half / distance) ** 2 - 1) * reading.repeats))
    entry = metric_entry(criterion.metric)
    of_each = " of each" if entry is not None and (entry.compares or entry.scopes == (CAMPAIGN,)) else ""
    if more > MAX_REPEATS_ADVISED:
        return f"about {more:,} more repeats{of_each} would be needed"
    return f"about {count(more, 'more repeat')}{of_each} would decide it"


def _reading_text(criterion: Criterion, reading: Reading) -> str:
    if criterion.metric in COUNTED:
        return count_text(criterion.metric, reading)
    detail = ", ".join(part for part in (reading.detail, reading.note) if part)
    number = float(reading.value or 0)
    value = f"{f'{number:.3g}' if reading.unit == '%' else format_number(number)}{unit_text(reading.unit)}"
    text = reading.subject if isinstance(reading.value, bool) else f"{value} in {reading.subject}"
    if reading.violation:
        text = f"{text} does not count: {reading.violation.rstrip('.')}"
    return f"{text} ({detail})" if detail else text


def pending_text(facts: Facts) -> str:
    pending = len(facts.pending)
    return f"{count(pending, 'run')} {'is' if pending == 1 else 'are'} pending"
