"""Units of a criterion's bounds: from the one that is written to the metric's own, where that is exact."""

from __future__ import annotations

from seatrial import units


def units_for(unit: str) -> tuple[str, ...]:
    """The metric's own unit first, then all that convert to it."""
    alike = next((kind for kind in units.UNIT_KINDS if unit in kind), {})
    return (unit, *(name for name in alike if name != unit))


def converted(bound: float | None, written: str | None, unit: str) -> float | None:
    """A bound in the metric's own unit; `written` is one of `units_for(unit)`, or None for the metric's own."""
    if bound is None or written is None:
        return bound
    return units.converted(bound, written, unit)
