"""What a step and a start-up are made of, on a terminal."""

from __future__ import annotations

import dataclasses

from seatrial.records.results import CampaignResults
from seatrial.report.terminal.shares import phase_shares, startup_shares
from seatrial.report.terminal.text import MOST_DETAILED
from tests.unit.report import charted_factory, factory
from tests.unit.report.terminal.on_paper import lines


def started(**seconds: float) -> CampaignResults:
    """The factory's campaign in which the runs of a group took so long to start; nothing of the others is known."""
    found = factory.results()
    runs = [
        dataclasses.replace(
            run, measure=dataclasses.replace(run.measure, startup={"import": seconds[run.attempt.spec.group], "other": 0.0})
        )
        if run.measure and run.attempt.spec.group in seconds
        else run
        if run.measure is None
        else dataclasses.replace(run, measure=dataclasses.replace(run.measure, startup={}))
        for run in found.runs
    ]
    return dataclasses.replace(found, runs=tuple(runs))


def test_nothing_where_nothing_is_told_apart() -> None:
    assert lines(phase_shares(factory.results(), 80)) == []
    assert lines(startup_shares(started(), 80)) == [] and lines(startup_shares(factory.empty_results(), 80)) == []


def test_a_bar_of_letters_and_a_legend_that_adds_up() -> None:
    heading, best, *_, legend = lines(phase_shares(charted_factory.results(), 100))
    assert heading.startswith("Phases, ms  steps 20–199: of the n steps taken apart")
    bar = best.split()[1]
    assert bar.count("b") > bar.count("f") > bar.count("s") > 0 and bar.endswith("."), "what has no name is dots, and stands last"
    assert legend == "of mb16_nw2: d data wait 2 %, f fwd 30 %, b bwd 60 %, s step 8 %, . other 0 %"


def test_of_many_groups_the_rest_is_counted() -> None:
    assert lines(phase_shares(charted_factory.many_groups(MOST_DETAILED + 1), 100))[-1] == "and 1 more groups: see the summary"


def test_start_ups_that_are_alike_are_told_once() -> None:
    alike = lines(startup_shares(started(mb16_nw2=10.0, mb16_nw0=11.0), 100))
    differ = lines(startup_shares(started(mb16_nw2=10.0, mb16_nw0=40.0), 100))
    assert [line.split()[0] for line in differ[1:3]] == ["mb16_nw0", "mb16_nw2"], "the slowest first, then the quickest"
    assert alike[1].startswith("mb16_nw0") and not any(line.startswith("mb16_nw2") for line in alike)
