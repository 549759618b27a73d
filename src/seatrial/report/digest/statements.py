"""Which of the statements beside the criteria a terminal tells in full, and the others in a word or two.

In: CampaignResults. Out: findings that are told nowhere else in the same report, and words for what holds and for what cannot be said.
"""

from __future__ import annotations

from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict

DECIDES_NOTHING = "None of these changes the verdict; a criterion can."
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
