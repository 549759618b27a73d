"""Where a start-up goes, group by group."""

from __future__ import annotations

import dataclasses

from seatrial.records.results import CampaignResults
from seatrial.report.digest.startup import startups
from tests.unit.report import factory


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


def test_parts_stand_in_the_order_in_which_they_come() -> None:
    (found,) = startups(told({"other": 0.5, "first_step": 1.0, "launch": 2.0}))
    assert list(found.parts) == ["launch", "first_step", "other"] and found.runs == 1


def test_the_best_group_stands_first() -> None:
    assert [one.group.group for one in startups(factory.results())] == ["mb16_nw2", "mb16_nw0", "mb8_nw2", factory.ODD]
