"""Stability of a group over its repeats, and drift of the platform."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from seatrial.analyse.stability import group_stability, sentinel_drift, with_possible_causes
from seatrial.records.attempt import Provenance
from seatrial.records.measure import GroupSummary, JitterCause, SentinelDrift, StabilityVerdict, Window
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse.factory import STARTED_T, golden, measured, spec

SENTENCES = golden("stability")


def group_runs(ratios: list[float | None], speeds: list[float] | None = None, **measure: Any) -> list[MeasuredRun]:
    speeds = speeds or [100.0] * len(ratios)
    return [
        measured(
            spec("a", repeat), measure={"samples_per_s": speed, "stage1": {"iter_p90_over_p50": ratio, "step_p90_over_p50": 1.2}, **measure}
        )
        for repeat, (ratio, speed) in enumerate(zip(ratios, speeds, strict=True), start=1)
    ]


def test_a_stable_group_has_its_figures() -> None:
    found = group_stability(group_runs([1.1, 1.2, 1.15], [100.0, 101.0, 99.0]))
    assert found.verdict is StabilityVerdict.STABLE
    assert (found.runs, found.ratio_median, found.ratio_max, found.unstable_run_ratio) == (3, 1.15, 1.2, 0.0)
    assert found.cv_pct == pytest.approx(1.0)
    assert found.reason in SENTENCES


@pytest.mark.parametrize(("ratios", "speeds"), [([1.6, 1.7, 1.55], None), ([1.1, 1.1, 2.6], None), ([1.1, 1.1, 1.1], [100.0, 120.0, 80.0])])
def test_each_gate_breaks_by_itself(ratios: list[float | None], speeds: list[float] | None) -> None:
    found = group_stability(group_runs(ratios, speeds))
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.reason in SENTENCES


def test_a_step_ratio_alone_makes_a_run_unstable() -> None:
    wild = group_runs([1.2, 1.2, 1.2])
    assert wild[0].measure is not None
    wild[0].measure.stage1["step_p90_over_p50"] = 3.5
    found = group_stability(wild)
    assert found.unstable_run_ratio == pytest.approx(1 / 3) and found.reason in SENTENCES


def test_figures_at_their_bounds_hold() -> None:
    assert group_stability(group_runs([1.5, 1.5, 1.5])).verdict is StabilityVerdict.STABLE


@pytest.mark.parametrize(
    "given",
    [
        [],
        group_runs([1.1, 1.1]),
        group_runs([1.1, None, 1.1]),
        group_runs([1.1, 1.1, 1.1], window=Window(first_step=0, last_step=9, n=10, warmup_steps=0, steady=False, reason="")),
        group_runs([1.1, 1.1, 1.1], samples_per_s=None, duration_s=None),
    ],
)
def test_what_is_missing_never_makes_a_group_stable(given: list[MeasuredRun]) -> None:
    found = group_stability(given)
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and found.reason in SENTENCES


def test_a_gate_that_no_repeat_can_mend_breaks_with_two_runs() -> None:
    assert group_stability(group_runs([1.1, 6.0])).verdict is StabilityVerdict.UNSTABLE
    assert group_stability(group_runs([1.6, 1.6])).verdict is StabilityVerdict.INCONCLUSIVE


def test_our_own_ratio_replaces_the_seeds() -> None:
    assert group_stability(group_runs([None] * 3, wall_p90_over_p50=1.3)).ratio_median == 1.3


def test_the_spread_is_that_of_the_first_figure_that_all_runs_have() -> None:
    assert group_stability(group_runs([1.1] * 3)).reason in SENTENCES
    assert group_stability(group_runs([1.1] * 3, samples_per_s=None, duration_s=60.0)).reason in SENTENCES


def test_what_was_seen_before_the_runs_is_offered_where_a_group_is_unstable_and_not_elsewhere() -> None:
    seen = JitterCause(kind="preflight", text="Seen before the start, other processes: 2.0 of 2 cores in use by others.")
    stable, unstable = group_stability(group_runs([1.1] * 3, [100.0, 101.0, 99.0])), group_stability(group_runs([1.6] * 3))
    groups = [
        GroupSummary(group=name, group_key=name, mode="sweep", lane=True, axes={}, runs=3, failed_runs=0, stability=found)
        for name, found in (("a", stable), ("b", unstable))
    ]
    assert with_possible_causes(groups, ()) == tuple(groups)
    a, b = with_possible_causes(groups, (seen,))
    assert a.stability == stable
    assert b.stability is not None and b.stability.causes == (seen,)
    assert seen.text in b.stability.reason and "Cause unknown" not in b.stability.reason


def test_the_strongest_cause_of_each_kind_is_the_groups() -> None:
    weak, strong, other = (
        JitterCause(kind=kind, text=text, strength=strength)
        for kind, text, strength in (("thermal", "A little warm.", 0.1), ("thermal", "Hot.", 0.6), ("slow_rank", "Rank 1 is slow.", 0.3))
    )
    first, second, third = group_runs([3.0, 3.0, 3.0])
    given = [_with(first, weak), _with(second, other, strong), third]
    found = group_stability(given)
    assert found.causes == (strong, other)
    assert found.reason in SENTENCES


def _with(run: MeasuredRun, *causes: JitterCause) -> MeasuredRun:
    assert run.measure is not None
    return dataclasses.replace(run, measure=dataclasses.replace(run.measure, jitter_causes=causes))


@pytest.mark.parametrize("kind", ["anti_correlated_gpus", "thermal"])
def test_a_platform_that_jitters_is_not_stable_however_even_its_steps_are(kind: str) -> None:
    found = group_stability(group_runs([1.1, 1.1, 1.1], jitter_causes=(JitterCause(kind=kind, text="seen"),)))
    assert found.verdict is StabilityVerdict.UNSTABLE and found.reason in SENTENCES


HOUR_S = 3600.0


def sentinel_runs(speeds: list[float], mode: str = "sentinel", metric: str = "samples_per_s") -> list[MeasuredRun]:
    return [
        measured(
            spec("watch", repeat, mode=mode),
            measure={"duration_s": 60.0, metric: speed},
            started_t=STARTED_T + repeat * HOUR_S,
        )
        for repeat, speed in enumerate(speeds, start=1)
    ]


def drift(speeds: list[float], metric: str = "samples_per_s") -> SentinelDrift:
    found = sentinel_drift(sentinel_runs(speeds, metric=metric))
    assert found is not None
    return found


def test_a_plan_without_a_sentinel_has_no_drift() -> None:
    assert sentinel_drift([]) is None
    assert sentinel_drift(sentinel_runs([100.0] * 5, mode="sweep")) is None


def test_a_platform_that_becomes_slower() -> None:
    found = drift([100.0, 98.1, 96.0, 94.2, 92.0])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.drift_pct == pytest.approx(-8.0, abs=0.3)
    assert found.drift_low is not None and found.drift_high is not None
    assert found.drift_low < found.drift_pct < found.drift_high < 0
    assert found.spread_pct == pytest.approx(100 / 92 * 100 - 100)
    assert found.reason in SENTENCES
    assert (found.first_t, found.last_t) == (STARTED_T + HOUR_S, STARTED_T + 5 * HOUR_S)


def test_the_order_is_that_of_time() -> None:
    assert sentinel_drift(sentinel_runs([100.0, 98.0, 96.0, 94.0])[::-1]) == sentinel_drift(sentinel_runs([100.0, 98.0, 96.0, 94.0]))


@pytest.mark.parametrize("before", [2, 4])
def test_a_change_of_level(before: int) -> None:
    noise = [0.0, 0.2, -0.1, 0.1, 0.05, -0.15, 0.1, 0.0]
    found = drift([(100.0 if place < before else 93.0) + more for place, more in enumerate(noise)])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.reason in SENTENCES


def test_a_late_change_of_level_is_kept_where_the_line_would_hide_it() -> None:
    """Of 20 sentinels the last two are slower: the line through all of them falls by half as much."""
    noise = np.random.default_rng(5).normal(0, 0.1, 20)
    found = drift([(100.0 if place < 18 else 96.5) + more for place, more in enumerate(noise)])
    assert found.verdict is StabilityVerdict.UNSTABLE
    assert found.drift_pct is not None and abs(found.drift_pct) < 3
    assert found.level_change_pct == pytest.approx(-3.5, abs=0.2)
    assert found.reason in SENTENCES
    assert drift([100.0, 98.1, 96.0, 94.2, 92.0]).level_change_pct is None
    assert drift([100.0, 100.6, 99.7, 100.2, 99.9]).level_change_pct is None


def test_small_noise_is_stable_and_so_is_a_small_drift_however_sure() -> None:
    found = drift([100.0, 100.6, 99.7, 100.2, 99.9])
    assert found.verdict is StabilityVerdict.STABLE and found.reason in SENTENCES
    assert drift([100.0, 99.5, 99.0, 98.5, 98.0]).verdict is StabilityVerdict.STABLE
    faster = drift([92.0, 94.2, 96.0, 98.1, 100.0])
    assert faster.verdict is StabilityVerdict.UNSTABLE and faster.reason in SENTENCES


def test_noise_that_would_hide_a_drift_is_inconclusive() -> None:
    found = drift([100.0, 90.0, 104.0, 93.0])
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and found.reason in SENTENCES


def test_a_large_change_whose_interval_includes_none_is_no_drift() -> None:
    found = drift([100.0, 90.0, 104.0, 88.0])
    assert found.drift_pct is not None and found.drift_low is not None and found.drift_high is not None
    assert found.drift_pct < -5 and found.drift_low < 0 < found.drift_high and found.verdict is StabilityVerdict.INCONCLUSIVE


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_show_nothing(count: int) -> None:
    found = drift([100.0, 50.0][:count])
    assert found.verdict is StabilityVerdict.INCONCLUSIVE and found.runs == count and found.reason in SENTENCES


def test_runs_that_failed_or_have_no_figure_do_not_count() -> None:
    failed = measured(spec("watch", 9, mode="sentinel"), measure={"samples_per_s": 1.0}, outcome=Outcome.FAILED)
    found = sentinel_drift([*sentinel_runs([100.0, 100.0, 100.1]), failed])
    assert found is not None and found.runs == 3 and found.verdict is StabilityVerdict.STABLE


def test_a_longer_run_is_a_slower_platform() -> None:
    found = drift([60.0, 63.0, 66.0, 69.0], metric="duration_s")
    assert found.metric == "duration_s" and found.drift_pct is not None and found.drift_pct < -5 and found.reason in SENTENCES


def test_runs_begun_at_one_moment_are_no_course() -> None:
    same = [measured(spec("watch", repeat, mode="sentinel"), measure={"samples_per_s": 100.0 + repeat}) for repeat in (1, 2, 3)]
    found = sentinel_drift(same)
    assert found is not None and found.verdict is not StabilityVerdict.UNSTABLE
    assert found.drift_low is not None and math.isfinite(found.drift_low)


def test_a_steady_platform_is_rarely_called_unstable() -> None:
    rng = np.random.default_rng(7)
    called = sum(drift(list(100 * np.exp(rng.normal(0, 0.01, 8)))).verdict is StabilityVerdict.UNSTABLE for _ in range(500))
    assert called <= 15


def test_a_machine_that_became_another_is_reported() -> None:
    updated = measured(
        spec("watch", 4, mode="sentinel"),
        measure={"samples_per_s": 100.0},
        started_t=STARTED_T + 4 * HOUR_S,
        provenance=Provenance(fingerprint="f1"),
    )
    found = sentinel_drift([*sentinel_runs([100.0, 100.1, 99.9]), updated])
    assert found is not None and found.reason in SENTENCES
