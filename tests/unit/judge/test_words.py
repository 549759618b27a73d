"""A criterion and its readings in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.judge.reading import Reading
from seatrial.judge.words import (
    asked,
    needs_bound,
    repeats_wanted,
    told_broken,
    told_holding,
    told_open,
    unit_of,
    unit_text,
    why_asked,
)
from seatrial.records.verdict import Baseline, Criterion


def criterion(metric: str = "samples_per_s", scope: str = "every_run", **changes: Any) -> Criterion:
    return Criterion(metric=metric, scope=scope, **changes)


def reading(value: object, subject: str = "a_r1", **changes: Any) -> Reading:
    return Reading(subject=subject, value=value, **{"unit": "samples/s", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (criterion(at_least=1200), "samples_per_s in every run at least 1,200 samples/s"),
        (criterion(at_least=1, at_most=2.5), "samples_per_s in every run at least 1 samples/s and at most 2.5 samples/s"),
        (criterion(), None),
        (criterion("loss_falls"), "loss_falls in every run"),
        (criterion("failed_runs", "campaign", at_most=0), "failed_runs at most 0"),
        (criterion("wall_p90_over_p50", "winner", at_most=1.5), "wall_p90_over_p50 of the winner at most 1.5"),
        (
            criterion("speedup_pct", "every_group", at_least=20, baseline=Baseline(campaign="OUT")),
            "speedup_pct in every group against the winner of OUT at least 20 %",
        ),
        (criterion("speedup_pct", "winner", at_least=20, baseline=Baseline()), "speedup_pct of the winner at least 20 %"),
        (criterion("no_such_metric"), None),
    ],
)
def test_what_was_asked(made: Criterion, text: str | None) -> None:
    assert asked(made) == text


def test_units_that_are_not_said() -> None:
    assert (unit_of(criterion("failed_runs", "campaign")), unit_of(criterion("wall_p90_over_p50")), unit_of(criterion("no_such"))) == (
        "",
        "",
        "",
    )
    assert unit_of(criterion(unit="samples/min")) == "samples/min"
    assert (unit_text(""), unit_text("runs"), unit_text("ms")) == ("", "", " ms")
    assert needs_bound(criterion("no_such")) and not needs_bound(criterion("loss_falls"))


def test_one_that_is_broken_and_several() -> None:
    one = reading(1270.4, "mb16", detail="2 runs")
    assert told_broken(criterion(at_least=2000), [one], 1) == "1,270 samples/s in mb16 (2 runs)"
    falls = [reading(False, f"r{at}", detail=f"{at} → 9", unit="") for at in range(2)]
    assert told_broken(criterion("loss_falls"), falls, 8) == "not so in 2 of 8: r0 (0 → 9), r1 (1 → 9)"
    worse = reading(30.0, "mb16", unit="%", broken="its loss is worse.")
    assert told_broken(criterion("speedup_pct", "winner", at_least=20), [worse], 1) == "30 % in mb16 does not count: its loss is worse"


def test_where_all_hold_the_nearest_to_the_bound_is_told() -> None:
    several = [reading(value, f"r{value}") for value in (100, 300, 200)]
    assert told_holding(criterion(at_least=50), several) == "so in all 3, the nearest being 100 samples/s in r100"
    assert told_holding(criterion(at_most=500), several) == "so in all 3, the nearest being 300 samples/s in r300"
    assert told_holding(criterion(at_least=50), several[:1]) == "100 samples/s in r100"
    told = [reading(True, "a", beside="1 of 2 ranks told"), reading(True, "b", beside="1 of 2 ranks told"), reading(True, "c")]
    assert told_holding(criterion("loss_falls"), told) == "so in all 3 (1 of 2 ranks told)"
    assert told_holding(criterion("loss_falls"), told[2:] * 2) == "so in all 2"


def test_reasons_that_differ_only_in_numbers_are_told_once() -> None:
    gaps = [Reading(subject=f"r{at}", missing=f"r{at} has {at} samples") for at in (1, 2, 3)]
    other = Reading(subject="x", missing="x told nothing")
    assert told_open(criterion(), [*gaps, other]) == "r1 has 1 samples (and 2 more likewise); x told nothing"


def test_why_a_value_is_open() -> None:
    unsettled = reading(5, unsettled="2 runs of it still to be run", low=5, high=7)
    assert told_open(criterion(at_least=6), [unsettled]) == "5 samples/s in a_r1; 2 runs of it still to be run"
    over = reading(110, low=90, high=130, confidence=0.95, repeats=3)
    assert told_open(criterion(at_least=100), [over]) == (
        "110 samples/s in a_r1: the interval reaches over the bound; about 9 more repeats would tell"
    )
    inside = reading(110, low=105, high=130, confidence=0.95, repeats=3, unsettled="but runs are missing")
    assert told_open(criterion(at_least=100), [inside]) == "110 samples/s in a_r1; but runs are missing"


@pytest.mark.parametrize(
    ("value", "repeats", "words"),
    [
        # Half the interval is 20; its width goes with the root of the runs.
        (110, 3, "about 9 more repeats would tell"),
        (120, 3, "about 1 more repeat would tell"),
        (119, 1, "about 1 more repeat would tell"),
        (104, 5, "about 120 more repeats would be needed to tell: without them INCONCLUSIVE stands"),
        (104, 4, "about 96 more repeats would tell"),
        (100, 3, "it lies on the bound, where no number of repeats tells: INCONCLUSIVE stands"),
        (100.1, 3, "it lies on the bound, where no number of repeats tells: INCONCLUSIVE stands"),
        (110, None, "more repeats may tell"),
        (None, 3, "more repeats may tell"),
    ],
)
def test_how_many_repeats_would_settle_it(value: float | None, repeats: int | None, words: str) -> None:
    made = None if value is None else float(value)
    low, high = (None, None) if made is None else (made - 20, made + 20)
    assert repeats_wanted(reading(made, low=low, high=high, repeats=repeats), criterion(at_least=100)) == words


def test_the_nearer_of_two_bounds_counts_and_of_a_comparison_both_sides_repeat() -> None:
    made = reading(110.0, low=90.0, high=130.0, repeats=3)
    assert repeats_wanted(made, criterion(at_least=100, at_most=115)) == "about 45 more repeats would tell"
    assert repeats_wanted(made, criterion(at_least=100, at_most=500)) == "about 9 more repeats would tell"
    assert repeats_wanted(made, criterion("speedup_pct", "winner", at_least=100)) == "about 9 more repeats of each would tell"
    assert repeats_wanted(made, criterion("scaling_efficiency", "campaign", at_least=100)).endswith(" of each would tell")


def test_why_it_was_asked_for() -> None:
    assert why_asked(criterion(reason="The seeds need it.")) == " (asked for because: The seeds need it)"
    assert why_asked(criterion()) == ""
