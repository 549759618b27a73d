"""When a figure is beyond its threshold, for the verdicts of both checks."""

from __future__ import annotations

import math

# Figures come from tables with six decimals, and 0.05 is not the same number each way it is computed.
ROUNDING_RATIO = 1e-9


def exceeds(value: float, limit: float) -> bool:
    """Beyond the limit; at it is not beyond."""
    return value > limit and not math.isclose(value, limit, rel_tol=ROUNDING_RATIO)
