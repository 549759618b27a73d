"""Judgement: each criterion becomes a finding, the findings become one verdict.

In: a plan's criteria and what was measured. Out: `CampaignVerdict` (verdict.json). Missing data never passes: a finding is PASS
only when every value it looks at exists, holds, and nothing is left to be run.
"""

from __future__ import annotations

from collections.abc import Sequence

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.readings import Reading, listed, read, runs_text
from seatrial.records.criteria_catalog import CAMPAIGN, EVERY_GROUP, EVERY_RUN, METRICS, WINNER
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import CampaignVerdict, Criterion, Finding, Verdict

DEFAULT_CRITERIA = (Criterion(metric="failed_runs", scope="campaign", at_most=0),)


def judge(
    criteria: Sequence[Criterion],
    runs: Sequence[MeasuredRun],
    groups: Sequence[GroupSummary],
    ranking: Ranking,
    pending: Sequence[str],
) -> CampaignVerdict:
    """The verdict over all criteria; a plan without any is asked for no failed runs."""
    facts = sort_runs(runs, groups, ranking, pending)
    findings = tuple(_finding(number, criterion, facts) for number, criterion in enumerate(criteria or DEFAULT_CRITERIA, start=1))
    return CampaignVerdict(
        verdict=_worst([finding.verdict for finding in findings]),
        findings=findings,
        partial=bool(facts.pending),
        notes=_notes(facts),
    )


def _finding(number: int, criterion: Criterion, facts: Facts) -> Finding:
    readings = read(criterion, facts)
    verdict, text = _decide(criterion, readings, facts)
    return Finding(
        id=f"{number}-{criterion.metric}-{criterion.scope}",
        criterion=criterion,
        verdict=verdict,
        text=text,
        evidence=tuple(reading.evidence() for reading in readings if not reading.missing),
    )


def _decide(criterion: Criterion, readings: Sequence[Reading], facts: Facts) -> tuple[Verdict, str]:
    asked = _asked(criterion)
    missing = [reading.missing for reading in readings if reading.missing]
    if asked is None and not missing:
        return Verdict.INCONCLUSIVE, f"{criterion.metric} has no bound to hold; give the criterion `at_most` or `at_least`."
    broken = [reading for reading in readings if not reading.missing and not _holds(criterion, reading)]
    if broken:
        return Verdict.FAIL, f"{asked}: {_told_broken(broken, len(readings))}{_why(criterion)}."
    if missing:
        return Verdict.INCONCLUSIVE, f"{asked or criterion.metric}: cannot be said: {listed(missing, '; ').rstrip('?')}."
    if not readings:
        return Verdict.INCONCLUSIVE, f"{asked}: cannot be said, as no run has ended. Run the plan."
    said = f"{asked}: {_told_holding(criterion, readings)}"
    if facts.pending:
        return Verdict.INCONCLUSIVE, f"{said}, but {_still_to_run(facts)}."
    return Verdict.PASS, f"{said}."


def _asked(criterion: Criterion) -> str | None:
    """The criterion in words; None when it needs a bound and has none."""
    where = {CAMPAIGN: "", EVERY_RUN: " in every run", EVERY_GROUP: " in every group", WINNER: " of the winner"}
    subject = f"{criterion.metric}{where.get(criterion.scope, '')}"
    if not _needs_bound(criterion):
        return subject
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    asked = [f"{word} {bound:.6g}" for word, bound in bounds if bound is not None]
    return f"{subject} {' and '.join(asked)}" if asked else None


def _needs_bound(criterion: Criterion) -> bool:
    entry = METRICS.get(criterion.metric)
    return entry is None or entry.needs_bound


def _holds(criterion: Criterion, reading: Reading) -> bool:
    if not _needs_bound(criterion):
        return bool(reading.value)
    value = float(reading.value or 0)
    above = criterion.at_least is None or value >= criterion.at_least
    below = criterion.at_most is None or value <= criterion.at_most
    return above and below


def _told_broken(broken: Sequence[Reading], of: int) -> str:
    """'1 of 7 runs failed: …', '1270 in mb16', 'not so in 2 of 8: a_r1 (3.1 → 3.4), b_r2 (…)'."""
    told = [_told(reading) for reading in broken]
    return told[0] if of == 1 else f"not so in {len(broken)} of {of}: {listed(told)}"


def _told_holding(criterion: Criterion, readings: Sequence[Reading]) -> str:
    """All hold: the value nearest to its bound says what that is worth."""
    if len(readings) == 1:
        return _told(readings[0])
    if not _needs_bound(criterion):
        return f"so in all {len(readings)}"
    nearest = min if criterion.at_most is None else max
    return f"so in all {len(readings)}, the nearest being {_told(nearest(readings, key=lambda reading: float(reading.value or 0)))}"


def _told(reading: Reading) -> str:
    if reading.subject == "campaign":
        failed = f"{reading.value} of {runs_text(reading.n or 0)} failed"
        return f"{failed}: {reading.detail}" if reading.detail else failed
    if isinstance(reading.value, bool):
        return f"{reading.subject} ({reading.detail})"
    value = f"{float(reading.value or 0):.6g} in {reading.subject}"
    return f"{value} ({reading.detail})" if reading.detail else value


def _why(criterion: Criterion) -> str:
    return f" (asked for because: {criterion.reason.rstrip('.')})" if criterion.reason else ""


def _still_to_run(facts: Facts) -> str:
    count = len(facts.pending)
    return f"{count} {'run is' if count == 1 else 'runs are'} still to be run"


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


def _notes(facts: Facts) -> dict[str, str]:
    notes = {"runs": f"{len(facts.ok)} ended ok, {len(facts.failed)} failed, {len(facts.pending)} still to be run"}
    if facts.pending:
        notes["pending"] = f"{_still_to_run(facts)}: {listed(facts.pending)}."
    if not facts.finished:
        notes["nothing_ran"] = "No run has ended, so nothing was judged."
    return notes
