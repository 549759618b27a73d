"""How far estimates were off."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.eta.errors import of_mode, quality
from seatrial.records.eta import EtaPoint


def point(step: int, error_s: float, *, total: int = 100, **changes: Any) -> EtaPoint:
    left_s = float(total - 1 - step)
    values: dict[str, Any] = {
        "index": 0,
        "step": step,
        "remain_steps": total - 1 - step,
        "eta_s": left_s + error_s,
        "mode": "rank0",
        "source": "events",
        "actual_s": left_s,
    }
    return EtaPoint(**{**values, **changes})


def test_median_and_p90_from_a_tenth_of_the_run_on() -> None:
    points = [point(5, 50.0), *(point(step, error_s) for step, error_s in ((20, -4.0), (40, 3.0), (60, 2.0), (80, 1.0)))]
    found = quality([(points, 100.0)])
    assert found is not None
    assert (found.points, found.median_error_s, found.p90_error_s) == (4, 2.5, pytest.approx(3.7))
    assert (found.median_fraction, found.p90_fraction) == (pytest.approx(0.025), pytest.approx(0.037))
    assert found.covered is None


def test_the_last_step_and_points_without_a_truth_do_not_count() -> None:
    assert quality([([point(99, 0.0), point(50, 1.0, actual_s=None)], 100.0)]) is None
    assert quality([([point(50, 1.0)], 0.0)]) is None
    assert quality([]) is None


def test_runs_of_unlike_length_are_pooled_point_by_point() -> None:
    found = quality([([point(50, 1.0)], 10.0), ([point(50, 1.0), point(60, 1.0)], 100.0)])
    assert found is not None
    assert (found.points, found.median_error_s, found.median_fraction) == (3, 1.0, 0.01)


def test_coverage_is_of_the_points_that_have_an_interval() -> None:
    inside, outside = {"low_s": 40.0, "high_s": 60.0}, {"low_s": 50.0, "high_s": 60.0}
    found = quality([([point(50, 1.0, **inside), point(50, 1.0, **outside), point(50, 1.0)], 100.0)])
    assert found is not None
    assert (found.points, found.covered) == (3, 0.5)


def test_the_asked_mode_else_rank_0() -> None:
    both = [point(50, 1.0), point(50, 2.0, mode="global_max")]
    assert of_mode(both, "global_max") == (both[1],)
    assert of_mode(both[:1], "global_max") == (both[0],)
