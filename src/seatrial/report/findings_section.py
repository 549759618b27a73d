"""The findings of a verdict on the page, and which of the statements beside them a terminal shows.

In: CampaignResults. Out: for the page, the criteria's findings and all statements, each with its id, its evidence and its advice; for the
terminal, the statements that are not told elsewhere in the same report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.markdown import escape
from seatrial.report.numbers import count

# These have sections or sentences of their own: failures, the winners' sentence, cautions.
TOLD_ELSEWHERE = frozenset({"failure", "winner", "steady_state", "debug"})
# By kind, what holds and what cannot be said, in a word or two.
HOLDS = {
    "leak": "no leak",
    "straggler": "no straggler",
    "stability": "stable",
    "drift": "no drift",
    "steady_state": "steady state",
    "slow_steps": "few slow steps",
}
OPEN = {"leak": "leaks", "straggler": "stragglers", "stability": "stability", "drift": "drift"}


MOST_STATEMENTS = 40
"""Of the page: a campaign of a thousand runs can have one for each."""


def findings_list(findings: Sequence[Finding]) -> str:
    """One bullet each, advice below it."""
    return "\n".join(line for finding in findings for line in _bullet(finding))


def statements_section(results: CampaignResults) -> Iterator[str]:
    """`## Also found`: what stands beside the criteria; nothing where nothing ran."""
    if results.verdict.statements:
        yield "## Also found"
        yield "None of these changes the verdict; a criterion can. `seatrial why OUT ID` shows what each rests on."
        yield findings_list(results.verdict.statements[:MOST_STATEMENTS])
        if (more := len(results.verdict.statements) - MOST_STATEMENTS) > 0:
            yield f"{count(more, 'statement')} more are left out here: `verdict.json` has them, and so has `seatrial why OUT`."


def _bullet(finding: Finding) -> Iterator[str]:
    yield f"- **{finding.verdict.value}** {escape(finding.text)} ({escape(finding.id)}{_evidence(finding)})"
    yield from (f"  - Try: {escape(advice.text)}" for advice in finding.advice)


def _evidence(finding: Finding) -> str:
    files = list(dict.fromkeys(evidence.file for evidence in finding.evidence if evidence.file))
    if not files:
        return ""
    told = files[0] if len(files) == 1 else f"{files[0]} and {count(len(files) - 1, 'other file')}"
    return f"; evidence: {escape(told)}, {count(len(finding.evidence), 'value')}"


def short_id(finding: Finding) -> str:
    """The number of a criterion, which `why` takes; else the whole id."""
    return finding.id.split("-")[0] if finding.criterion else finding.id


def statements_told(results: CampaignResults) -> list[Finding]:
    """What a terminal tells in full: what does not hold, and is told nowhere else."""
    return [one for one in results.verdict.statements if one.verdict is Verdict.FAIL and one.kind not in TOLD_ELSEWHERE]


def words_open(results: CampaignResults) -> list[str]:
    """What cannot be said, mostly of runs that were too short for it: a terminal names it in one line."""
    found = [one for one in results.verdict.statements if one.verdict is Verdict.INCONCLUSIVE and one.kind not in TOLD_ELSEWHERE]
    return list(dict.fromkeys(OPEN.get(one.kind, one.kind) for one in found))


def words_holding(results: CampaignResults) -> list[str]:
    """What holds, in one line; where it holds in some runs only, that is said."""
    told = results.verdict.statements
    doubtful = {one.kind for one in told if one.verdict is not Verdict.PASS}
    holding = dict.fromkeys(one.kind for one in told if one.verdict is Verdict.PASS and one.kind in HOLDS)
    return [f"{HOLDS[kind]} in the rest" if kind in doubtful else HOLDS[kind] for kind in holding]
