"""Figures of a run's step times besides its throughput.

In: the step table, the counted steps, the spec. Out: stage 1's timing points (percentiles over a rolling window at every logged step) and
per-run timing columns, slow steps and the last fifty, and the parts of the start-up.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from seatrial.analyse.statistics import MEDIAN_TO_MEAN_ERROR, level_and_width
from seatrial.analyse.steady_state import CountedSteps, find_grid
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import format_hms
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Scalar
from seatrial.records.eta import EtaPoint
from seatrial.records.events import PHASES, SPANS, STARTUP_PARTS
from seatrial.records.measure import JITTER_RATIO, LastSteps, SlowStep, SlowSteps, TimingPoint
from seatrial.records.plan import RunSpec, TimingSpec
from seatrial.records.run_table import log_every

Floats = npt.NDArray[np.float64]
COLUMNS = (*PHASES, "iter_ms")
STAGE1_ITER = "stage1_iter_ms"
"""Column of stage 1's iter_ms beside our own."""
QUANTILES = {"p50": 0.5, "p90": 0.9}
# The same strings in every point, so that a pickle from a worker contains each of them once.
FIGURES = tuple(f"{name}_{quantile}" for name in COLUMNS for quantile in QUANTILES)
# Windows are sorted together; this many at a time limit the memory of a very long run.
POINTS_AT_ONCE = 2048
UNSTABLE_ITER_RATIO = JITTER_RATIO
UNSTABLE_STEP_RATIO = 3.0
"""Stage 1's limits on p90/p50 of the last window."""
LAST_COLUMNS = ("iter", "fwd", "bwd", "data_wait", "step")
MIN_ROWS = 10
"""Fewer rows have no reliable width."""
FAR_WIDTHS = 6.0
"""With normal noise less than one step in a million is so far from the median."""
FAR_SHARE = 0.25
"""A slow step is also at least this share slower, however even the others are."""
MIN_KEPT = 0.5
"""Share of the excess time of slow steps that shorter steps do not make up for: below it they are mostly deferred waiting."""
MIN_TIME_SHARE = 0.001
"""Share of the window's time; less changes no figure."""
MEDIAN_ERRORS = 2.0
"""By chance all steps may be faster by this many standard errors of the median."""
LAUNCHING_RATIO = 1.5
"""If phases are this many times as long as the step by wall clock, the wall clock shows when steps were launched, not their duration."""
WORST = 5
LAST_STEPS = 50
"""Stage 1's rule."""
CLOCK_SLACK_S = 1.0
"""By how much a part of the run may be longer than the run, on two clocks."""


def stage1_iter_ms() -> pl.Expr:
    """Stage 1's iter_ms of every row of a step table: the sum of the five phases; null on steps without phases where others have them.
    Where forward and backward are never separate (a Trainer callback, a script's lines), it is wall time."""
    taken = pl.col("fwd_ms").is_not_null() & pl.col("bwd_ms").is_not_null()
    return pl.when(taken).then(pl.sum_horizontal(PHASES)).when(taken.any()).then(None).otherwise(pl.col("iter_ms"))


def stage1_iter_of(steps: pl.DataFrame) -> pl.Series:
    """`stage1_iter_ms` as a column; most runs time the phases of all steps or of none and need no query."""
    missing = max(steps["fwd_ms"].null_count(), steps["bwd_ms"].null_count())
    if missing == 0:
        columns = [(steps[name].fill_null(0.0) if steps[name].null_count() else steps[name]).to_numpy() for name in PHASES]
        found = pl.Series(functools.reduce(np.add, columns))
    elif missing == len(steps):
        found = steps["iter_ms"]
    else:
        found = steps.select(stage1_iter_ms()).to_series()
    return found.alias(STAGE1_ITER)


def timing_points(rank0: pl.DataFrame, log_every: int, window: int) -> tuple[TimingPoint, ...]:
    """A point for each logged step. `rank0` is sorted by step and has the column STAGE1_ITER."""
    timed = rank0.drop_nulls(STAGE1_ITER) if rank0[STAGE1_ITER].null_count() else rank0
    steps = timed["step"].to_numpy()
    ends = logged_rows(steps, log_every)
    starts = np.searchsorted(steps, steps[ends] - window, side="right")
    values = np.column_stack([timed[name].to_numpy() for name in (*PHASES, STAGE1_ITER)])
    found: list[TimingPoint] = []
    for at in range(0, len(ends), POINTS_AT_ONCE):
        part = slice(at, at + POINTS_AT_ONCE)
        windows = _sorted_windows(values, starts[part], ends[part])
        found += _points(at, steps[ends[part]].tolist(), _quantiles(windows))
    return tuple(found)


