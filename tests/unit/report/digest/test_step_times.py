"""What the tables of charts tell of a group."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.charts import RANKS, STEP_TIMES, STEPS, Columns, RunCharts
from seatrial.records.results import CampaignResults
from seatrial.report.digest import step_times as module
from seatrial.report.digest.phases import phases
from seatrial.report.digest.ranks import ranks
from seatrial.report.digest.step_times import StepTimes, course, drawn_course, step_times
from tests.unit.report import charted_factory, factory


def with_tables(*tables: dict[str, Columns]) -> CampaignResults:
    """The two runs of mb16_nw2, drawn of these."""
    both = [factory.measured("mb16_nw2", repeat) for repeat in (1, 2)]
    runs = [dataclasses.replace(run, charts=RunCharts(tables=one)) for run, one in zip(both, tables, strict=False)]
    return factory.results(runs=tuple(runs))


def only(results: CampaignResults) -> StepTimes:
    (found,) = step_times(results)
    return found


def test_without_charts_there_is_nothing() -> None:
    assert step_times(factory.results()) == phases(factory.results()) == ranks(factory.results()) == []


def test_groups_come_best_first() -> None:
    names = [times.group.group for times in step_times(charted_factory.results())]
    assert names == ["mb16_nw2", "mb16_nw0", "mb8_nw2", factory.ODD]


def test_only_steps_that_count_are_looked_at() -> None:
    times = only(with_tables({STEPS: charted_factory.steps([900.0, 10.0, 12.0, 11.0], first_counted=1)}))
    assert (times.lowest_ms, times.highest_ms) == (10.0, 12.0)
    assert course(times, 10) == [10.0, 12.0, 11.0]


def test_lowest_and_highest_are_those_of_all_steps_and_ranks() -> None:
    """The course is one rank's, thinned; the percentiles beside lowest and highest are not."""
    course_of_one = charted_factory.steps([20.0, 21.0, 101.0], first_counted=0)
    tables = [{STEPS: course_of_one, STEP_TIMES: charted_factory.step_times([22.0, 25.0, high])} for high in (150.0, 160.0)]
    times = only(with_tables(*tables))
    assert (times.lowest_ms, times.highest_ms) == (22.0, 160.0)
    assert len(drawn_course(times, 3)) == 3, "what lies below the scale is drawn at its bottom"


def test_only_groups_that_are_shown_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    points = module._points
    monkeypatch.setattr(module, "_points", lambda run: read.append(run.attempt.spec.group) or points(run))
    assert len(step_times(charted_factory.many_groups(20), 3)) == 3
    assert len(read) == 3


def test_the_course_is_the_median_of_the_runs() -> None:
    tables = [{STEPS: charted_factory.steps([level] * 6, first_counted=0)} for level in (10.0, 20.0)]
    assert course(only(with_tables(*tables)), 4) == [15.0] * 4


def test_a_spike_of_one_step_stays_in_a_course_of_few_columns() -> None:
    steps = [10.0] * 1000
    steps[640] = 30.0
    line = course(only(with_tables({STEPS: charted_factory.steps(steps, first_counted=0)})), 20)
    assert [at // 2 for at, value in enumerate(line) if value == 30.0] == [640 * 10 // 1000]


def test_steps_that_do_not_count_are_a_gap_and_those_thinned_away_are_not() -> None:
    table = charted_factory.steps([10.0] * 10, first_counted=0)
    table["counted"][4] = table["counted"][5] = False
    assert course(only(with_tables({STEPS: table})), 10) == [10.0] * 4 + [None] * 2 + [10.0] * 4
    assert course(only(with_tables({STEPS: charted_factory.steps([10.0] * 4 + [12.0] * 4, first_counted=0)})), 4) == [10.0] * 2 + [12.0] * 2
    thinned = {name: [column[at] for at in (0, 1, 9)] for name, column in charted_factory.steps([10.0] * 10, first_counted=0).items()}
    assert course(only(with_tables({STEPS: thinned})), 6) == [10.0] * 6


def test_a_step_far_above_the_rest_is_drawn_on_logs() -> None:
    usual = only(with_tables({STEPS: charted_factory.steps([25.0, 50.0, 100.0], first_counted=0)}))
    assert not usual.on_logs
    times = only(with_tables({STEPS: charted_factory.steps([20.0, 40.0, 20.0, 2000.0], first_counted=0)}))
    assert times.on_logs and drawn_course(times, 4) == "▁▂▁█"


def test_phases_are_means_over_the_runs() -> None:
    first = next(made_of for made_of in phases(charted_factory.results()) if made_of.group.group == "mb16_nw2")
    assert list(first.parts) == ["data_wait", "fwd", "bwd", "step", "other"]
    assert round(first.whole, 3) == 25.197 and (first.runs, first.n, first.window) == (2, 356, "steps 20–199")
    assert first.usual is not None and round(first.usual, 3) == 25.197


def test_the_rank_that_waits_least_is_found_and_a_single_rank_is_none() -> None:
    found = {one.group.group: one for one in ranks(charted_factory.results())}
    assert found["mb8_nw2"].waits_least.rank == 1 and found["mb8_nw2"].waits_most.rank == 0
    assert found["mb16_nw2"].n == 356
    alone = {name: column[:1] for name, column in charted_factory.ranks(10.0).items()}
    assert ranks(with_tables({RANKS: alone})) == []
