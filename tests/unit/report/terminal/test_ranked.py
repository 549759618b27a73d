"""The ranking on a terminal."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.records.results import CampaignResults
from seatrial.report.terminal.ranked import MOST_BARRED, MOST_RANKED, ranked
from tests.unit.report import charted_factory, factory
from tests.unit.report.terminal.on_paper import lines


def barred(count: int) -> CampaignResults:
    found = charted_factory.many_groups(count + 1)
    first, *rest = found.ranking.groups
    places = [dataclasses.replace(place, can_win=False, reason="its runs failed") for place in rest]
    return dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, groups=(first, *places)))


def test_nothing_where_no_group_has_a_place() -> None:
    assert lines(ranked(factory.empty_results(), 80)) == []


@pytest.mark.parametrize(("width", "ratio", "start"), [(60, False, False), (80, True, False), (120, True, True)])
def test_columns_go_where_there_is_no_room(width: int, ratio: bool, start: bool) -> None:
    titles = lines(ranked(factory.results(), width), width)[0].split()
    assert ("best" in titles, "start" in titles) == (ratio, start)


def test_axes_have_columns_only_where_the_table_still_fits() -> None:
    assert "mb" in lines(ranked(factory.results(), 200), 200)[0].split()
    assert "mb" not in lines(ranked(factory.results(), 50), 50)[0].split()


def test_who_cannot_win_and_why() -> None:
    assert "! mb8_nw2 cannot win: 1 of 2 runs failed" in lines(ranked(factory.results(), 100))
    many = lines(ranked(barred(MOST_BARRED + 2), 100))
    assert sum("cannot win: its runs failed" in line for line in many) == MOST_BARRED
    assert "and 2 more that cannot win: see the summary" in many


def test_a_winner_that_many_stand_before_is_among_those_shown() -> None:
    found = charted_factory.many_groups(MOST_RANKED + 5)
    last = found.ranking.groups[-1].group
    text = lines(ranked(dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, winner=last)), 120), 120)
    assert any(last in line for line in text) and "and 5 more groups: see the summary" in text


def test_intervals_are_drawn_on_one_scale_where_any_group_has_one() -> None:
    assert "95 % intervals, samples/s" in lines(ranked(factory.results(), 100))
    alone = dataclasses.replace(
        factory.results(), groups=tuple(factory.summary(group.group, counted=1) for group in factory.results().groups)
    )
    assert not any("intervals" in line for line in lines(ranked(alone, 100)))
