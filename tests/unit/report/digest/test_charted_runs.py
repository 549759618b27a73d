"""Runs that have tables to draw of, and what is asked of those."""

from __future__ import annotations

import dataclasses

from seatrial.records.charts import PHASES, STEPS, RunCharts
from seatrial.report.digest.charted_runs import charted_runs, columns_of, groups_with, rows_of, steps_taken_apart, usual_ms
from tests.unit.report import charted_factory, factory

RUN = factory.measured("mb16_nw2", 1)
CHARTED = dataclasses.replace(RUN, charts=charted_factory.charts(25.0))


def test_a_run_without_charts_has_no_rows() -> None:
    assert rows_of(RUN, PHASES) == [] and list(columns_of(RUN, STEPS, "step")) == [] and steps_taken_apart(RUN) == 0
    assert list(charted_runs(factory.results(), STEPS)) == [] and groups_with(factory.results(), STEPS) == 0


def test_rows_have_every_column_and_columns_only_those_asked_for() -> None:
    first = rows_of(CHARTED, PHASES)[0]
    assert first["phase"] == "data_wait" and first["n"] == 178
    assert list(columns_of(CHARTED, PHASES, "phase", "n"))[:2] == [("data_wait", 178), ("fwd", 178)]
    assert list(columns_of(CHARTED, PHASES, "phase", "nonsense")) == [], "a column that is not there makes no rows"


def test_steps_taken_apart_are_those_whose_phases_were_told() -> None:
    assert steps_taken_apart(CHARTED) == 178
    odd = RunCharts(tables={PHASES: {"phase": ["fwd", "bwd"], "n": [None, True]}})
    assert steps_taken_apart(dataclasses.replace(RUN, charts=odd)) == 0


def test_groups_come_best_first_with_the_runs_that_count() -> None:
    found = {group.group: len(runs) for group, runs in charted_runs(charted_factory.results(), STEPS)}
    assert found == {"mb16_nw2": 2, "mb16_nw0": 2, "mb8_nw2": 1, factory.ODD: 1} and next(iter(found)) == "mb16_nw2"
    assert groups_with(charted_factory.results(), STEPS) == 4


def test_the_usual_step_of_a_group_is_known_where_it_has_figures() -> None:
    group = factory.summary("mb16_nw2")
    assert usual_ms(group) == 32_000 / 1270.0 and usual_ms(dataclasses.replace(group, figures={})) is None
