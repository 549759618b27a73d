"""Findings and statements on the page and on the terminal."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

from rich.console import Console

from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Advice, CampaignVerdict, Criterion, Evidence, Finding, Verdict
from seatrial.report.digest.statements import short_id, statements_told, words_holding, words_open
from seatrial.report.markdown.findings import findings_list
from seatrial.report.markdown.summary import summary_md
from seatrial.report.terminal import print_report
from tests.unit.report import factory

SLOW = Finding(
    id="1-samples_per_s-winner",
    criterion=Criterion(metric="samples_per_s", scope="winner", at_least=2000),
    verdict=Verdict.FAIL,
    text="samples_per_s of the winner at least 2000 samples/s: 1270 samples/s in mb16_nw2.",
    evidence=(Evidence(subject="mb16_nw2", value=1270.0, file="group_summary.csv", window="356 steps", n=2),),
    advice=(Advice(id="flash_fallback", text="Switch flash on again. [b]Seen[/b]: sel=fallback."),),
)
LEAK = Finding(id="leak:mb16_nw2_r1:host", kind="leak", verdict=Verdict.FAIL, text="mb16_nw2_r1 leaks: process tree grows by 12 MiB/min.")
NONE = Finding(id="straggler-none", kind="straggler", verdict=Verdict.PASS, text="No rank holds the others up in 4 runs (600 steps).")
FAILED = Finding(id="failure:cuda_oom", kind="failure", verdict=Verdict.FAIL, text="mb8_nw2_r2: failed, cuda_oom.")


def results(*statements: Finding) -> CampaignResults:
    verdict = CampaignVerdict(verdict=Verdict.FAIL, findings=(SLOW,), statements=statements)
    return dataclasses.replace(factory.results(), verdict=verdict)


def printed(found: CampaignResults, width: int = 80) -> str:
    out = io.StringIO()
    print_report(found, Console(file=out, width=width))
    return out.getvalue()


def test_advice_stands_below_its_finding() -> None:
    text = printed(results(LEAK, NONE), 120)
    assert "x [1] samples_per_s of the winner" in text
    assert "  try: Switch flash on again. [b]Seen[/b]: sel=fallback." in text
    assert findings_list([SLOW]).splitlines()[1] == "  - Try: Switch flash on again. \\[b\\]Seen\\[/b\\]: sel=fallback."


def test_advice_that_stands_above_is_not_told_again() -> None:
    again = dataclasses.replace(SLOW, id="2-samples_per_s-every_run")
    verdict = CampaignVerdict(verdict=Verdict.FAIL, findings=(SLOW, again))
    text = printed(dataclasses.replace(factory.results(), verdict=verdict), 120)
    assert text.count("Switch flash on again") == 1 and "  try: what stands above" in text


def test_statements_on_the_terminal_have_ids_and_no_repetition() -> None:
    text = printed(results(LEAK, FAILED, NONE), 120).split("Also found")[1]
    assert "x mb16_nw2_r1 leaks: process tree grows by 12 MiB/min. [leak:mb16_nw2_r1:host]" in text
    assert "+ holds: no straggler" in text and "straggler-none" not in text, "ids are for `why`"
    assert "failure:cuda_oom" not in text, "failures have a section of their own"
    assert "seatrial why out lists them all" in text


def test_many_statements_are_cut_on_the_terminal_and_not_on_the_page() -> None:
    many = tuple(dataclasses.replace(LEAK, id=f"leak:mb{number}_r1:host") for number in range(20))
    assert "and 14 more: see the summary" in printed(results(*many))
    assert summary_md(results(*many), CampaignPaths(Path("out"))).count("(leak:mb") == 20


def test_what_is_told_and_what_holds() -> None:
    found = results(LEAK, FAILED, NONE)
    assert [one.id for one in statements_told(found)] == [LEAK.id]
    assert words_holding(found) == ["no straggler"]
    unsure = dataclasses.replace(LEAK, id="leak-unknown", verdict=Verdict.INCONCLUSIVE)
    level = dataclasses.replace(LEAK, id="leak-none", verdict=Verdict.PASS)
    assert words_open(results(LEAK, unsure)) == ["leaks"]
    assert words_holding(results(unsure, level)) == ["no leak in the rest"]
    assert "? cannot be said: leaks" in printed(results(LEAK, unsure))
    assert (short_id(SLOW), short_id(LEAK)) == ("1", LEAK.id)


def test_runs_that_were_not_asked_for_are_told() -> None:
    found = factory.results()
    told = dataclasses.replace(found.verdict, notes={"left_out": "3 of the plan's 6 runs were asked for; left out: mb8_r1."})
    found = dataclasses.replace(found, verdict=told)
    assert "! 3 of the plan's 6 runs were asked for" in printed(found)
    assert "3 of the plan's 6 runs were asked for" in summary_md(found, CampaignPaths(Path("out")))


def test_nothing_is_said_where_nothing_ran() -> None:
    assert "Also found" not in printed(factory.empty_results())
    assert "Also found" not in summary_md(factory.empty_results(), CampaignPaths(Path("out")))
