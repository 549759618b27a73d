"""What `seatrial why` prints."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.verdict import Advice, Baseline, Criterion, Evidence, Finding, Verdict
from seatrial.report.finding_text import criterion_text, explained, explained_json, listing, value_text

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
COMMAND = "seatrial why out '2-speedup_pct-winner' --remake"


def text(finding: Finding = FINDING, times: int = 1, width: int = 80) -> str:
    return "\n".join(explained(finding, [(EVIDENCE, "the group over the baseline, less 1", RAW)] * times, COMMAND, width))


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
        f"  remake    {COMMAND}",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_paths_are_not_broken(width: int) -> None:
    lines = text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(RAW[0] in line for line in lines)


def test_many_numbers_are_cut_in_text_and_not_in_json() -> None:
    assert "and 12 numbers more: --json has them all" in text(times=20)
    told = explained_json(FINDING, [(EVIDENCE, "so", RAW)] * 20, COMMAND)
    assert len(told["numbers"]) == 20 and told["numbers"][0]["raw"] == list(RAW) and told["remake"] == COMMAND


def test_a_finding_without_numbers_says_so() -> None:
    bare = dataclasses.replace(FINDING, evidence=())
    assert "It rests on no number" in "\n".join(explained(bare, [], COMMAND, 80))


def test_the_list_has_ids_and_verdicts() -> None:
    assert list(listing([FINDING], 80)) == ["x 2-speedup_pct-winner  FAIL", "    speedup_pct of the winner at least 20 %: too little."]


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "none"), (True, "true"), (1270.0, "1,270 u"), (3, "3 u"), ("\x1b[31mcuda_oom", "cuda_oom u")]
)
def test_values(value: object, shown: str) -> None:
    assert value_text(value, "" if value is None or value is True else "u") == shown  # type: ignore[arg-type]


def test_a_criterion_without_a_bound() -> None:
    assert criterion_text(Criterion(metric="loss_falls", scope="every_run")) == "loss_falls, scope every_run"
