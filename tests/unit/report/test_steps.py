"""Step times, phases, start-up and ranks, and how the terminal and summary.md show them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.records.columns import PHASES, RANKS, STEP_TIMES, STEPS, Columns, RunCharts
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.terminal_sections import MAX_DETAILED
from seatrial.report.terminal_sections import startup_section as startup_section_shares
from seatrial.report.terminal_sections import step_time_section as step_time_section_courses
from seatrial.report.view import steps as module
from seatrial.report.view.steps import (
    StepTimes,
    chart_columns,
    chart_rows,
    charted_runs,
    course_sparkline,
    groups_with,
    num_steps_with_phases,
    phases,
    ranks,
    startups,
    step_time_course,
    step_times,
)
from tests.unit.report import charted_factory, factory
from tests.unit.report.console import lines

RUN = factory.measured("mb16_nw2", 1)
CHARTED = dataclasses.replace(RUN, charts=charted_factory.charts(25.0))


def test_a_run_without_charts_has_no_rows() -> None:
    assert chart_rows(RUN, PHASES) == [] and list(chart_columns(RUN, STEPS, "step")) == [] and num_steps_with_phases(RUN) == 0
    assert list(charted_runs(factory.results(), STEPS)) == [] and groups_with(factory.results(), STEPS) == 0


def test_rows_have_every_column_and_columns_only_those_requested() -> None:
    first = chart_rows(CHARTED, PHASES)[0]
    assert first["phase"] == "data_wait" and first["n"] == 178
    assert list(chart_columns(CHARTED, PHASES, "phase", "n"))[:2] == [("data_wait", 178), ("fwd", 178)]
    assert list(chart_columns(CHARTED, PHASES, "phase", "nonsense")) == [], "a column that is not there makes no rows"


def test_steps_taken_apart_are_those_whose_phases_were_reported() -> None:
    assert num_steps_with_phases(CHARTED) == 178
    odd = RunCharts(tables={PHASES: {"phase": ["fwd", "bwd"], "n": [None, True]}})
    assert num_steps_with_phases(dataclasses.replace(RUN, charts=odd)) == 0


def test_groups_come_best_first_with_the_runs_that_count() -> None:
    found = {group.group: len(runs) for group, runs in charted_runs(charted_factory.results(), STEPS)}
    assert found == {"mb16_nw2": 2, "mb16_nw0": 2, "mb8_nw2": 1, factory.ODD: 1} and next(iter(found)) == "mb16_nw2"
    assert groups_with(charted_factory.results(), STEPS) == 4


def with_tables(*tables: dict[str, Columns]) -> CampaignResults:
    """The two runs of mb16_nw2, drawn of these."""
    both = [factory.measured("mb16_nw2", repeat) for repeat in (1, 2)]
    runs = [dataclasses.replace(run, charts=RunCharts(tables=one)) for run, one in zip(both, tables, strict=False)]
    return factory.results(runs=tuple(runs))


def only(results: CampaignResults) -> StepTimes:
    (found,) = step_times(results)
    return found


def test_only_steps_that_count_are_looked_at() -> None:
    times = only(with_tables({STEPS: charted_factory.steps([900.0, 10.0, 12.0, 11.0], first_counted=1)}))
    assert (times.lowest_ms, times.highest_ms) == (10.0, 12.0)
    assert step_time_course(times, 10) == [10.0, 12.0, 11.0]


def test_lowest_and_highest_are_those_of_all_steps_and_ranks() -> None:
    """The course is one rank's, thinned; the percentiles beside lowest and highest are not."""
    course_of_one = charted_factory.steps([20.0, 21.0, 101.0], first_counted=0)
    tables = [{STEPS: course_of_one, STEP_TIMES: charted_factory.step_times([22.0, 25.0, high])} for high in (150.0, 160.0)]
    times = only(with_tables(*tables))
    assert (times.lowest_ms, times.highest_ms) == (22.0, 160.0)
    assert len(course_sparkline(times, 3)) == 3, "what lies below the scale is drawn at its bottom"


def test_only_groups_that_are_shown_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    columns = module.chart_columns

    def recorded(run: MeasuredRun, table: str, *names: str) -> Any:
        read.extend([run.attempt.spec.group] if table == STEPS else [])
        return columns(run, table, *names)

    monkeypatch.setattr(module, "chart_columns", recorded)
    assert len(step_times(charted_factory.many_groups(20), 3)) == 3
    assert len(read) == 3


