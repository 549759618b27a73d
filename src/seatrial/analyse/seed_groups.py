"""The seeds' group columns, by the seeds' rules.

In: the runs of one group. Out: cells by column name: configuration (one value, or `mixed`), means and deviations of the per-run
columns, counts of unstable runs, the stability score. Names, rank columns and speed-up are filled by others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from seatrial.records.columns import GROUP_SEED
from seatrial.records.measure import Cell
from seatrial.records.results import MeasuredRun
from seatrial.run_table.seed_columns import config_cells

CONFIG_COLUMNS = GROUP_SEED[GROUP_SEED.index("zero_stage") : GROUP_SEED.index("git_dirty") + 1]
MIXED = "mixed"
# Columns that are the mean, deviation, lowest or highest of a per-run column of the same name without the ending.
STATISTICS = ("_mean", "_std", "_min", "_max")


def seed_group_cells(described: Sequence[MeasuredRun], counted: Sequence[MeasuredRun]) -> dict[str, Cell]:
    """All columns; configuration from `described` (all runs where none counts), numbers from `counted`."""
    configs = [_config(run) for run in described]
    own = configs if counted is described else [_config(run) for run in counted]
    cells: dict[str, Cell] = dict.fromkeys(GROUP_SEED)
    cells.update({name: _single([config.get(name) for config in configs]) for name in CONFIG_COLUMNS})
    seeds = [config | (run.measure.seed if run.measure else {}) for config, run in zip(own, counted, strict=True)]
    for column in GROUP_SEED:
        ending = next((ending for ending in STATISTICS if column.endswith(ending)), None)
        if ending:
            cells[column] = _statistic(_numbers(seeds, column.removesuffix(ending)), ending)
    for kind in ("gpu", "host"):
        cells[f"{kind}_telemetry_empty_count"], cells[f"{kind}_telemetry_empty_ratio"] = _share(seeds, f"{kind}_telemetry_empty_flag")
    cells["unstable_run_count"], cells["unstable_run_ratio"] = _share(seeds, "unstable_run_flag")
    cells["stability_score"] = _stability(cells)
    return {name: cells[name] for name in GROUP_SEED if name not in ("group", "mode", "runs")}


def _config(run: MeasuredRun) -> dict[str, Cell]:
    measure = run.measure
    return config_cells(
        run.attempt.spec,
        run.attempt.provenance,
        measure.effective if measure else {},
        measure.world_size if measure else None,
        run.attempt.telemetry,
    )


def _single(values: Sequence[Cell]) -> Cell:
    return values[0] if all(value == values[0] for value in values) else MIXED


def _numbers(seeds: Sequence[dict[str, Cell]], column: str) -> list[float]:
    found = [seed.get(column) for seed in seeds]
    numbers = [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return [value for value in numbers if math.isfinite(value)]


def _statistic(values: Sequence[float], ending: str) -> float | None:
    if not values:
        return None
    if ending == "_std":
        return statistics.stdev(values) if len(values) > 1 else 0.0
    if ending == "_mean":
        return statistics.fmean(values)
    return min(values) if ending == "_min" else max(values)


def _share(seeds: Sequence[dict[str, Cell]], flag: str) -> tuple[int | None, float | None]:
    """How many runs carry the flag, and which share of those that have it at all."""
    known = [seed[flag] for seed in seeds if seed.get(flag) is not None]
    count = sum(value is True for value in known)
    return (count, count / len(known)) if known else (None, None)


def _stability(cells: dict[str, Cell]) -> float | None:
    """p90 over p50 of the tail means, made worse by the share of unstable runs; lower is better."""
    p50, p90, unstable = cells["tail_mean_iter_p50_ms_mean"], cells["tail_mean_iter_p90_ms_mean"], cells["unstable_run_ratio"]
    if not isinstance(p50, float) or not isinstance(p90, float) or p50 <= 0:
        return None
    return p90 / p50 * (1 + (unstable if isinstance(unstable, float) else 0.0))
