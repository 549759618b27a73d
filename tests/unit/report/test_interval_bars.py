"""Intervals drawn to scale."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seatrial.records.measure import Estimate
from seatrial.report.interval_bars import Scale, bar, scale_of


def test_ends_and_mean_are_where_the_scale_puts_them() -> None:
    scale = Scale(low=0.0, high=10.0)
    assert bar(Estimate(mean=5.0, low=2.0, high=8.0, n=3), scale, 11) == "  ├──●──┤  "


def test_no_interval_is_a_dot_and_no_estimate_is_blank() -> None:
    scale = Scale(low=0.0, high=10.0)
    assert bar(Estimate(mean=10.0), scale, 11) == "          ●"
    assert bar(None, scale, 11) == " " * 11


def test_a_wild_interval_runs_off_the_scale_and_leaves_the_means_apart() -> None:
    wild, tame = Estimate(mean=100.0, low=1.0, high=10_000.0, n=2), Estimate(mean=110.0, low=109.0, high=111.0, n=5)
    scale = scale_of([wild, tame])
    assert scale is not None and (scale.low, scale.high) == (90.0, 120.0)
    assert bar(wild, scale, 31) == "◂─────────●───────────────────▸"


def test_one_mean_without_an_interval_still_has_a_scale() -> None:
    scale = scale_of([Estimate(mean=100.0)])
    assert scale is not None
    assert bar(Estimate(mean=100.0), scale, 11) == "     ●     "


def test_without_estimates_there_is_no_scale() -> None:
    assert scale_of([None, None]) is None


estimates = st.builds(
    lambda mean, spread: Estimate(mean=mean, low=mean / spread, high=mean * spread, n=3),
    st.floats(min_value=1e-6, max_value=1e9),
    st.floats(min_value=1.0, max_value=1e6),
)


@given(st.lists(estimates, min_size=1, max_size=6), st.integers(min_value=2, max_value=120))
def test_every_line_has_its_width_and_its_dot(known: list[Estimate], columns: int) -> None:
    scale = scale_of(known)
    assert scale is not None and scale.low < scale.high
    for estimate in known:
        line = bar(estimate, scale, columns)
        assert len(line) == columns
        assert line.count("●") == 1
