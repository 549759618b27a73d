"""Findings: `seatrial why`, summary.md and the terminal."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.core.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Advice, Baseline, CampaignVerdict, Criterion, Evidence, Finding, Verdict
from seatrial.report.finding_text import TracedNumber, finding_json, finding_lines, findings_lines
from seatrial.report.markdown import summary_md
from seatrial.report.markdown_sections import findings_list
from seatrial.report.terminal import print_report
from seatrial.report.terminal_sections import MAX_ADVICE, MAX_FINDINGS, verdict_section
from seatrial.report.view.problems import failed_statements, holding_kinds, open_kinds, short_id, value_text
from tests.unit.report import factory
from tests.unit.report.console import lines

CRITERION = Criterion(
    metric="speedup_pct",
    scope="winner",
    at_least=20,
    unit="%",
    baseline=Baseline(group="old"),
    ready="stage1_speedup_v100",
    reason="the target",
)
EVIDENCE = Evidence(subject="mb16", value=25.125, unit="%", file="group_summary.csv", window="Welch on logs", n=10)
FINDING = Finding(
    id="2-speedup_pct-winner",
    criterion=CRITERION,
    verdict=Verdict.FAIL,
    text="speedup_pct of the winner at least 20 %: too little.",
    evidence=(EVIDENCE,),
    advice=(Advice(id="data_wait", text="Raise num_workers."),),
)
RAW = tuple(f"mb16_r{number}/attempt-1/events_rank0.jsonl" for number in range(1, 7))
NUMBER = TracedNumber(evidence=EVIDENCE, computed="the group over the baseline, less 1", raw=RAW)
COMMAND = "seatrial why out '2-speedup_pct-winner' --remake"


def text(finding: Finding = FINDING, times: int = 1, width: int = 80) -> str:
    return "\n".join(finding_lines(finding, [NUMBER] * times, COMMAND, width))


def test_every_part_is_there() -> None:
    assert text(width=200).splitlines() == [
        "2-speedup_pct-winner: FAIL",
        "speedup_pct of the winner at least 20 %: too little.",
        "  criterion speedup_pct, scope winner, at least 20 %, against old, from stage1_speedup_v100",
        "  because   the target",
        "  try       Raise num_workers. [data_wait]",
        "",
        "mb16: speedup_pct = 25.12 %",
        "  file      group_summary.csv",
        "  window    Welch on logs",
        "  n         10",
        "  computed  the group over the baseline, less 1",
        f"  made of   {', '.join(RAW[:4])} and 2 more",
        "",
        f"  recompute {COMMAND}",
    ]


def test_lines_fit_and_paths_are_not_broken() -> None:
    lines = text(width=60).splitlines()
    assert max(map(len, lines)) <= 60 and any(RAW[0] in line for line in lines)


def test_many_numbers_are_cut_in_text_and_not_in_json() -> None:
    assert "and 12 numbers more: --json has them all" in text(times=20)
    document = finding_json(FINDING, [NUMBER] * 20, COMMAND)
    assert len(document["numbers"]) == 20 and document["numbers"][0]["raw"] == list(RAW) and document["remake"] == COMMAND


def test_a_finding_without_numbers_says_so() -> None:
    bare = dataclasses.replace(FINDING, evidence=())
    assert "No numbers" in "\n".join(finding_lines(bare, [], COMMAND, 80))


def test_the_list_has_ids_and_verdicts() -> None:
    assert list(findings_lines([FINDING], 80)) == [
        "x 2-speedup_pct-winner  FAIL",
        "    speedup_pct of the winner at least 20 %: too little.",
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "none"), (True, "true"), (1270.0, "1,270 u"), (3, "3 u"), ("\x1b[31mcuda_oom", "cuda_oom u")]
)
def test_values(value: object, shown: str) -> None:
    assert value_text(value, "" if value is None or value is True else "u") == shown  # type: ignore[arg-type]


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
    print_report(found, Console(file=out, width=width), full=True)
    return out.getvalue()


def test_advice_is_below_its_finding() -> None:
    text = printed(results(LEAK, NONE), 120)
    assert "x [1] samples_per_s of the winner" in text
    assert "  try: Switch flash on again. [b]Seen[/b]: sel=fallback." in text
    assert findings_list([SLOW]).splitlines()[1] == "  - Try: Switch flash on again. \\[b\\]Seen\\[/b\\]: sel=fallback."


def test_advice_that_is_above_is_not_reported_again() -> None:
    again = dataclasses.replace(SLOW, id="2-samples_per_s-every_run")
    verdict = CampaignVerdict(verdict=Verdict.FAIL, findings=(SLOW, again))
    text = printed(dataclasses.replace(factory.results(), verdict=verdict), 120)
    assert text.count("Switch flash on again") == 1 and "  try: as above" in text


def test_many_statements_are_cut_on_the_terminal_and_not_on_the_page() -> None:
    many = tuple(dataclasses.replace(LEAK, id=f"leak:mb{number}_r1:host") for number in range(20))
    assert "and 14 more: see the summary" in printed(results(*many))
    assert summary_md(results(*many), CampaignPaths(Path("out"))).count("(leak:mb") == 20


def test_what_is_reported_and_what_holds() -> None:
    found = results(LEAK, FAILED, NONE)
    assert [one.id for one in failed_statements(found)] == [LEAK.id]
    assert holding_kinds(found) == ["no straggler"]
    unsure = dataclasses.replace(LEAK, id="leak-unknown", verdict=Verdict.INCONCLUSIVE)
    level = dataclasses.replace(LEAK, id="leak-none", verdict=Verdict.PASS)
    assert open_kinds(results(LEAK, unsure)) == ["leaks"]
    assert holding_kinds(results(unsure, level)) == ["no leak in the rest"]
    assert "? unknown: leaks" in printed(results(LEAK, unsure))
    assert (short_id(SLOW), short_id(LEAK)) == ("1", LEAK.id)


def test_runs_that_were_not_requested_are_reported() -> None:
    found = factory.results()
    told = dataclasses.replace(found.verdict, notes={"left_out": "3 of the plan's 6 runs were asked for; left out: mb8_r1."})
    found = dataclasses.replace(found, verdict=told)
    assert "! 3 of the plan's 6 runs were asked for" in printed(found)
    assert "3 of the plan's 6 runs were asked for" in summary_md(found, CampaignPaths(Path("out")))


def finding(at: int, how: Verdict, *advice: str, kind: str = "leak") -> Finding:
    return Finding(
        id=f"{at}-{kind}",
        kind=kind,
        verdict=how,
        text=f"Finding {at}.",
        criterion=Criterion(metric="failed_runs", scope="campaign", at_most=0),
        advice=tuple(Advice(id=text, text=text) for text in advice),
    )


def judged(*findings: Finding, said: tuple[Finding, ...] = (), partial: bool = False) -> CampaignResults:
    made = CampaignVerdict(verdict=Verdict.FAIL, findings=findings, statements=said, partial=partial)
    return dataclasses.replace(factory.results(), verdict=made, pending=())


def test_of_much_advice_the_rest_is_counted() -> None:
    found = lines(verdict_section(judged(finding(1, Verdict.FAIL, *(f"way {at}" for at in range(MAX_ADVICE + 2)))), 100))
    assert "  and 2 more: see the summary" in found


def test_of_many_criteria_those_that_decide_are_shown() -> None:
    many = [finding(at, Verdict.PASS) for at in range(MAX_FINDINGS)]
    found = lines(verdict_section(judged(*many, finding(99, Verdict.FAIL)), 100))
    assert found[3] == "x [99] Finding 99." and "and 1 more criteria: see the summary" in found
