"""The seeds' configuration columns of one attempt: what it was asked to do, what it did, on what machine.

In: the run's spec, the effective settings its workload reported, and the provenance. Out: cells by column name, for the manifest,
the per-run table and the group summary alike. A setting the workload does not have gives no cell.
"""

from __future__ import annotations

from collections.abc import Mapping

from seatrial.records.columns import AXIS, SEED_SETTINGS
from seatrial.records.command import Provenance
from seatrial.records.measure import Cell
from seatrial.records.run_spec import RunSpec, Scalar
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount

Effective = Mapping[str, tuple[Scalar, Scalar, str]]

SHORT_COMMIT = 12
# Seeds' word → names under which workloads carry the setting.
SETTING_NAMES = {
    "precision_mode": ("precision_mode", "precision"),
    "model_load_dtype": ("model_load_dtype", "load_dtype"),
    "attn_impl": ("attn_impl", "attention"),
    "speech_attn_impl": ("speech_attn_impl", "speech_attention"),
    "text_attn_impl": ("text_attn_impl", "text_attention"),
    "torch_compile_enabled": ("torch_compile_enabled", "torch_compile", "enable_torch_compile", "compile"),
    "tf32_enabled": ("tf32_enabled", "tf32", "enable_tf32"),
}
# Fields of the seeds' tables that the machine answers.
MACHINE_COLUMNS = ("gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_power_limit_w", "pcie_gen", "driver_version", "git_commit_hash")
OF_PROVENANCE = (*MACHINE_COLUMNS, "git_branch", "git_dirty")
IN_ORDER = tuple(sorted(SEED_SETTINGS))


def config_cells(
    spec: RunSpec,
    provenance: Provenance,
    effective: Effective,
    world_size: int | None = None,
    telemetry: TelemetryAccount | None = None,
) -> dict[str, Cell]:
    """Every configuration column of the seeds that applies to this run."""
    ranks = world_size or spec.place.ranks
    asked = {**spec.axes, **spec.settings}
    cells: dict[str, Cell] = {name: effective[name][1] if name in effective else asked.get(name) for name in IN_ORDER}
    cells.update(_requested_and_done(asked, effective))
    cells.update({name: getattr(provenance, name) or None for name in OF_PROVENANCE})
    cells["git_commit_short"] = provenance.git_commit_hash[:SHORT_COMMIT] or None
    cells["world_size"] = ranks
    cells["global_batch"] = global_batch(spec, effective, ranks)
    cells["log_every_steps"] = log_every(spec)
    cells["enable_cuda_sync_timing"] = spec.timing.sync
    cells["timing_rank_scope"] = spec.rank_scope
    return {**cells, **telemetry_cells(telemetry)}


def telemetry_cells(account: TelemetryAccount | None) -> dict[str, Cell]:
    """Rows of telemetry, and the seeds' flags, true where there are none; whether that is expected stands in telemetry_note."""
    cells: dict[str, Cell] = {}
    for kind in ("gpu", "host"):
        sampler: SamplerAccount | None = getattr(account, kind, None)
        cells[f"{kind}_telemetry_rows"] = sampler.rows if sampler else 0
        cells[f"{kind}_telemetry_empty_flag"] = sampler.empty if sampler else True
    return cells


def axis_cells(axes: Mapping[str, Cell]) -> dict[str, Cell]:
    """Axes that no seed column holds, as `axis_NAME`."""
    return {f"{AXIS}{name}": value for name, value in axes.items() if name not in SEED_SETTINGS}


def fallback_reasons(effective: Effective) -> str:
    """What was asked for and not done, and why: one clause for each setting."""
    return "; ".join(
        f"{name}: {requested} → {done} ({reason})" for name, (requested, done, reason) in effective.items() if requested != done and reason
    )


def global_batch(spec: RunSpec, effective: Effective, world_size: int) -> float | int | None:
    """Samples of all ranks in one step, by the micro batch or else by the samples the plan gives; None where neither is known."""
    per_rank = _done("micro_batch", spec, effective)
    if isinstance(per_rank, bool) or not isinstance(per_rank, (int, float)):
        per_rank = spec.workload.samples_per_step
    return per_rank * world_size if per_rank is not None else None


def log_every(spec: RunSpec) -> Scalar:
    """Steps between two lines of the workload, where it has such a setting; else between two timing points."""
    return spec.settings.get("log_every", spec.timing.log_every)


def _done(name: str, spec: RunSpec, effective: Effective) -> Scalar:
    return effective[name][1] if name in effective else _asked(name, spec)


def _asked(name: str, spec: RunSpec) -> Scalar:
    return spec.settings.get(name, spec.axes.get(name))


def _requested_and_done(asked: Mapping[str, Scalar], effective: Effective) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for word, names in SETTING_NAMES.items():
        requested, done = None, None
        for name in names:
            if name in effective:
                requested, done, _ = effective[name]
                break
            if (requested := asked.get(name)) is not None:
                break
        if word.endswith("_enabled"):
            cells[word] = done if done is not None else requested
        else:
            # What was asked for is not what was done, unless the workload says so.
            cells[f"{word}_req"], cells[f"{word}_effective"] = requested, done
    return cells
