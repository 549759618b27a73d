"""The seeds' per-run columns that come from timing.

In: timing points, estimates of the time to go, the step table and what the spec says of tails. Out: cells by column name: last window,
means of the last windows, their ratios, spread between ranks, ETA. The seeds' definitions, kept so that old tables and new ones can be
laid side by side; our own figures are the `wall_*` ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.grid import find_grid
from seatrial.analyse.timing_points import SEED_ITER, logged_rows
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.eta import EtaPoint
from seatrial.records.measure import Cell, TimingPoint
from seatrial.records.run_spec import RunSpec
from seatrial.run_table.seed_columns import log_every
from seatrial.units import format_hms

Floats = npt.NDArray[np.float64]

UNSTABLE_ITER_RATIO = 2.0
UNSTABLE_STEP_RATIO = 3.0
"""The seeds' limits on p90/p50 of the last window."""
LAST_COLUMNS = ("iter", "fwd", "bwd", "data_wait", "step")


def seed_cells(
    points: Sequence[TimingPoint],
    estimates: Sequence[EtaPoint],
    steps: pl.DataFrame,
    spec: RunSpec,
    *,
    source: str,
    global_batch: float | None,
) -> dict[str, Cell]:
    """Every timing column of the seeds' per-run table, and the global batch that its rates are of."""
    cells = {
        **_last_window(points),
        **_tail(points, spec.timing.tail_points, global_batch),
        **_rank_spread(steps, spec, source),
        **_eta(estimates),
    }
    cells["global_batch"] = global_batch
    cells["log_every_steps"] = log_every(spec)
    cells["timing_points"] = len(points)
    cells["last_step"] = _whole(steps["step"].max())
    return cells


def _last_window(points: Sequence[TimingPoint]) -> dict[str, Cell]:
    last = points[-1].values if points else {}
    cells: dict[str, Cell] = {f"last_{name}_{q}_ms": last.get(f"{name}_ms_{q}") for name in LAST_COLUMNS for q in ("p50", "p90")}
    iter_ratio, step_ratio = _p90_over_p50(last, "iter"), _p90_over_p50(last, "step")
    cells.update(iter_p90_over_p50=iter_ratio, data_p90_over_p50=_p90_over_p50(last, "data_wait"), step_p90_over_p50=step_ratio)
    cells["unstable_run_flag"] = (
        (iter_ratio or 0.0) > UNSTABLE_ITER_RATIO or (step_ratio or 0.0) > UNSTABLE_STEP_RATIO if iter_ratio is not None else None
    )
    return cells


def _p90_over_p50(values: dict[str, float | None], name: str) -> float | None:
    p50, p90 = values.get(f"{name}_ms_p50"), values.get(f"{name}_ms_p90")
    return p90 / p50 if p50 and p90 is not None else None


def _tail(points: Sequence[TimingPoint], tail_points: int, global_batch: float | None) -> dict[str, Cell]:
    tail = points[-tail_points:]
    p50s, p90s, all_p50s = _column(tail, "iter_ms_p50"), _column(tail, "iter_ms_p90"), _column(points, "iter_ms_p50")
    tail_mean = _mean(p50s)
    rate = 1000 / tail_mean if tail_mean else None
    return {
        "tail_points_used": len(tail),
        "tail_mean_iter_p50_ms": tail_mean,
        "tail_mean_iter_p90_ms": _mean(p90s),
        "tail_std_iter_p50_ms": _std(p50s),
        "tail_std_iter_p90_ms": _std(p90s),
        "all_mean_iter_p50_ms": _mean(all_p50s),
        "all_std_iter_p50_ms": _std(all_p50s),
        "tail_steps_per_sec": rate,
        "tail_samples_per_sec": rate * global_batch if rate is not None and global_batch is not None else None,
    }


def _rank_spread(steps: pl.DataFrame, spec: RunSpec, source: str) -> dict[str, Cell]:
    """At each logged step the slowest rank less the fastest, then p90 over the tail."""
    nothing: dict[str, Cell] = {"rank_iter_spread_p90_ms": None, "rank_step_spread_p90_ms": None, "rank_spread_points": 0}
    if steps.is_empty() or steps["rank"][0] == steps["rank"][-1]:
        return {**nothing, "rank_spread_log_source": None}
    rank, number, iter_ms, step_ms = (steps[name].to_numpy() for name in ("rank", "step", SEED_ITER, "step_ms"))
    grid = find_grid(rank, number)
    is_logged = np.zeros(len(grid.numbers), dtype=np.bool_)
    is_logged[logged_rows(grid.numbers, spec.timing.log_every)] = True
    at_logged = is_logged[grid.place] & ~np.isnan(iter_ms)
    _, place, ranks = np.unique(number[at_logged], return_inverse=True, return_counts=True)
    tail = np.flatnonzero(ranks > 1)[-spec.timing.tail_points :]
    return {
        "rank_iter_spread_p90_ms": _p90(_spread(iter_ms[at_logged], place, len(ranks))[tail]),
        "rank_step_spread_p90_ms": _p90(_spread(step_ms[at_logged], place, len(ranks))[tail]),
        "rank_spread_points": len(tail),
        "rank_spread_log_source": ("events" if source == "events" else ATTEMPT_FILES.launcher_log.name) if len(tail) else None,
    }


def _spread(values: Floats, place: npt.NDArray[np.intp], count: int) -> Floats:
    """Largest less smallest of the known values at each place; not finite where none is known."""
    high, low = np.full(count, -np.inf), np.full(count, np.inf)
    known = ~np.isnan(values)
    np.maximum.at(high, place[known], values[known])
    np.minimum.at(low, place[known], values[known])
    return np.asarray(high - low, dtype=np.float64)


def _p90(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, 90)) if len(known) else None


def _eta(estimates: Sequence[EtaPoint]) -> dict[str, Cell]:
    """The first and the last estimate of the time to go, of the mode the plan asks for."""
    if not estimates:
        return {"eta_points": 0}
    first, last = estimates[0], estimates[-1]
    cells: dict[str, Cell] = {"eta_points": len(estimates), "last_eta_remaining_steps": last.remain_steps}
    cells.update(last_eta_mode=last.mode, eta_mode_effective=last.mode)
    for name, point in (("eta_first", first), ("eta_last", last), ("last_eta", last)):
        cells.update({f"{name}_step": point.step, f"{name}_sec": round(point.eta_s, 1), f"{name}_hms": format_hms(point.eta_s)})
    return cells


def _column(points: Sequence[TimingPoint], name: str) -> list[float]:
    return [value for point in points if (value := point.values.get(name)) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _std(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
