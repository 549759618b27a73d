"""The last line of every benchmark: one JSON object with what was measured, what was promised, and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping


def report(name: str, figures: Mapping[str, float | int | None], bounds: Mapping[str, float], **notes: object) -> None:
    """Print it; a bound whose figure is missing does not hold. `notes` (window, n, versions) stand beside the figures."""
    holds = all((value := figures.get(figure)) is not None and value <= bound for figure, bound in bounds.items())
    print(json.dumps({"benchmark": name, "figures": dict(figures), "bounds": dict(bounds), "holds": holds, **notes}))
