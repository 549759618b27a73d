"""One attempt as cells, for every table that has a row of it.

In: an attempt and what was measured of it. Out: column → value, for the seeds' columns and ours. A column that does not apply is None
or not there.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.measure import Cell, RunMeasure
from seatrial.run_table.found_cells import found_cells
from seatrial.run_table.seed_columns import axis_cells, config_cells


def run_cells(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Cell]:
    """Every cell known of the attempt."""
    effective, world_size = (measure.effective, measure.world_size) if measure else ({}, None)
    config = config_cells(attempt.spec, attempt.provenance, effective, world_size, attempt.telemetry)
    cells = {**config, **axis_cells(attempt.spec.axes), **_identity(attempt)}
    if measure is None:
        return cells
    cells |= {**measure.seed, **_wall(measure), **_window(measure), **_startup(measure), **_eta_quality(measure)}
    return cells | measure.telemetry | found_cells(measure)


def train_log(attempt: Attempt) -> str | None:
    """The attempt's train.log; None where the workload wrote none: an empty cell is better than a path to nothing."""
    path = AttemptPaths(Path(attempt.folder)).train_log
    return str(path) if path.is_file() else None


def _identity(attempt: Attempt) -> dict[str, Cell]:
    spec, paths = attempt.spec, AttemptPaths(Path(attempt.folder))
    return {
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "run_dir": str(paths.folder.parent),
        "train_log": train_log(attempt),
        "launcher_log": str(paths.launcher_log),
        "run": spec.run,
        "attempt": attempt.number,
        "hash": spec.hash,
        "group_key": spec.group_key,
        "current": attempt.current,
        "lane": spec.lane,
        "plan": spec.plan,
        "workload": spec.workload.name,
        "fingerprint": attempt.provenance.fingerprint or None,
        "duration_sec": attempt.outcome.duration_s if attempt.outcome else None,
    }


def _wall(measure: RunMeasure) -> dict[str, Cell]:
    return {
        "source": measure.source,
        "last_step": measure.last_step,
        "wall_s": measure.window_s,
        "wall_steps_per_sec": measure.steps_per_s,
        "wall_samples_per_sec": measure.samples_per_s,
        "wall_tokens_per_sec": measure.tokens_per_s,
        "wall_iter_p50_ms": measure.wall_p50_ms,
        "wall_iter_p90_ms": measure.wall_p90_ms,
        "wall_iter_p99_ms": measure.wall_p99_ms,
        "wall_p90_over_p50": measure.wall_p90_over_p50,
        "startup_sec": measure.startup_s,
        "first_loss": measure.first_loss,
        "last_loss": measure.last_loss,
        "loss_falls": measure.loss_falls,
    }


def _startup(measure: RunMeasure) -> dict[str, Cell]:
    return {f"startup_{part}_sec": value for part, value in measure.startup.items()}


def _eta_quality(measure: RunMeasure) -> dict[str, Cell]:
    quality = measure.eta_quality
    if quality is None:
        return {}
    return {
        "eta_error_median_sec": quality.median_error_s,
        "eta_error_p90_sec": quality.p90_error_s,
        "eta_error_median_fraction": quality.median_fraction,
        "eta_error_p90_fraction": quality.p90_fraction,
    }


def _window(measure: RunMeasure) -> dict[str, Cell]:
    window = measure.window
    if window is None:
        return {}
    return {
        "window_first_step": window.first_step,
        "window_last_step": window.last_step,
        "window_n": window.n,
        "warmup_steps": window.warmup_steps,
        "excluded_steps": window.excluded_steps,
        "steady": window.steady,
    }
