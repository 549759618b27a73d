"""The verdict on a terminal."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Advice, CampaignVerdict, Criterion, Finding, Verdict
from seatrial.report.terminal.judged import MOST_ADVICE, MOST_FINDINGS, MOST_STATEMENTS, statements, verdict
from tests.unit.report import factory
from tests.unit.report.terminal.on_paper import lines


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


def test_every_criterion_with_its_mark_and_the_winner_last() -> None:
    found = lines(verdict(judged(finding(1, Verdict.PASS), finding(2, Verdict.FAIL), partial=True), 100))
    assert found[:3] == ["Verdict: FAIL (partial)", "+ [1] Finding 1.", "x [2] Finding 2."]
    assert any("mb16_nw2" in line for line in found[4:])


def test_advice_that_stands_above_is_not_told_again() -> None:
    found = lines(verdict(judged(finding(1, Verdict.FAIL, "lower the batch"), finding(2, Verdict.FAIL, "lower the batch")), 100))
    assert found[2] == "  try: lower the batch" and found[4] == "  try: what stands above"


def test_of_much_advice_the_rest_is_counted() -> None:
    found = lines(verdict(judged(finding(1, Verdict.FAIL, *(f"way {at}" for at in range(MOST_ADVICE + 2)))), 100))
    assert "  and 2 more: see the summary" in found


def test_of_many_criteria_those_that_decide_are_shown() -> None:
    many = [finding(at, Verdict.PASS) for at in range(MOST_FINDINGS)]
    found = lines(verdict(judged(*many, finding(99, Verdict.FAIL)), 100))
    assert found[1] == "x [99] Finding 99." and "and 1 more criteria: see the summary" in found


def test_nothing_is_said_where_nothing_was_found() -> None:
    assert lines(statements(judged(), 100)) == []


def test_what_does_not_hold_is_told_in_full_and_the_rest_in_a_word() -> None:
    said = (
        finding(1, Verdict.FAIL),
        finding(2, Verdict.PASS, kind="straggler"),
        finding(3, Verdict.INCONCLUSIVE, kind="drift"),
        finding(4, Verdict.FAIL, kind="failure"),
    )
    heading, told, open_, holds, *_ = lines(statements(judged(said=said), 100))
    assert (heading, told, open_, holds) == ("Also found", "x Finding 1. [1-leak]", "? cannot be said: drift", "+ holds: no straggler")


@pytest.mark.parametrize("more", [0, 3])
def test_of_many_statements_the_rest_is_counted(more: int) -> None:
    said = tuple(finding(at, Verdict.FAIL) for at in range(MOST_STATEMENTS + more))
    assert (f"and {more} more: see the summary" in lines(statements(judged(said=said), 100))) is bool(more)
