"""The winner and what weakens it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.statements_of_groups import drift_statement, stability_statements, winner_statement
from seatrial.records.measure import Estimate
from seatrial.records.stability import GroupStability, SentinelDrift, StabilityVerdict
from seatrial.records.verdict import Finding, Verdict
from tests.unit.judge.campaigns import clean_runs
from tests.unit.report import factory


def facts(**ranking: Any) -> Facts:
    return sort_runs(clean_runs(), factory.groups(), factory.ranking(**ranking), ())


def winner(of: Facts) -> Finding:
    (found,) = winner_statement(of)
    return found


def settled(**changes: Any) -> Facts:
    """The data decide, and nothing is missing."""
    return dataclasses.replace(facts(decided=True), groups=factory.groups()[1:3], pending=(), **changes)


def test_no_winner_and_why() -> None:
    assert winner(facts(winner=None, reason="")).text == "No winner. No group could be ranked."
    found = winner(facts(winner=None, reason="All failed."))
    assert (found.text, found.verdict, found.evidence) == ("No winner. All failed.", Verdict.INCONCLUSIVE, ())


def test_who_wins_and_who_only_leads() -> None:
    sure = winner(settled())
    assert sure.verdict is Verdict.PASS and sure.text.startswith("mb16_nw2 wins with 1,270 samples/s: mb16_nw2 and mb16_nw0 are tied;")
    assert sure.text.endswith("; next is mb16_nw0 at 0.985 of the best mean, 95 % interval 0.96 to 1.011.")
    waiting = winner(dataclasses.replace(settled(), pending=("x_r1",)))
    assert waiting.verdict is Verdict.INCONCLUSIVE and " leads with " in waiting.text and waiting.text.endswith("; 1 run still to be run.")
    tied = winner(dataclasses.replace(settled(), ranking=factory.ranking(decided=False)))
    assert tied.verdict is Verdict.INCONCLUSIVE and tied.text.startswith("mb16_nw2 leads")


@pytest.mark.parametrize(("failed", "them"), [(("a_r1",), "it"), (("a_r1", "a_r2"), "them")])
def test_what_the_platform_failed_might_have_been_faster(failed: tuple[str, ...], them: str) -> None:
    groups = (*factory.groups()[1:2], factory.summary("mb16_nw2", infrastructure_failures=failed))
    found = winner(dataclasses.replace(settled(), groups=groups))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert f"; but the platform failed {', '.join(failed)}: run {them} again before one is called the fastest." in found.text


def test_evidence_is_the_place_of_every_group_there_is() -> None:
    found = winner(settled())
    first = found.evidence[0]
    assert (first.subject, first.name, first.value, first.unit) == ("mb16_nw2", "samples_per_s", 1270.0, "samples/s")
    assert (first.file, first.n) == ("ranked_groups.csv", 2)
    assert {one.subject for one in found.evidence} == {group.group for group in settled().groups} - {factory.ODD}


def test_a_rival_without_an_interval_and_none_at_all() -> None:
    places = factory.ranking().groups
    bare = dataclasses.replace(places[1], ratio=Estimate(mean=0.9, n=1))
    assert winner(dataclasses.replace(settled(), ranking=factory.ranking(groups=(places[0], bare)))).text.endswith(
        "of the best mean, no interval."
    )
    alone = winner(dataclasses.replace(settled(), ranking=factory.ranking(groups=places[:1], reason="")))
    assert alone.text == "mb16_nw2 leads with 1,270 samples/s: the first in order."


def test_the_next_of_a_tie_may_have_the_best_mean() -> None:
    best, even = factory.ranking().groups[:2]
    slow = dataclasses.replace(even, rank=3, group="mb8_nw2", ratio=Estimate(mean=0.8, low=0.78, high=0.82, n=2))
    places = (dataclasses.replace(even, rank=1), dataclasses.replace(best, rank=2), slow)
    found = winner(dataclasses.replace(settled(), ranking=factory.ranking(groups=places, winner=even.group, decided=False)))
    assert found.text.startswith("mb16_nw0 leads with ") and found.text.endswith("; next is mb16_nw2, whose mean is the best.")


def test_evidence_of_stability_is_what_is_known() -> None:
    stability = GroupStability(verdict=StabilityVerdict.STABLE, reason="Stable: so.", runs=2, ratio_max=1.5, unstable_run_ratio=0.0)
    (found,) = stability_statements(dataclasses.replace(facts(), groups=(factory.summary("mb16_nw2", stability=stability),)))
    assert [(one.name, one.value, one.window) for one in found.evidence] == [
        ("highest p90/p50", 1.5, "the last timing window of each run"),
        ("share of unstable runs", 0.0, "the last timing window of each run"),
    ]
    assert list(stability_statements(dataclasses.replace(facts(), groups=(factory.summary("mb16_nw2"),)))) == []


def test_no_sentinel_no_drift() -> None:
    assert list(drift_statement(facts())) == []
    drift = SentinelDrift(verdict=StabilityVerdict.INCONCLUSIVE, reason="Too few.", group="s", runs=2)
    (found,) = drift_statement(dataclasses.replace(facts(), drift=drift))
    assert (found.verdict, found.text, found.id) == (Verdict.INCONCLUSIVE, "Too few.", "drift")
