"""The verdict on a terminal: what was found beside the criteria, every criterion with its advice, and who won."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.digest.sentences import left_out_sentence, pending_sentence, winners_sentence
from seatrial.report.digest.statements import short_id, statements_told, words_holding, words_open
from seatrial.report.finding_text import MARKS
from seatrial.report.terminal.text import VERDICT_STYLES, hanging, heading, indented, more, text

MOST_ADVICE = 4
MOST_STATEMENTS = 6
MOST_FINDINGS = 12


def statements(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """What was found beside the criteria: in full what does not hold, in one line what does, in another what cannot be said."""
    if not results.verdict.statements:
        return
    told = statements_told(results)
    yield heading("Also found")
    for finding in told[:MOST_STATEMENTS]:
        yield hanging(f"{MARKS[finding.verdict]} ", f"{finding.text} [{finding.id}]", VERDICT_STYLES[finding.verdict])
        yield from _advice(finding, set())
    if len(told) > MOST_STATEMENTS:
        yield more(len(told) - MOST_STATEMENTS)
    for verdict, words in ((Verdict.INCONCLUSIVE, words_open(results)), (Verdict.PASS, words_holding(results))):
        if words:
            said = "cannot be said: " if verdict is Verdict.INCONCLUSIVE else "holds: "
            yield hanging(f"{MARKS[verdict]} ", said + ", ".join(words), VERDICT_STYLES[verdict])
    yield text(f"seatrial why {shlex.quote(results.output)} lists them all with their ids; with an ID, what that rests on.", "dim")


def verdict(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Every criterion, those that hold after those that do not where there are too many, and then the winners."""
    judged = results.verdict
    yield Text.assemble("Verdict: ", (judged.verdict.value, VERDICT_STYLES[judged.verdict]), " (partial)" if judged.partial else "")
    told: set[str] = set()
    findings = _first(judged.findings)
    for finding in findings:
        yield hanging(f"{MARKS[finding.verdict]} ", f"[{short_id(finding)}] {finding.text}", VERDICT_STYLES[finding.verdict])
        yield from _advice(finding, told)
    if len(findings) < len(judged.findings):
        yield more(len(judged.findings) - len(findings), "criteria")
    if waiting := pending_sentence(results):
        yield hanging("… ", waiting, "yellow")
    if left_out := left_out_sentence(results):
        yield hanging("! ", left_out, "yellow")
    yield Text("")
    yield text(winners_sentence(results))


def _first(findings: tuple[Finding, ...]) -> list[Finding]:
    """All in their order; of too many, those that decide the verdict."""
    if len(findings) <= MOST_FINDINGS:
        return list(findings)
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
    return sorted(findings, key=lambda finding: order.index(finding.verdict))[:MOST_FINDINGS]


def _advice(finding: Finding, told: set[str]) -> Iterator[RenderableType]:
    """What stands above already, at another criterion of the same runs, is not told again."""
    fresh = [advice for advice in finding.advice if advice.text not in told]
    told.update(advice.text for advice in fresh)
    for advice in fresh[:MOST_ADVICE]:
        yield indented(hanging("try: ", advice.text, "bold"))
    if len(fresh) > MOST_ADVICE:
        yield indented(more(len(fresh) - MOST_ADVICE))
    if len(fresh) < len(finding.advice):
        yield Text("  try: what stands above")
