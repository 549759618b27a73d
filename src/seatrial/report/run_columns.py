"""One attempt as the cells of per_run_metrics.csv.

In: a measured run. Out: column → value, for the seeds' columns and ours. A column that does not apply is None or not there.
"""

from __future__ import annotations

from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.measure import Cell, RunMeasure
from seatrial.records.results import MeasuredRun
from seatrial.seed_columns import axis_cells, config_cells


def run_cells(run: MeasuredRun) -> dict[str, Cell]:
    """Every cell known of the run."""
    attempt, measure = run.attempt, run.measure
    effective, world_size = (measure.effective, measure.world_size) if measure else ({}, None)
    cells = {**config_cells(attempt.spec, attempt.provenance, effective, world_size), **axis_cells(attempt.spec), **_identity(attempt)}
    return {**cells, **measure.seed, **_wall(measure), **_window(measure)} if measure else cells


def _identity(attempt: Attempt) -> dict[str, Cell]:
    spec, paths = attempt.spec, AttemptPaths(Path(attempt.folder))
    return {
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "run_dir": str(paths.folder.parent),
        # Scripts of the user's own write none; an empty cell is better than a path to nothing.
        "train_log": str(paths.train_log) if paths.train_log.is_file() else None,
        "launcher_log": str(paths.launcher_log),
        "run": spec.run,
        "attempt": attempt.number,
        "hash": spec.hash,
        "group_key": spec.group_key,
        "lane": spec.lane,
        "fingerprint": attempt.provenance.fingerprint or None,
        "duration_sec": attempt.outcome.duration_s if attempt.outcome else None,
    }


def _wall(measure: RunMeasure) -> dict[str, Cell]:
    return {
        "source": measure.source,
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
