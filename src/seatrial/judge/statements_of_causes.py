"""Statements about why steps are uneven, or slower than they could be, in runs whose group is not called unstable for it.

In: the campaign's facts. Out: one finding for each kind of cause that its runs show. What an unstable group shows is told with it, and a
slow rank as a straggler.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.judge.advice import causes_seen
from seatrial.judge.facts import Facts
from seatrial.records.stability import StabilityVerdict
from seatrial.records.verdict import Finding, Verdict

TOLD_AS_STRAGGLER = ("slow_rank", "slow_host")


def cause_statements(facts: Facts) -> Iterator[Finding]:
    """The causes in the order in which runs show them."""
    unstable = [group.stability for group in facts.groups if group.stability and group.stability.verdict is StabilityVerdict.UNSTABLE]
    told = {*TOLD_AS_STRAGGLER, *(cause.kind for stability in unstable for cause in stability.causes)}
    for seen in causes_seen(facts.ok, told):
        yield Finding(id=f"cause:{seen.id}", kind="cause", verdict=Verdict.FAIL, text=seen.text, evidence=seen.evidence)
