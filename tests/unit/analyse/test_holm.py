"""Holm's steps."""

from __future__ import annotations

import pytest

from seatrial.analyse.holm import holm


def test_holm_steps_down_and_stops_at_the_first_that_is_not_told() -> None:
    levels, corrected = holm([0.04, 0.001, None, 0.03], 3)
    assert levels == [2, 3, 3, 2]
    assert corrected == [pytest.approx(0.06), pytest.approx(0.003), None, pytest.approx(0.06)]
