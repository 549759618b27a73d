"""One attempt as a row of the manifest and of the per-run table: stage 1's columns in their order,
then ours.

In: an attempt and what was measured of it. Out: column → value. A column that does not apply is None or absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.caution import Scalar
from seatrial.records.columns import AXIS, STAGE1_SETTINGS
from seatrial.records.measure import Effective, MemoryTrend, MemoryVerdict, RunMeasure
from seatrial.records.plan import RunSpec
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

KEY_SEPARATOR = "~"
KEY_DIGITS = 4
"""Enough for the few configurations that share a name."""


def qualified_name(name: str, key: str) -> str:
    """The name with digits of the configuration's key, where two configurations have the same name: `mb16~427b`."""
    return f"{name}{KEY_SEPARATOR}{key[:KEY_DIGITS]}"


SHORT_COMMIT = 12
# Seeds' name → names of the setting in workloads.
SETTING_NAMES = {
    "precision_mode": ("precision_mode", "precision"),
    "model_load_dtype": ("model_load_dtype", "load_dtype"),
    "attn_impl": ("attn_impl", "attention"),
    "speech_attn_impl": ("speech_attn_impl", "speech_attention"),
    "text_attn_impl": ("text_attn_impl", "text_attention"),
    "torch_compile_enabled": ("torch_compile_enabled", "torch_compile", "enable_torch_compile", "compile"),
    "tf32_enabled": ("tf32_enabled", "tf32", "enable_tf32"),
}
# Stage 1's columns about the machine.
MACHINE_COLUMNS = ("gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_power_limit_w", "pcie_gen", "driver_version", "git_commit_hash")
PROVENANCE_COLUMNS = (*MACHINE_COLUMNS, "git_branch", "git_dirty")
SETTING_COLUMNS = tuple(sorted(STAGE1_SETTINGS))


def config_cells(
    spec: RunSpec,
    provenance: Provenance,
    effective: Effective,
    world_size: int | None = None,
    telemetry: TelemetryAccount | None = None,
) -> dict[str, Scalar]:
    """Every configuration column of stage 1: requested and effective settings, machine; None where it does not apply to this run."""
    ranks = world_size or spec.place.ranks
    requested = {**spec.axes, **spec.settings}
    cells: dict[str, Scalar] = {name: effective[name].effective if name in effective else requested.get(name) for name in SETTING_COLUMNS}
    cells.update(_requested_and_effective(requested, effective))
    cells.update({name: getattr(provenance, name) or None for name in PROVENANCE_COLUMNS})
    cells["git_commit_short"] = provenance.git_commit_hash[:SHORT_COMMIT] or None
    cells["world_size"] = ranks
    cells["global_batch"] = global_batch(spec, effective, ranks)
    cells["log_every_steps"] = log_every(spec)
    cells["enable_cuda_sync_timing"] = spec.timing.sync
    cells["timing_rank_scope"] = spec.rank_scope
    return {**cells, **telemetry_cells(telemetry)}


def telemetry_cells(account: TelemetryAccount | None) -> dict[str, Scalar]:
    """Rows of telemetry, and stage 1's flags, true where there are none; telemetry_note has the reason."""
    cells: dict[str, Scalar] = {}
    for kind in ("gpu", "host"):
        sampler: SamplerAccount | None = getattr(account, kind, None)
        cells[f"{kind}_telemetry_rows"] = sampler.rows if sampler else 0
        cells[f"{kind}_telemetry_empty_flag"] = sampler.empty if sampler else True
    return cells


