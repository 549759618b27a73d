"""Step times on a terminal."""

from __future__ import annotations

from seatrial.report.terminal.courses import courses
from seatrial.report.terminal.text import MOST_DETAILED
from tests.unit.report import charted_factory, factory
from tests.unit.report.terminal.on_paper import lines


def test_nothing_where_nobody_asked_for_something_to_draw() -> None:
    assert lines(courses(factory.results(), 80)) == [] and lines(courses(factory.empty_results(), 80)) == []


def test_a_line_a_group_between_its_lowest_and_its_highest_step() -> None:
    heading, best, spiked, *_ = lines(courses(charted_factory.results(), 100))
    assert heading == "Step time, ms  steps 20–199: course, lowest, median, highest; log: log scale"
    assert best.startswith("mb16_nw2") and best.endswith("n 356") and "▁" in best and "█" in best
    assert spiked.endswith("n 356 log"), "ten times the median is drawn on logs"


def test_where_there_is_no_room_figures_stand_alone() -> None:
    _, best, *_ = lines(courses(charted_factory.results(), 40))
    assert "▁" not in best and "n 356" in best


def test_of_many_groups_the_first_are_drawn_and_the_rest_counted() -> None:
    found = lines(courses(charted_factory.many_groups(MOST_DETAILED + 3), 100))
    assert len(found) == 1 + MOST_DETAILED + 1 and found[-1] == "and 3 more groups: see the summary"
