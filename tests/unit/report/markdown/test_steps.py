"""The sections of summary.md on the steps themselves."""

from __future__ import annotations

from seatrial.report.digest.phases import NOTHING as NO_PHASES
from seatrial.report.digest.step_times import NOTHING as NO_STEPS
from seatrial.report.markdown.steps import (
    PHASES_EXPLAINED,
    RANKS_EXPLAINED,
    STEPS_EXPLAINED,
    phases_section,
    ranks_section,
    step_time_section,
)
from seatrial.report.markdown.text import MOST_ROWS
from tests.unit.report import charted_factory, factory


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_nothing_ran() -> None:
    empty = factory.empty_results()
    assert list(step_time_section(empty)) == ["## Step time", NO_STEPS]
    assert list(phases_section(empty)) == [] and list(ranks_section(empty)) == []


def test_without_charts_percentiles_stand_alone() -> None:
    heading, table, explained = step_time_section(factory.results())
    assert heading == "## Step time" and explained == STEPS_EXPLAINED
    assert cells(table.splitlines()[0]) == ["group", "p50", "p90", "p99", "window", "n", "runs"]


def test_with_charts_the_course_stands_between_lowest_and_highest() -> None:
    _, table, _ = step_time_section(charted_factory.results())
    titles, _, best, spiked, *_ = map(cells, table.splitlines())
    assert titles == ["group", "lowest", "p50", "p90", "p99", "highest", "course", "window", "n", "runs"]
    assert float(best[1]) < float(best[2]) < float(best[5]) and best[7:] == ["steps 20–199", "356", "2"]
    assert spiked[6].endswith("log") and not best[6].endswith("log")


def test_phases_have_their_share_and_other_stands_last() -> None:
    _, table, explained = phases_section(charted_factory.results())
    titles, _, best, *_ = map(cells, table.splitlines())
    assert titles[1:7] == ["data wait", "fwd", "bwd", "step", "other", "in all"] and explained == PHASES_EXPLAINED
    assert best[2].endswith("(30 %)") and best[3].endswith("(60 %)")


def test_charts_without_phases_say_what_it_takes() -> None:
    found = charted_factory.many_groups(1)
    for run in found.runs:
        assert run.charts is not None
        run.charts.tables.pop("phases")
    assert list(phases_section(found)) == ["## Phases", NO_PHASES]


def test_who_is_waited_for_stands_beside_who_waits_most() -> None:
    heading, table, explained = ranks_section(charted_factory.results())
    slow = next(row for row in map(cells, table.splitlines()) if row[0] == "mb8_nw2")
    assert heading == "## Ranks" and explained == RANKS_EXPLAINED
    assert (slow[3], slow[4], slow[5], slow[6]) == ("1", "0", "node-1 GPU 1", "0")


def test_of_many_groups_the_rest_is_counted() -> None:
    _, table, _ = step_time_section(charted_factory.many_groups(MOST_ROWS + 2))
    assert table.endswith("2 more rows are left out here: `per_run_metrics.csv` has them.")