def axis_cells(axes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Axes without a stage-1 column, as `axis_NAME`."""
    return {f"{AXIS}{name}": value for name, value in axes.items() if name not in STAGE1_SETTINGS}


def fallback_reasons(effective: Effective) -> str:
    """Settings that were not applied as requested, and why: one clause each."""
    return "; ".join(
        f"{one.name}: {one.requested} → {one.effective} ({one.reason})"
        for one in effective.values()
        if one.requested != one.effective and one.reason
    )


def global_batch(spec: RunSpec, effective: Effective, world_size: int) -> float | int | None:
    """Samples of all ranks in one step, from the micro batch, else from the plan's samples_per_step; None where neither is known."""
    requested = spec.settings.get("micro_batch", spec.axes.get("micro_batch"))
    per_rank = effective["micro_batch"].effective if "micro_batch" in effective else requested
    if isinstance(per_rank, bool) or not isinstance(per_rank, (int, float)):
        per_rank = spec.workload.samples_per_step
    return per_rank * world_size if per_rank is not None else None


def log_every(spec: RunSpec) -> Scalar:
    """Steps between two lines of the workload, where it has such a setting; else between two timing points."""
    return spec.settings.get("log_every", spec.timing.log_every)


def _requested_and_effective(settings: Mapping[str, Scalar], effective: Effective) -> dict[str, Scalar]:
    cells: dict[str, Scalar] = {}
    for column, names in SETTING_NAMES.items():
        name = next((name for name in names if name in effective or settings.get(name) is not None), "")
        # A requested value is not effective unless the workload reports it.
        reported = effective.get(name)
        requested, done = (reported.requested, reported.effective) if reported else (settings.get(name), None)
        if column.endswith("_enabled"):
            cells[column] = done if done is not None else requested
        else:
            cells[f"{column}_req"], cells[f"{column}_effective"] = requested, done
    return cells


def found_cells(measure: RunMeasure) -> dict[str, Scalar]:
    """Findings besides the speed: FOUND_COLUMNS, as far as known."""
    cells: dict[str, Scalar] = {
        "uneven_causes": "+".join(cause.kind for cause in measure.jitter_causes) or None,
        "debug_settings": "+".join(f"{setting.name}={setting.value}" for setting in measure.debug) or None,
        "slow_signs": "+".join(sign.id for sign in measure.slow_signs) or None,
    }
    if slow := measure.slow_steps:
        cells |= {"slow_steps": slow.count, "slow_steps_time_share": slow.time_share}
    if last := measure.last_steps:
        cells |= {"last50_n": last.n, "last50_mean_ms": last.mean_ms, "last50_stdev_ms": last.stdev_ms, "last50_per_sec": last.per_s}
    if straggler := measure.straggler:
        cells |= {
            "straggler": straggler.verdict.value,
            "straggler_rank": straggler.rank,
            "straggler_score": straggler.score,
            "straggler_phase": straggler.phase or None,
            "straggler_held_up_ms": straggler.held_up_ms,
            "straggler_n": straggler.n,
        }
    for kind in ("host", "gpu"):
        if trend := steepest([trend for trend in measure.memory if trend.kind == kind]):
            cells |= {
                f"{kind}_memory": trend.verdict.value,
                f"{kind}_slope_mib_per_min": trend.slope_mib_per_min,
                f"{kind}_slope_low": trend.slope_low,
                f"{kind}_slope_high": trend.slope_high,
                f"{kind}_mib_per_1000_steps": trend.mib_per_1000_steps,
                f"{kind}_hours_left": trend.hours_left,
            }
    return cells


def steepest(trends: list[MemoryTrend]) -> MemoryTrend | None:
    """A leak first, else the trend that grows fastest; None without trends."""
    return max(trends, key=lambda trend: (trend.verdict is MemoryVerdict.LEAK, trend.slope_mib_per_min or 0.0), default=None)


def run_cells(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Scalar]:
    """All known cells of the attempt."""
    effective, world_size = (measure.effective, measure.world_size) if measure else ({}, None)
    config = config_cells(attempt.spec, attempt.provenance, effective, world_size, attempt.telemetry)
    if measure and not measure.ranks_known:
        config |= {"world_size": None, "global_batch": None}
    cells = {**config, **axis_cells(attempt.spec.axes), **_identity(attempt)}
    return cells | measure.stage1 | _timing(measure) | measure.telemetry | found_cells(measure) if measure else cells


def train_log(attempt: Attempt) -> str | None:
    """The attempt's train.log; None where the workload wrote none."""
    path = AttemptPaths(Path(attempt.folder)).train_log
    return str(path) if path.is_file() else None


def _identity(attempt: Attempt) -> dict[str, Scalar]:
    spec, paths, outcome = attempt.spec, AttemptPaths(Path(attempt.folder)), attempt.outcome
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
        "duration_sec": outcome.duration_s if outcome else None,
        "resumed_from": outcome.resumed_from if outcome else None,
        "resumed_at": outcome.resumed_at if outcome else None,
        "lost_steps": outcome.lost_steps if outcome else None,
        "downtime_sec": outcome.downtime_s if outcome else None,
    }


def _timing(measure: RunMeasure) -> dict[str, Scalar]:
    cells: dict[str, Scalar] = {
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
        **{f"startup_{part}_sec": value for part, value in measure.startup.items()},
    }
    if window := measure.window:
        cells |= {
            "window_first_step": window.first_step,
            "window_last_step": window.last_step,
            "window_n": window.n,
            "warmup_steps": window.warmup_steps,
            "excluded_steps": window.excluded_steps,
            "steady": window.steady,
        }
    if quality := measure.eta_quality:
        cells |= {
            "eta_error_median_sec": quality.median_error_s,
            "eta_error_p90_sec": quality.p90_error_s,
            "eta_error_median_fraction": quality.median_fraction,
            "eta_error_p90_fraction": quality.p90_fraction,
        }
    return cells
