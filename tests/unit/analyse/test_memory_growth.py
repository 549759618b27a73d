"""Shapes of growth on courses whose shape is known."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.memory_blocks import Blocks, best_blocks
from seatrial.analyse.memory_growth import Shape, find_growth

AT_MIN = np.linspace(0, 30, 900)
NOISE = np.random.default_rng(2).normal(0, 2, 900)


@pytest.mark.parametrize(
    ("course", "shape"),
    [
        (5 * AT_MIN, Shape.STEADY),
        (20 * np.floor(AT_MIN / 4), Shape.STEADY),
        (0 * AT_MIN, Shape.FLAT),
        (4000 * (1 - np.exp(-AT_MIN / 10)), Shape.SLOWING),
        (4000 * np.clip(AT_MIN / 17, 0, 1), Shape.STOPPED),
        (900 * ((AT_MIN / 12) % 1), Shape.UNEVEN),
    ],
    ids=["leak", "leak in segments", "flat", "cache", "ramp that ends", "two teeth"],
)
def test_shapes(course: np.ndarray, shape: Shape) -> None:
    found = find_growth(AT_MIN, 4000 + course + NOISE)
    assert found is not None
    assert found.shape is shape


def test_a_day_of_samples_is_judged_as_an_hours() -> None:
    at_min = np.linspace(0, 1440, 43_200)
    found = find_growth(at_min, 9000 + 0.5 * at_min + np.random.default_rng(3).normal(0, 5, len(at_min)))
    assert found is not None
    assert found.shape is Shape.STEADY
    assert found.slope.value == pytest.approx(0.5, rel=0.02)


def test_warm_up_is_left_out() -> None:
    found = find_growth(AT_MIN, 4000 + 5 * AT_MIN + 3000 * np.clip(AT_MIN / 7, 0, 1) + NOISE)
    assert found is not None
    assert found.shape is Shape.STEADY
    assert found.first_min >= 6


def test_too_few_samples_have_no_shape() -> None:
    assert find_growth(AT_MIN[:20], AT_MIN[:20]) is None


def test_a_flat_course_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []

    def counting(at: np.ndarray, values: np.ndarray) -> Blocks | None:
        cut.append(len(values))
        return best_blocks(at, values)

    monkeypatch.setattr("seatrial.analyse.memory_growth.best_blocks", counting)
    found = find_growth(AT_MIN, 4000 + NOISE / 4)
    assert found is not None and found.shape is Shape.FLAT
    assert cut == [900]
