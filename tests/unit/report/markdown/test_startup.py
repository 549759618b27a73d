"""The start-up in summary.md."""

from __future__ import annotations

from seatrial.report.digest.startup import EXPLAINED, NOTHING
from seatrial.report.markdown.startup import startup_section
from tests.unit.report import factory


def test_it_is_said_where_nothing_is_told_apart() -> None:
    assert list(startup_section(factory.empty_results())) == ["## Start-up", NOTHING]


def test_a_column_a_part_that_any_group_tells_of() -> None:
    heading, table, explained = startup_section(factory.results())
    titles, _, best, *_ = table.splitlines()
    assert (heading, explained) == ("## Start-up", EXPLAINED)
    assert titles == "| group | launch | import | model | first step | other | in all | runs |"
    assert best == "| mb16_nw2 | 0.50 | 1.00 | 0.75 | 1.50 | 0.50 | 4.25 | 2 |"
