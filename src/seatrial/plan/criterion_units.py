"""Units of a criterion's bounds: from the one that is written to the metric's own, where that is exact."""

from __future__ import annotations

# Of each kind, a unit and how many of the smallest it is: whole numbers, so that nothing is rounded before the end.
KINDS: tuple[dict[str, int], ...] = (
    {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000},
    {"MiB": 1, "GiB": 1_024},
    {"MiB/h": 1, "MiB/min": 60, "GiB/h": 1_024},
    # A YAML value cannot begin with a bare %.
    {"%": 1, "pct": 1, "ratio": 100},
)


def units_for(unit: str) -> tuple[str, ...]:
    """The metric's own unit first, then all that convert to it."""
    alike = next((kind for kind in KINDS if unit in kind), {})
    return (unit, *(name for name in alike if name != unit))


def converted(bound: float | None, written: str | None, unit: str) -> float | None:
    """A bound in the metric's own unit; `written` is one of `units_for(unit)`, or None for the metric's own."""
    if bound is None or written is None or written == unit:
        return bound
    kind = next(kind for kind in KINDS if unit in kind)
    return bound * kind[written] / kind[unit]
