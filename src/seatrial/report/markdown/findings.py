"""The findings of a verdict in summary.md. In: findings. Out: bullets of the criteria's and of all statements, each with its id, its
evidence and its advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding
from seatrial.report.digest.statements import DECIDES_NOTHING
from seatrial.report.markdown.text import escape
from seatrial.wording import count

MOST_STATEMENTS = 40
"""Of the page: a campaign of a thousand runs can have one for each."""


def findings_list(findings: Sequence[Finding]) -> str:
    """One bullet each, advice below it."""
    return "\n".join(line for finding in findings for line in _bullet(finding))


def statements_section(results: CampaignResults) -> Iterator[str]:
    """`## Also found`: what stands beside the criteria; nothing where nothing ran."""
    if results.verdict.statements:
        yield "## Also found"
        yield f"{DECIDES_NOTHING} `seatrial why OUT ID` shows what each rests on."
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