def logged_rows(steps: npt.NDArray[np.int64], log_every: int) -> npt.NDArray[np.intp]:
    """Rows that reach or pass a multiple of `log_every`."""
    if len(steps) == 0:
        return np.array([], dtype=np.intp)
    multiples = steps // log_every
    passed = np.diff(multiples, prepend=multiples[0]) > 0
    passed[0] = steps[0] % log_every == 0
    return np.flatnonzero(passed)


def _points(first: int, steps: list[int], quantiles: Floats) -> Iterator[TimingPoint]:
    """Points from number `first` on; `quantiles` has a row for each, in the order of FIGURES."""
    unknown = np.isnan(quantiles).any()
    for index, (step, row) in enumerate(zip(steps, quantiles.tolist(), strict=True), start=first):
        values = [None if math.isnan(value) else value for value in row] if unknown else row
        yield TimingPoint(index=index, step=step, values=dict(zip(FIGURES, values, strict=True)))


def _sorted_windows(values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Floats:
    """Window × row × column, each window's values sorted, padded with NaN."""
    longest = int((ends - starts).max()) + 1
    indices = starts[:, None] + np.arange(longest)[None, :]
    windows = values[np.minimum(indices, len(values) - 1)]
    windows[indices > ends[:, None]] = np.nan
    return np.sort(windows, axis=1)


def _quantiles(windows: Floats) -> Floats:
    """Linear-interpolated quantiles of every window: a row each, in the order of FIGURES; NaN where a window has no value."""
    last = np.maximum((~np.isnan(windows)).sum(axis=1) - 1, 0)
    window, column = np.ogrid[: windows.shape[0], : windows.shape[2]]
    found = []
    for share in QUANTILES.values():
        at = last * share
        low = np.floor(at).astype(np.intp)
        high = np.minimum(low + 1, last)
        below, above = windows[window, low, column], windows[window, high, column]
        found.append(below + (above - below) * (at - low))
    return np.stack(found, axis=2).reshape(len(windows), len(FIGURES))


def stage1_cells(
    points: Sequence[TimingPoint],
    estimates: Sequence[EtaPoint],
    steps: pl.DataFrame,
    spec: RunSpec,
    *,
    source: str,
    global_batch: float | None,
) -> dict[str, Scalar]:
    """Every timing column of stage 1's per-run table, and the global batch behind its rates."""
    numbers = steps["step"]
    first_step, last_step = numbers.min(), numbers.max()
    return {
        **_last_window(points),
        **_tail(points, tail_of(points, spec.timing, first_step if isinstance(first_step, int) else 0), global_batch),
        **_rank_spread(steps, spec, source),
        **_eta(estimates),
        "global_batch": global_batch,
        "log_every_steps": log_every(spec),
        "timing_points": len(points),
        "last_step": last_step if isinstance(last_step, int) else None,
    }


def _last_window(points: Sequence[TimingPoint]) -> dict[str, Scalar]:
    last = points[-1].values if points else {}
    cells: dict[str, Scalar] = {f"last_{name}_{q}_ms": last.get(f"{name}_ms_{q}") for name in LAST_COLUMNS for q in ("p50", "p90")}
    iter_ratio, step_ratio = _p90_over_p50(last, "iter"), _p90_over_p50(last, "step")
    cells.update(iter_p90_over_p50=iter_ratio, data_p90_over_p50=_p90_over_p50(last, "data_wait"), step_p90_over_p50=step_ratio)
    cells["unstable_run_flag"] = (
        (iter_ratio or 0.0) > UNSTABLE_ITER_RATIO or (step_ratio or 0.0) > UNSTABLE_STEP_RATIO if iter_ratio is not None else None
    )
    return cells


def _p90_over_p50(values: dict[str, float | None], name: str) -> float | None:
    p50, p90 = values.get(f"{name}_ms_p50"), values.get(f"{name}_ms_p90")
    return p90 / p50 if p50 and p90 is not None else None


def tail_of(points: Sequence[TimingPoint], timing: TimingSpec, first_step: int) -> Sequence[TimingPoint]:
    """The last `tail_points` windows, at most half of all, none of which contains the run's first step. Stage 1's tail has no such
    limits: in a short run it averages the cold first windows too."""
    kept = min(timing.tail_points, len(points) // 2)
    return [point for point in points[len(points) - kept :] if point.step - timing.timing_window >= first_step]


def _tail(points: Sequence[TimingPoint], tail: Sequence[TimingPoint], global_batch: float | None) -> dict[str, Scalar]:
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


def _rank_spread(steps: pl.DataFrame, spec: RunSpec, source: str) -> dict[str, Scalar]:
    """At each logged step the slowest rank minus the fastest, then p90 over the last `tail_points`, at most half of them."""
    if steps.is_empty() or steps["rank"][0] == steps["rank"][-1]:
        return {
            "rank_iter_spread_p90_ms": None,
            "rank_step_spread_p90_ms": None,
            "rank_spread_points": 0,
            "rank_spread_log_source": None,
        }
    rank, number, iter_ms, step_ms = (steps[name].to_numpy() for name in ("rank", "step", STAGE1_ITER, "step_ms"))
    grid = find_grid(rank, number)
    is_logged = np.zeros(len(grid.numbers), dtype=np.bool_)
    is_logged[logged_rows(grid.numbers, spec.timing.log_every)] = True
    at_logged = is_logged[grid.step_index] & ~np.isnan(iter_ms)
    _, index, ranks = np.unique(number[at_logged], return_inverse=True, return_counts=True)
    common = np.flatnonzero(ranks > 1)
    tail = common[len(common) - min(spec.timing.tail_points, len(common) // 2) :]
    return {
        "rank_iter_spread_p90_ms": _p90(_spread(iter_ms[at_logged], index, len(ranks))[tail]),
        "rank_step_spread_p90_ms": _p90(_spread(step_ms[at_logged], index, len(ranks))[tail]),
        "rank_spread_points": len(tail),
        "rank_spread_log_source": ("events" if source == "events" else ATTEMPT_FILES.launcher_log.name) if len(tail) else None,
    }


def _spread(values: Floats, index: npt.NDArray[np.intp], count: int) -> Floats:
    """Largest minus smallest of the known values at each index; not finite where none is known."""
    high, low = np.full(count, -np.inf), np.full(count, np.inf)
    known = ~np.isnan(values)
    np.maximum.at(high, index[known], values[known])
    np.minimum.at(low, index[known], values[known])
    return np.asarray(high - low, dtype=np.float64)


def _p90(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, 90)) if len(known) else None


def _eta(estimates: Sequence[EtaPoint]) -> dict[str, Scalar]:
    """The first and the last estimate of the time to go, in the plan's ETA mode."""
    if not estimates:
        return {"eta_points": 0}
    first, last = estimates[0], estimates[-1]
    cells: dict[str, Scalar] = {"eta_points": len(estimates), "last_eta_remaining_steps": last.remain_steps}
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


def slow_steps(counted: CountedSteps, phases_p50_ms: float | None = None) -> SlowSteps | None:
    """The steps far above the window's median, by its robust width and by a share of it; they count anyway. `phases_p50_ms` is the median
    sum of phases over the same steps, where known.

    On a GPU the host runs ahead of the device and occasionally waits for it, for example to read a loss: by wall clock that step is long
    and its neighbours are shorter by as much. Time that other steps make up for is not lost, so it does not count.
    """
    times_ms = counted.wall_ms
    if counted.window is None or len(times_ms) < MIN_ROWS:
        return None
    level, width = level_and_width(times_ms)
    far = np.flatnonzero(times_ms > level + max(FAR_WIDTHS * width, FAR_SHARE * level))
    if level <= 0 or len(far) == 0 or (phases_p50_ms is not None and phases_p50_ms >= LAUNCHING_RATIO * level):
        return None
    total_ms = float(times_ms @ counted.spans)
    beyond_ms = float((times_ms[far] - level) @ counted.spans[far])
    # The window's time if no step were slow; an underestimate, since half of the steps are below the median.
    median_error = MEDIAN_ERRORS * MEDIAN_TO_MEAN_ERROR * width / math.sqrt(len(counted.spans))
    lost_ms = min(beyond_ms, total_ms - float(counted.spans.sum()) * (level - median_error))
    if lost_ms < max(MIN_KEPT * beyond_ms, MIN_TIME_SHARE * total_ms):
        return None
    worst = far[np.argsort(-times_ms[far], kind="stable")[:WORST]]
    return SlowSteps(
        count=int(counted.spans[far].sum()),
        time_share=lost_ms / total_ms,
        worst=tuple(
            SlowStep(step=int(counted.last_steps[row]), ms=float(times_ms[row]), over_median=float(times_ms[row]) / level) for row in worst
        ),
    )


def last_steps(counted: CountedSteps, world_size: int) -> LastSteps | None:
    """Mean and standard deviation over the last fifty counted steps; over all where there are fewer."""
    if counted.window is None:
        return None
    num_rows = int(np.searchsorted(np.cumsum(counted.spans[::-1]), LAST_STEPS)) + 1
    times_ms, spans = counted.wall_ms[-num_rows:], counted.spans[-num_rows:]
    steps = int(spans.sum())
    mean_ms = float(times_ms @ spans) / steps
    if mean_ms <= 0:
        return None
    # A row of several steps holds their mean, so only the spread between rows is known.
    variance = float(((times_ms - mean_ms) ** 2) @ spans) / steps * len(spans) / max(1, len(spans) - 1)
    return LastSteps(n=steps, mean_ms=mean_ms, stdev_ms=variance**0.5, per_s=_work_per_step(counted, world_size) / mean_ms * 1000)


def _work_per_step(counted: CountedSteps, world_size: int) -> float:
    """Samples of all ranks in the window's mean step, else tokens, else the step itself."""
    work = counted.samples if counted.samples is not None else counted.tokens
    if work is None or counted.window is None or counted.ranks == 0:
        return 1.0
    return work * world_size / counted.ranks / counted.window.n


def startup_split(attempt: Attempt, tables: StepTables) -> dict[str, float]:
    """Seconds by part (STARTUP_PARTS), of the rank whose first step ended last; they add up to `startup_s`. {} where the workload has no
    probe, reported no step, or the clock was set. An unknown part is left out.

        launch        the harness's start of the launcher → this rank's process
        import        process → its probe: Python, imports, all that the script does before it creates one
        process_group, model, ops_build, data, tokenise, compile     as the workload names them
        first_step    the first step's own time
        other         the rest
    """
    facts, outcome = tables.startup, attempt.outcome
    if facts is None or tables.steps.is_empty() or outcome is None or not outcome.started_t:
        return {}
    at = int(np.argmax(tables.steps["rank"].to_numpy() == facts.rank))
    first = {name: tables.steps[name][at] for name in ("t", "m", "iter_ms")}
    if first["t"] is None or first["m"] is None or not 0 <= first["t"] - outcome.started_t <= outcome.duration_s + CLOCK_SLACK_S:
        return {}
    begin_m = first["m"] - (first["iter_ms"] or 0.0) / 1000.0
    # A compiler may run at the first call: its time does not belong to the first step.
    inside_s = sum(min(span_s, max(0.0, end_m - begin_m)) for _, span_s, end_m in facts.spans if end_m > begin_m)
    parts = {"first_step": max(0.0, first["m"] - begin_m - inside_s)}
    for part in (part for part in SPANS if any(name == part for name, _, _ in facts.spans)):
        parts[part] = sum(span_s for name, span_s, _ in facts.spans if name == part)
    if facts.process_t is not None:
        parts |= {"import": facts.start_t - facts.process_t, "launch": facts.process_t - outcome.started_t}
    return _within(parts, first["t"] - outcome.started_t)


def _within(parts: dict[str, float], total_s: float) -> dict[str, float]:
    """The parts in their order, none negative, and `other` as the rest of `total_s`. Steps and spans are timed on one monotonic clock and
    come first; launch and import are differences of wall clocks, which may be corrected in between, and are clipped to what is left."""
    left_s, kept = total_s, {}
    for part, value_s in parts.items():
        kept[part] = min(max(0.0, value_s), left_s)
        left_s -= kept[part]
    kept["other"] = left_s
    return {part: round(kept[part], 6) for part in STARTUP_PARTS if part in kept}
