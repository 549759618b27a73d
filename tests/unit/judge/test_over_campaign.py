"""Criteria over the whole campaign: scaling, and drift of the platform."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.over_campaign import campaign_reading, drift_evidence, drift_window
from seatrial.judge.reading import Reading
from seatrial.records.comparison import Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.records.stability import SentinelDrift, StabilityVerdict
from seatrial.records.verdict import Criterion
from tests.unit.judge.campaigns import clean_runs
from tests.unit.report import factory


def facts(**changes: Any) -> Facts:
    return dataclasses.replace(sort_runs(clean_runs(), (), factory.ranking(), ()), **changes)


def read(metric: str, **changes: Any) -> Reading:
    (found,) = campaign_reading(Criterion(metric=metric, scope="campaign", at_least=0), facts(**changes))
    return found


def point(gpus: int, efficiency: Estimate, runs: int = 3) -> ScalingPoint:
    value = Estimate(mean=100.0 * gpus, n=runs)
    return ScalingPoint(
        gpus=gpus,
        nodes=1,
        group=f"g{gpus}",
        source="out",
        value=value,
        per_gpu=value,
        efficiency=efficiency,
        step_ms=1.0,
        runs=runs,
        weak=True,
    )


def scaling(*points: ScalingPoint, **changes: Any) -> Scaling:
    return Scaling(metric="samples_per_s", unit="samples/s", points=points, **changes)


def drift(**changes: Any) -> SentinelDrift:
    values: dict[str, Any] = {"verdict": StabilityVerdict.STABLE, "reason": "Too few sentinels: 2.", "group": "s", "runs": 5}
    return SentinelDrift(**{**values, **changes})


ONE, FOUR = point(1, Estimate(mean=1.0, n=3)), point(4, Estimate(mean=0.8, low=0.7, high=0.9, n=6), runs=2)


def test_nothing_has_ended() -> None:
    assert campaign_reading(Criterion(metric="scaling_efficiency", scope="campaign"), facts(ok=())) == []


def test_efficiency_at_the_largest_number_with_its_interval() -> None:
    found = read("scaling_efficiency", scaling=scaling(FOUR, ONE, family="mb=8"))
    assert (found.subject, found.value, found.low, found.high, found.n, found.repeats, found.confidence) == (
        "g4",
        0.8,
        0.7,
        0.9,
        6,
        2,
        0.95,
    )
    assert found.window == "1 → 4 GPUs, the windows of 3 and 2 runs"
    assert found.detail == "1 → 4 GPUs, the worst of several: mb=8, 95 % interval 0.7 to 0.9"
    assert [(one.subject, one.name, one.value, one.unit, one.n) for one in found.further] == [
        ("g1", "total at 1 GPU", 100.0, "samples/s", 3),
        ("g4", "total at 4 GPUs", 400.0, "samples/s", 2),
    ]
    assert read("scaling_efficiency", scaling=scaling(ONE, FOUR)).detail == "1 → 4 GPUs, 95 % interval 0.7 to 0.9"


def test_scaling_that_was_not_measured_or_has_no_interval() -> None:
    how = "; run the same group on 1, 2, 4 … ranks into one folder"
    assert read("scaling_efficiency").missing == "there are not two numbers of ranks to compare" + how
    assert read("scaling_efficiency", scaling=scaling(ONE, reason="One number only.")).missing == "One number only" + how
    assert read("scaling_efficiency", scaling=scaling(ONE)).missing == "there are not two numbers of ranks to compare" + how
    bare = point(4, Estimate(mean=0.8, n=1), runs=1)
    assert read("scaling_efficiency", scaling=scaling(ONE, bare, worker="rank")).missing == (
        "0.8 at 4 ranks has no interval; set repeats to 3 or more"
    )


@pytest.mark.parametrize(
    ("low", "high", "level", "ends", "value"),
    [
        (-8.0, -4.0, None, (4.0, 8.0), 6.0),
        (4.0, 8.0, None, (4.0, 8.0), 6.0),
        (-1.0, 13.0, None, (0.0, 13.0), 6.0),
        (-13.0, 1.0, None, (0.0, 13.0), 6.0),
        (0.0, 12.0, None, (0.0, 12.0), 6.0),
        (-1.0, 3.0, -9.0, (9.0, 9.0), 9.0),
        (-8.0, 10.0, 9.0, (9.0, 10.0), 9.0),
    ],
)
def test_how_far_the_platform_moved_whichever_way(
    low: float, high: float, level: float | None, ends: tuple[float, float], value: float
) -> None:
    found = read("drift_pct", drift=drift(drift_pct=6.0, drift_low=low, drift_high=high, level_change_pct=level))
    assert (found.low, found.high) == ends and found.value == value


def test_drift_in_words_and_numbers() -> None:
    made = drift(drift_pct=-6.0, drift_low=-8.0, drift_high=-4.0, level_change_pct=-5.0, spread_pct=9.0, first_t=60.0, last_t=3660.0)
    found = read("drift_pct", drift=made)
    assert found.detail == (
        "-6 % from the first to the last, 95 % interval -8 to -4 %, its level changed by -5 % in between, 5 sentinel runs"
    )
    assert (found.subject, found.unit, found.window, found.n, found.repeats) == ("s", "%", "over 60 min of the campaign", 5, 5)
    assert [(one.name, one.value) for one in drift_evidence(made)] == [
        ("drift", -6.0),
        ("drift, lower end", -8.0),
        ("drift, upper end", -4.0),
        ("change of level", -5.0),
        ("spread", 9.0),
    ]


def test_drift_that_is_not_known() -> None:
    assert read("drift_pct").missing.startswith("the plan has no sentinel; set `sentinel`")
    found = read("drift_pct", drift=drift(spread_pct=3.0))
    assert found.missing == "Too few sentinels: 2" and [one.name for one in found.further] == ["spread"]
    assert read("drift_pct", drift=drift(drift_pct=1.0, drift_low=0.5)).missing == "Too few sentinels: 2"
    assert drift_window(None, 3.0) == drift_window(3.0, None) == "over the campaign"
    assert drift_window(0.0, 90.0) == "over 2 min of the campaign"
