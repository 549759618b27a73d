"""Slopes, drifts and verdicts by hand, and exact lines that come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial_runbooks.stage1.leak_arithmetic import (
    Sample,
    after_warm_up,
    drift,
    growth,
    head_mean,
    slope_per_min,
    tail_mean,
    tail_over_head_pct,
    too_little,
)
from seatrial_runbooks.stage1.leak_verdict import LeakFigures, LeakThresholds, verdict

T0 = 1_771_408_580.0
USUAL = LeakThresholds()
# Figure → (flag, threshold).
FLAGS = {
    "gpu_slope_mib_per_min": ("gpu_tail_slope", 20.0),
    "gpu_drift_mib": ("gpu_tail_drift", 4096.0),
    "host_slope_mib_per_min": ("host_tail_slope", 100.0),
    "host_drift_mib": ("host_tail_drift", 8192.0),
    "iter_drift_pct": ("iter_drift", 20.0),
}


def test_the_first_fifth_of_the_samples_is_warm_up() -> None:
    assert after_warm_up(range(10)) == range(2, 10)
    assert after_warm_up(range(14)) == range(2, 14), "a part of a sample stays"
    assert list(after_warm_up([])) == []


def test_the_slope_by_hand() -> None:
    # Deviations of time -1, 0, 1 min and of value -3, 1, 2: (3 + 0 + 2) / (1 + 0 + 1).
    assert slope_per_min([(0.0, 1.0), (60.0, 5.0), (120.0, 6.0)]) == pytest.approx(2.5)
    assert slope_per_min([(5.0, 1.0), (5.0, 2.0)]) is None and slope_per_min([]) is None


def test_head_tail_and_drift_by_hand() -> None:
    values = [float(value) for value in range(1, 31)]
    assert (head_mean(values), tail_mean(values), drift(values)) == (2.0, 29.0, 27.0)
    assert drift([7.0, 9.0]) == 2.0, "a tenth is one value at least"


def test_tail_over_head_by_hand() -> None:
    # 13 points leave 11: the head is the third, the tail the last.
    assert tail_over_head_pct([900.0, 900.0, 100.0, *[110.0] * 9, 125.0]) == pytest.approx(25.0)
    assert tail_over_head_pct([100.0] * 11) is None, "nine are left"
    assert tail_over_head_pct([100.0] * 12) == pytest.approx(0.0), "ten are left"
    assert tail_over_head_pct([0.0] * 20) is None


def samples(count: int, interval_s: float, slope_per_s: float = 0.0) -> list[Sample]:
    return [(T0 + at * interval_s, 1000.0 + slope_per_s * at * interval_s) for at in range(count)]


@pytest.mark.parametrize(
    ("count", "interval_s", "why"),
    [
        (12, 30.0, ""),
        (11, 30.0, "9 samples are left after the warm-up, at least 10 are needed"),
        (100, 0.5, "the samples after the warm-up span 40 s, at least 60 s are needed"),
        (76, 1.0, ""),
        (75, 1.0, "the samples after the warm-up span 59 s, at least 60 s are needed"),
        (0, 1.0, "0 samples are left after the warm-up, at least 10 are needed"),
    ],
)
def test_too_few_samples_or_too_short_a_time_give_no_figure(count: int, interval_s: float, why: str) -> None:
    assert (growth(samples(count, interval_s)) is None) == bool(why)
    assert too_little(after_warm_up(samples(count, interval_s))) == why


def test_growth_is_the_same_in_any_order_of_the_rows() -> None:
    rows = samples(100, 2.0, 0.5)
    assert growth(rows[::-1]) == growth(rows)


def test_a_steep_warm_up_is_no_leak() -> None:
    rows = [(T0 + at * 2.0, min(at, 20) * 500.0) for at in range(100)]
    found = growth(rows)
    assert found is not None and (found.slope_per_min, found.drift) == (0.0, 0.0)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    slope=st.floats(-1e4, 1e4),
    base=st.floats(0, 1e6),
    gaps_s=st.lists(st.floats(1.0, 30.0), min_size=80, max_size=200),
    first_t=st.floats(1e9, 2e9),
)
def test_the_slope_of_an_exact_line_comes_back(slope: float, base: float, gaps_s: list[float], first_t: float) -> None:
    rows, passed_s = [], 0.0
    for gap_s in gaps_s:
        passed_s += gap_s
        rows.append((first_t + passed_s, base + slope * passed_s / 60))
    found = growth(rows)
    assert found is not None
    assert found.slope_per_min == pytest.approx(slope, rel=1e-4, abs=1e-4)
    assert found.drift * slope >= -1e-3


@pytest.mark.parametrize("figure", FLAGS)
def test_every_threshold_at_below_and_above(figure: str) -> None:
    flag, most = FLAGS[figure]
    assert verdict(LeakFigures(**{figure: most - 0.1}), USUAL) == "no_obvious_leak"
    assert verdict(LeakFigures(**{figure: most}), USUAL) == "no_obvious_leak"
    assert verdict(LeakFigures(**{figure: most * (1 + 1e-12)}), USUAL) == "no_obvious_leak", "rounding is no leak"
    assert verdict(LeakFigures(**{figure: most + 0.1}), USUAL) == f"suspected_leak_or_contention({flag})"
    assert verdict(LeakFigures(**{figure: -1e6}), USUAL) == "no_obvious_leak", "what shrinks does not leak"


def test_all_flags_come_in_one_order_and_thresholds_can_be_moved() -> None:
    all_beyond = LeakFigures(**{figure: most + 1 for figure, (_, most) in FLAGS.items()})
    assert verdict(all_beyond, USUAL) == (
        "suspected_leak_or_contention(gpu_tail_slope,gpu_tail_drift,host_tail_slope,host_tail_drift,iter_drift)"
    )
    assert verdict(all_beyond, LeakThresholds(gpu_tail_slope_mib_per_min=21, gpu_tail_drift_mib=1e6, host_tail_slope_mib_per_min=1e6)) == (
        "suspected_leak_or_contention(host_tail_drift,iter_drift)"
    )


def test_a_run_of_which_nothing_is_known_is_not_clean() -> None:
    assert verdict(LeakFigures(), USUAL) == "not_enough_data"
    assert verdict(LeakFigures(gpu_slope_mib_per_min=0.0), USUAL) == "no_obvious_leak"
