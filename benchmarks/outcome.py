"""What all benchmarks share: the option --quick, and the last line, one JSON object with the figures and their bounds.

    {"benchmark": "startup", "figures": {"help_s_p50": 0.158}, "bounds": {"help_s_p50": 0.4}, "holds": true, "n": 21}

`--quick` runs the same code on a few samples in seconds. It shows that the benchmark works, but measures nothing: `holds` is null. Without
it, the exit code is 1 if a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import NoReturn

NO_BOUNDS: Mapping[str, float] = {}


def parser(doc: str | None) -> argparse.ArgumentParser:
    """An argument parser with --quick and the benchmark's docstring as its help."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a few samples in seconds: shows that it runs, checks no bound")
    return options


def report(
    name: str,
    figures: Mapping[str, object],
    at_most: Mapping[str, float],
    at_least: Mapping[str, float] = NO_BOUNDS,
    *,
    quick: bool = False,
    **notes: object,
) -> None:
    """Print the last line; exit with 1 if a bound does not hold or its figure is missing. `notes`: window, n, versions."""
    holds = all(_number(figures.get(figure)) <= bound for figure, bound in at_most.items()) and all(
        _number(figures.get(figure)) >= bound for figure, bound in at_least.items()
    )
    bounds: dict[str, object] = {**at_most, **{figure: {"at_least": bound} for figure, bound in at_least.items()}}
    line = {"benchmark": name, "figures": dict(figures), "bounds": bounds, "holds": None if quick else holds, **notes}
    print(json.dumps(line | {"quick": True} if quick else line), flush=True)
    if not (quick or holds):
        raise SystemExit(1)


def skip(name: str, reason: str) -> NoReturn:
    """Exit with 0 if the hardware is missing: nothing was measured, and nothing failed."""
    print(json.dumps({"benchmark": name, "figures": {}, "bounds": {}, "holds": None, "skipped": reason}))
    raise SystemExit(0)


def _number(value: object) -> float:
    """NaN, which meets no bound, for a missing figure."""
    return float(value) if isinstance(value, (int, float)) else float("nan")
