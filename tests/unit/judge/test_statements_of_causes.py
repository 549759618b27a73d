"""Causes that runs show, told once, unless they are told elsewhere."""

from __future__ import annotations

import pytest

from seatrial.judge.facts import sort_runs
from seatrial.judge.statements_of_causes import cause_statements
from seatrial.records.health import UnevenCause
from seatrial.records.stability import GroupStability, StabilityVerdict
from seatrial.records.verdict import Finding, Verdict
from tests.unit.judge.campaigns import changed, clean_runs
from tests.unit.report import factory


def cause(kind: str) -> UnevenCause:
    return UnevenCause(kind=kind, text=f"It was {kind}.", file="host_telemetry.csv", window="steps 20–199", n=9)


def told(*kinds: str, unstable: StabilityVerdict | None = None) -> list[Finding]:
    stability = unstable and GroupStability(verdict=unstable, reason="", runs=2, causes=(cause("thermal"),))
    runs = [changed(clean_runs()[0], uneven=tuple(map(cause, kinds)))]
    return list(cause_statements(sort_runs(runs, [factory.summary("mb16_nw2", stability=stability)], factory.ranking(), ())))


def test_in_the_order_in_which_runs_show_them() -> None:
    found = told("thermal", "host_load")
    assert [(one.id, one.kind, one.verdict) for one in found] == [
        ("cause:thermal", "cause", Verdict.FAIL),
        ("cause:host_load", "cause", Verdict.FAIL),
    ]
    assert found[0].text == "It was thermal (mb16_nw2_r1)." and found[0].evidence[0].n == 9


@pytest.mark.parametrize("kind", ["slow_rank", "slow_host"])
def test_a_slow_rank_is_told_as_a_straggler(kind: str) -> None:
    assert told(kind) == []


def test_what_an_unstable_group_shows_is_told_with_it() -> None:
    assert [one.id for one in told("thermal", "host_load", unstable=StabilityVerdict.UNSTABLE)] == ["cause:host_load"]
    assert [one.id for one in told("thermal", unstable=StabilityVerdict.STABLE)] == ["cause:thermal"]
