"""The ranking in summary.md."""

from __future__ import annotations

import dataclasses

from seatrial.report.markdown.ranking import CRITERIA_DIFFER, MOST_REASONS, ranking_section
from tests.unit.report import charted_factory, factory


def test_without_a_place_there_is_the_reason_alone() -> None:
    assert list(ranking_section(factory.empty_results())) == ["## Ranking", "No winner. No run ended ok."]


def test_a_table_for_each_lane_and_how_to_read_it() -> None:
    heading, winners, main, apart, aside, reasons, read = ranking_section(factory.results())
    assert heading == "## Ranking" and "mb16\\_nw2" not in winners and "mb16_nw2" in winners
    assert main.count("\n") == 4 and apart == "Off the main lane, ranked apart:" and aside.count("\n") == 2
    assert "- mb8_nw2: cannot win, 1 of 2 runs failed" in reasons.splitlines()
    assert read.startswith("Higher is better. Figures are wall clock") and read.endswith(CRITERIA_DIFFER)


def test_less_may_be_better() -> None:
    lower = dataclasses.replace(factory.results(), ranking=factory.ranking(higher_is_better=False))
    assert list(ranking_section(lower))[-1].startswith("Lower is better.")


def test_names_are_shown_as_they_are() -> None:
    aside = list(ranking_section(factory.results()))[4]
    assert "\\[b\\]mb8\\|\\`nw0\\`\\<i\\>" in aside


def test_groups_with_one_reason_share_a_line() -> None:
    reasons = list(ranking_section(charted_factory.many_groups(5)))[3]
    assert reasons.splitlines() == [
        "- group0000: leads, not told apart by the data",
        "- group0001, group0002, group0003, group0004: tied, not told apart by the data",
    ]


def test_of_many_reasons_the_rest_is_counted() -> None:
    found = charted_factory.many_groups(MOST_REASONS + 4)
    places = [dataclasses.replace(place, reason=f"reason {place.rank}") for place in found.ranking.groups[1:]]
    many = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, groups=(found.ranking.groups[0], *places)))
    reasons = list(ranking_section(many))[3].splitlines()
    assert len(reasons) == MOST_REASONS + 1 and reasons[-1] == "- and 4 more reasons: `ranked_groups.csv` has them"
