"""At a limit is not beyond it, however the number was computed."""

from __future__ import annotations

import math

import pytest

from seatrial.records.stability import exceeds


@pytest.mark.parametrize(
    ("value", "limit", "beyond"),
    [
        (0.05, 0.05, False),
        (0.1 + 0.2, 0.3, False),
        (0.050001, 0.05, True),
        (0.049999, 0.05, False),
        (0.0, 0.0, False),
        (1e-6, 0.0, True),
        (-1.0, 0.0, False),
        (math.inf, 10.0, True),
        (10.0, math.inf, False),
        (math.nan, 1.0, False),
    ],
)
def test_beyond_a_limit(value: float, limit: float, beyond: bool) -> None:
    assert exceeds(value, limit) is beyond
