"""What the summaries say of the estimates of the time to go."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.records.results import CampaignResults
from seatrial.records.run_spec import TimingSpec
from seatrial.report.digest.eta import eta_line, pooled_quality, why_none
from seatrial.report.markdown.eta import eta_section
from seatrial.report.summary import summary_json
from tests.unit.report import factory


def changed(*, measure: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> CampaignResults:
    """The factory's campaign with every run changed alike."""
    runs = tuple(
        dataclasses.replace(
            run,
            attempt=dataclasses.replace(run.attempt, spec=dataclasses.replace(run.attempt.spec, **(spec or {}))),
            measure=dataclasses.replace(run.measure, **(measure or {})) if run.measure else None,
        )
        for run in factory.runs()
    )
    return factory.results(runs=runs)


NO_POINTS: dict[str, Any] = {"eta_points": (), "eta_quality": None, "seed": {}}


def test_all_points_of_the_runs_that_count_are_pooled() -> None:
    found = pooled_quality(factory.results())
    assert found is not None
    assert found.points == 18
    assert found.median_error_s == pytest.approx(0.1)
    assert found.p90_error_s == pytest.approx(0.15)
    assert found.covered == pytest.approx(2 / 3)


def test_one_line_says_how_far_off_they_were() -> None:
    assert eta_line(factory.results()) == (
        "ETA: off by 100 ms in the median and 150 ms at p90 (2.00 % and 3.00 % of a run), 18 estimates; 67 % of the intervals held."
    )


def test_json_has_it_for_all_and_run_by_run() -> None:
    told = summary_json(factory.results())["eta_quality"]
    assert told["all"]["points"] == 18
    assert told["runs"]["mb16_nw2_r1"]["p90_error_s"] == 0.14
    assert told["text"] == eta_line(factory.results())


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (factory.empty_results(), "no run that counts has ended"),
        (changed(measure=NO_POINTS, spec={"timing": TimingSpec(eta_mode="off")}), "the plan asks for none (`timing.eta_mode: off`)"),
        (changed(measure={**NO_POINTS, "source": "whole"}), "the runs tell of no steps"),
        (changed(measure=NO_POINTS, spec={"steps": None}), "how many steps a run has is not known: give `steps` in the plan"),
        (changed(measure=NO_POINTS), "no run timed enough steps (`timing.eta_min_samples`), or none tells when they ended"),
    ],
)
def test_where_there_are_none_it_says_why(results: CampaignResults, reason: str) -> None:
    assert why_none(results) == reason
    heading, rows, why = eta_section(results)
    assert (heading, why) == ("## ETA Overview", f"Not measured: {reason}.")
    assert rows.splitlines()[-1] == "| all runs | 0 | – | – | – | – | – |"
    assert reason in eta_line(results)


def test_estimates_without_a_truth_are_shown_and_not_judged() -> None:
    *shown, last = eta_section(changed(measure={"eta_quality": None}))
    assert "mb16_nw2_r1" in shown[1]
    assert last.startswith("Not measured: no run tells when its last step ended")
