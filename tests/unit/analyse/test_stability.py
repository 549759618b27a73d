"""Whether a group is stable: the seeds' gates, one by one, and what is said where they cannot be asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.analyse.stability import group_stability
from seatrial.records.health import UnevenCause
from seatrial.records.measure import Window
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import StabilityVerdict
from tests.unit.analyse.factory import measured, spec


def runs(ratios: list[float | None], speeds: list[float] | None = None, **measure: Any) -> list[MeasuredRun]:
    speeds = speeds or [100.0] * len(ratios)
    return [
        measured(
            spec("a", repeat), measure={"samples_per_s": speed, "seed": {"iter_p90_over_p50": ratio, "step_p90_over_p50": 1.2}, **measure}
        )
        for repeat, (ratio, speed) in enumerate(zip(ratios, speeds, strict=True), start=1)
    ]


def test_a_stable_group_says_its_figures() -> None:
    found = group_stability(runs([1.1, 1.2, 1.15], [100.0, 101.0, 99.0]))
    assert found.verdict is StabilityVerdict.STABLE
    assert (found.runs, found.ratio_median, found.ratio_max, found.unstable_run_ratio) == (3, 1.15, 1.2, 0.0)
    assert found.cv_pct == pytest.approx(1.0)
    assert "1.15 in the median and 1.20 at most" in found.reason and "n = 3 runs" in found.reason


@pytest.mark.parametrize(
    ("ratios", "speeds", "words"),
    [
        ([1.6, 1.7, 1.55], None, "the median p90/p50 of its runs is 1.60, at most 1.5 is allowed"),
        ([1.1, 1.1, 2.6], None, "the highest p90/p50 of its runs is 2.60, at most 2.5 is allowed"),
        ([1.1, 1.1, 2.6], None, "1 of 3 runs are unstable"),
        (
            [1.1, 1.1, 1.1],
            [100.0, 120.0, 80.0],
            "20.0 % (CV) from repeat to repeat, from 80 in a_r3 to 120 in a_r2; at most 5 % is allowed",
        ),
    ],
)
def test_each_gate_breaks_by_itself(ratios: list[float | None], speeds: list[float] | None, words: str) -> None:
    found = group_stability(runs(ratios, speeds))
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert words in found.reason and "No cause was seen" in found.reason


def test_a_step_ratio_alone_makes_a_run_unstable() -> None:
    wild = runs([1.2, 1.2, 1.2])
    assert wild[0].measure is not None
    wild[0].measure.seed["step_p90_over_p50"] = 3.5
    found = group_stability(wild)
    assert found.unstable_run_ratio == pytest.approx(1 / 3) and "step p90/p50 above 3" in found.reason


def test_figures_at_their_bounds_hold() -> None:
    assert group_stability(runs([1.5, 1.5, 1.5])).verdict is StabilityVerdict.STABLE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "0 of the 3 repeats"),
        (runs([1.1, 1.1]), "2 of the 3 repeats that the gates ask for ended well: raise repeats"),
        (runs([1.1, None, 1.1]), "1 of 3 runs tell no p90/p50"),
        (
            runs([1.1, 1.1, 1.1], window=Window(first_step=0, last_step=9, n=10, warmup_steps=0, steady=False, reason="")),
            "no steady state was found in a_r1, a_r2, a_r3",
        ),
        (runs([1.1, 1.1, 1.1], samples_per_s=None, duration_s=None), "not every run tells its throughput"),
    ],
)
def test_what_is_missing_never_makes_a_group_stable(given: list[MeasuredRun], words: str) -> None:
    found = group_stability(given)
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and words in found.reason


def test_a_gate_that_no_repeat_can_mend_breaks_with_two_runs() -> None:
    assert group_stability(runs([1.1, 6.0])).verdict is StabilityVerdict.UNSTABLE
    assert group_stability(runs([1.6, 1.6])).verdict is StabilityVerdict.INCONCLUSIVE


def test_our_own_ratio_stands_in_for_the_seeds() -> None:
    assert group_stability(runs([None] * 3, wall_p90_over_p50=1.3)).ratio_median == 1.3


def test_the_spread_is_that_of_the_first_figure_that_all_runs_have() -> None:
    assert "samples_per_s varies" in group_stability(runs([1.1] * 3)).reason
    assert "duration_s varies" in group_stability(runs([1.1] * 3, samples_per_s=None, duration_s=60.0)).reason


def test_the_strongest_cause_of_each_kind_is_the_groups() -> None:
    weak, strong, other = (
        UnevenCause(kind=kind, text=text, strength=strength)
        for kind, text, strength in (("thermal", "A little warm.", 0.1), ("thermal", "Hot.", 0.6), ("slow_rank", "Rank 1 is slow.", 0.3))
    )
    first, second, third = runs([3.0, 3.0, 3.0])
    given = [_with(first, weak), _with(second, other, strong), third]
    found = group_stability(given)
    assert found.causes == (strong, other)
    assert found.reason.endswith("Why: Hot. Rank 1 is slow.")


def _with(run: MeasuredRun, *causes: UnevenCause) -> MeasuredRun:
    assert run.measure is not None
    return dataclasses.replace(run, measure=dataclasses.replace(run.measure, uneven=causes))


@pytest.mark.parametrize(("kind", "words"), [("anti_correlated_gpus", "work in turns"), ("thermal", "held back by heat")])
def test_a_platform_that_jitters_is_not_stable_however_even_its_steps_are(kind: str, words: str) -> None:
    found = group_stability(runs([1.1, 1.1, 1.1], uneven=(UnevenCause(kind=kind, text="seen"),)))
    assert found.verdict is StabilityVerdict.UNSTABLE and words in found.reason
