"""Judgement: each criterion becomes a finding, the findings become one verdict, and what was found beside them stands as statements.

In: a plan's criteria and what was measured. Out: `CampaignVerdict` (verdict.json). Missing data never passes: a finding is PASS
only when every value it looks at exists, holds, and nothing is left to be run. Where a figure has an interval, that decides: all of it
must hold the bound, or none of it. A figure of one run has none and is judged by itself. Statements never change the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from seatrial.judge.advice import advice_for
from seatrial.judge.facts import Compared, Facts, sort_runs
from seatrial.judge.reading import Reading, Standing, listed, runs_text
from seatrial.judge.readings import read
from seatrial.judge.statements import statements
from seatrial.judge.words import asked, needs_bound, still_to_run, told_broken, told_holding, told_open, why_asked
from seatrial.records.comparison import Scaling
from seatrial.records.measure import GroupSummary, Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import SentinelDrift
from seatrial.records.verdict import CampaignVerdict, Criterion, Finding, Verdict

DEFAULT_CRITERIA = (Criterion(metric="failed_runs", scope="campaign", at_most=0),)
_ORDER = {Standing.BROKEN: 0, Standing.OPEN: 1, Standing.HOLDS: 2}


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
    """The verdict over all criteria; a plan without any is asked for no failed runs.

    `comparisons` holds, by group and `Baseline.text`, the group against that baseline, or a sentence that says why there is none;
    `left_out` names the runs that `--only` did not choose.
    """
    sorted_runs = sort_runs(runs, groups, ranking, pending)
    ran = {run.attempt.spec.run for run in runs if run.attempt.current}
    not_run = tuple(name for name in left_out if name not in ran)
    facts = replace(sorted_runs, comparisons=comparisons, scaling=scaling, drift=drift, left_out=not_run)
    findings = tuple(_finding(number, criterion, facts) for number, criterion in enumerate(criteria or DEFAULT_CRITERIA, start=1))
    return CampaignVerdict(
        verdict=_worst([finding.verdict for finding in findings]),
        findings=findings,
        statements=statements(facts),
        partial=bool(facts.pending),
        notes=_notes(facts, asked_for=len(ran | set(pending))),
    )


def _finding(number: int, criterion: Criterion, facts: Facts) -> Finding:
    readings = read(criterion, facts)
    verdict, text = _decide(criterion, readings, facts)
    # What broke it stands first: of a thousand numbers few are read.
    readings.sort(key=lambda reading: _ORDER[_standing(criterion, reading)])
    finding = Finding(
        id=f"{number}-{criterion.metric}-{criterion.scope}",
        criterion=criterion,
        verdict=verdict,
        text=text,
        evidence=tuple(evidence for reading in readings for evidence in reading.evidence()),
    )
    broken = [reading.subject for reading in readings if _standing(criterion, reading) is Standing.BROKEN]
    return replace(finding, advice=advice_for(criterion, broken, facts))


def _decide(criterion: Criterion, readings: Sequence[Reading], facts: Facts) -> tuple[Verdict, str]:
    question = asked(criterion)
    if question is None and not any(reading.missing for reading in readings):
        return Verdict.INCONCLUSIVE, f"{criterion.metric} has no bound to hold; give the criterion `at_most` or `at_least`."
    stands = {standing: [one for one in readings if _standing(criterion, one) is standing] for standing in Standing}
    if stands[Standing.BROKEN]:
        return Verdict.FAIL, f"{question}: {told_broken(criterion, stands[Standing.BROKEN], len(readings))}{why_asked(criterion)}."
    if stands[Standing.OPEN]:
        return Verdict.INCONCLUSIVE, f"{question or criterion.metric}: cannot be said: {told_open(criterion, stands[Standing.OPEN])}."
    if not readings:
        return Verdict.INCONCLUSIVE, f"{question}: cannot be said, as no run has ended. Run the plan."
    said = f"{question}: {told_holding(criterion, readings)}"
    if facts.pending:
        return Verdict.INCONCLUSIVE, f"{said}, but {still_to_run(facts)}."
    return Verdict.PASS, f"{said}."


def _standing(criterion: Criterion, reading: Reading) -> Standing:
    return reading.standing(criterion, needs_bound=needs_bound(criterion))


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


def _notes(facts: Facts, asked_for: int) -> dict[str, str]:
    spoilt = f"{len(facts.spoilt)} failed by the platform, " if facts.spoilt else ""
    notes = {"runs": f"{len(facts.ok)} ended ok, {len(facts.failed)} failed, {spoilt}{len(facts.pending)} still to be run"}
    if facts.pending:
        notes["pending"] = f"{still_to_run(facts)}: {listed(facts.pending)}."
    if facts.left_out:
        of = asked_for + len(facts.left_out)
        notes["left_out"] = f"{asked_for} of the plan's {runs_text(of)} were asked for; left out: {listed(facts.left_out)}."
    if not facts.finished:
        notes["nothing_ran"] = "No run has ended, so nothing was judged."
    return notes
