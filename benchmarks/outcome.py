"""The last line of every benchmark: one JSON object with what was measured, what was promised, and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping

NOTHING: Mapping[str, float] = {}


def report(
    name: str, figures: Mapping[str, object], at_most: Mapping[str, float], at_least: Mapping[str, float] = NOTHING, **notes: object
) -> None:
    """Print it; a bound whose figure is missing does not hold. `notes` (window, n, versions) stand beside the figures."""
    holds = all(_number(figures.get(figure)) <= bound for figure, bound in at_most.items()) and all(
        _number(figures.get(figure)) >= bound for figure, bound in at_least.items()
    )
    bounds: dict[str, object] = {**at_most, **{figure: {"at_least": bound} for figure, bound in at_least.items()}}
    print(json.dumps({"benchmark": name, "figures": dict(figures), "bounds": bounds, "holds": holds, **notes}))


def _number(value: object) -> float:
    """NaN, which is neither above nor below anything, for what is missing."""
    return float(value) if isinstance(value, (int, float)) else float("nan")
