"""What every benchmark has in common: the option --quick, and the last line, one JSON object with what was measured and promised.

    {"benchmark": "startup", "figures": {"help_s_p50": 0.158}, "bounds": {"help_s_p50": 0.4}, "holds": true, "n": 21}

`--quick` runs the same code on a few samples in seconds. It shows that the benchmark works, and nothing about speed: `holds` is null.
Without it a bound that does not hold is exit code 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import NoReturn

NOTHING: Mapping[str, float] = {}


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Options of a benchmark, its docstring as the help; callers add their own."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a few samples in seconds: shows that it runs, judges no bound")
    return options


def report(
    name: str,
    figures: Mapping[str, object],
    at_most: Mapping[str, float],
    at_least: Mapping[str, float] = NOTHING,
    *,
    quick: bool = False,
    **notes: object,
) -> None:
    """Print the last line, and exit with 1 where a bound does not hold. One whose figure is missing does not. `notes` (window, n, versions)
    stand beside the figures."""
    holds = all(_number(figures.get(figure)) <= bound for figure, bound in at_most.items()) and all(
        _number(figures.get(figure)) >= bound for figure, bound in at_least.items()
    )
    bounds: dict[str, object] = {**at_most, **{figure: {"at_least": bound} for figure, bound in at_least.items()}}
    line = {"benchmark": name, "figures": dict(figures), "bounds": bounds, "holds": None if quick else holds, **notes}
    print(json.dumps(line | {"quick": True} if quick else line), flush=True)
    if not (quick or holds):
        raise SystemExit(1)


def skip(name: str, reason: str) -> NoReturn:
    """End with 0 where the hardware is missing: nothing was measured, and nothing failed."""
    print(json.dumps({"benchmark": name, "figures": {}, "bounds": {}, "holds": None, "skipped": reason}))
    raise SystemExit(0)


def _number(value: object) -> float:
    """NaN, which is neither above nor below anything, for what is missing."""
    return float(value) if isinstance(value, (int, float)) else float("nan")