def test_the_course_is_the_median_of_the_runs() -> None:
    tables = [{STEPS: charted_factory.steps([level] * 6, first_counted=0)} for level in (10.0, 20.0)]
    assert step_time_course(only(with_tables(*tables)), 4) == [15.0] * 4


def test_a_spike_of_one_step_stays_in_a_course_of_few_columns() -> None:
    steps = [10.0] * 1000
    steps[640] = 30.0
    line = step_time_course(only(with_tables({STEPS: charted_factory.steps(steps, first_counted=0)})), 20)
    assert [at // 2 for at, value in enumerate(line) if value == 30.0] == [640 * 10 // 1000]


def test_steps_that_do_not_count_are_a_gap_and_those_thinned_away_are_not() -> None:
    table = charted_factory.steps([10.0] * 10, first_counted=0)
    table["counted"][4] = table["counted"][5] = False
    assert step_time_course(only(with_tables({STEPS: table})), 10) == [10.0] * 4 + [None] * 2 + [10.0] * 4
    assert (
        step_time_course(only(with_tables({STEPS: charted_factory.steps([10.0] * 4 + [12.0] * 4, first_counted=0)})), 4)
        == [10.0] * 2 + [12.0] * 2
    )
    thinned = {name: [column[at] for at in (0, 1, 9)] for name, column in charted_factory.steps([10.0] * 10, first_counted=0).items()}
    assert step_time_course(only(with_tables({STEPS: thinned})), 6) == [10.0] * 6


def test_a_step_far_above_the_rest_is_drawn_on_logs() -> None:
    usual = only(with_tables({STEPS: charted_factory.steps([25.0, 50.0, 100.0], first_counted=0)}))
    assert not usual.on_logs
    times = only(with_tables({STEPS: charted_factory.steps([20.0, 40.0, 20.0, 2000.0], first_counted=0)}))
    assert times.on_logs and course_sparkline(times, 4) == "▁▂▁█"


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


def told(*parts: dict[str, float]) -> CampaignResults:
    """The two runs of the winner tell these; no other run tells any."""
    found = factory.results()
    given = iter(parts)
    runs = []
    for run in found.runs:
        if run.measure is not None:
            own = next(given, {}) if run.attempt.spec.group == "mb16_nw2" else {}
            run = dataclasses.replace(run, measure=dataclasses.replace(run.measure, startup=own))
        runs.append(run)
    return dataclasses.replace(found, runs=tuple(runs))


def test_nothing_of_groups_that_do_not_tell_it_apart() -> None:
    assert startups(told()) == [] and startups(factory.empty_results()) == []


def test_a_part_is_the_mean_over_the_runs_that_tell_of_it() -> None:
    (found,) = startups(told({"import": 2.0, "model": 4.0}, {"import": 4.0}))
    assert found.parts == {"import": 3.0, "model": 4.0} and found.whole == 5.0 and found.runs == 2


def test_parts_are_in_the_order_in_which_they_come() -> None:
    (found,) = startups(told({"other": 0.5, "first_step": 1.0, "launch": 2.0}))
    assert list(found.parts) == ["launch", "first_step", "other"] and found.runs == 1


def test_where_there_is_no_room_figures_are_alone() -> None:
    _, best, *_ = lines(step_time_section_courses(charted_factory.results(), 40))
    assert "▁" not in best and "n 356" in best


def test_of_many_groups_the_first_are_drawn_and_the_rest_counted() -> None:
    found = lines(step_time_section_courses(charted_factory.many_groups(MAX_DETAILED + 3), 100))
    assert len(found) == 1 + MAX_DETAILED + 1 and found[-1] == "and 3 more groups: see the summary"


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


def test_start_ups_that_are_alike_are_reported_once() -> None:
    alike = lines(startup_section_shares(started(mb16_nw2=10.0, mb16_nw0=11.0), 100))
    differ = lines(startup_section_shares(started(mb16_nw2=10.0, mb16_nw0=40.0), 100))
    assert [line.split()[0] for line in differ[1:3]] == ["mb16_nw0", "mb16_nw2"], "the slowest first, then the quickest"
    assert alike[1].startswith("mb16_nw0") and not any(line.startswith("mb16_nw2") for line in alike)
