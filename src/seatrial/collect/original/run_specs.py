"""What an attempt was asked to do and what came of its settings, as records of ours.

In: an attempt of the original scripts. Out: its `RunSpec` (settings under the seeds' names, so that the seeds' columns are filled), what
the settings came to on the machine, and the `Provenance`. Settings come from the row, META and the command; names are never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seatrial.collect.logs.seed_lines import RANK
from seatrial.collect.original.cells import number, whole
from seatrial.collect.original.launcher_log import SCRIPT, Block
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.machine.fingerprint import fingerprint, short_hash
from seatrial.machine.secrets import mask_words
from seatrial.records.columns import SEED_SETTINGS
from seatrial.records.command import Provenance
from seatrial.records.eta import OFF, RANK0
from seatrial.records.original_names import SWEEP_LABELS
from seatrial.records.run_spec import LauncherSpec, PlaceSpec, RunSpec, Scalar, TelemetrySpec, TimingSpec, WorkloadSpec

PLAN = "original-stage1-scripts"
SWEEP, AB = "sweep", "ab"
VARIANT = "variant"
RESOLVED = ("precision_mode", "model_load_dtype", "attn_impl", "speech_attn_impl", "text_attn_impl")
"""Settings of which the driver tells what was asked for and what was used."""
SWITCHES = ("torch_compile_enabled", "tf32_enabled")
"""Those of which it tells only what was used."""
BESIDE = (
    "torch_compile_mode",
    "torch_compile_dynamic",
    "matmul_precision",
    "enable_length_fixed_slice",
    "fixed_slice_seconds",
    "enable_length_bucket",
    "length_bucket_boundaries_sec",
)
"""Settings that only META tells."""
TRUTHS = {"true": True, "false": False}
BINARY = ("deterministic", "cudnn_benchmark", "wall_clock_breakdown", "dataset_use_trim", "dataset_offline_trimmed", *SWITCHES)
"""Columns in which 0 and 1 are false and true."""
AUTO = "auto"
REPLACED = "replaced by the original driver"
MACHINE = ("gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_power_limit_w", "pcie_gen", "driver_version", "git_branch", "git_dirty")

Effective = dict[str, tuple[Scalar, Scalar, str]]


def spec_of(attempt: OriginalAttempt, group: str, repeat: int, tail_points: int) -> RunSpec:
    """The spec, its identity still missing (`identified`)."""
    cells, block = attempt.cells, attempt.block or Block(meta={})
    mode = cells.get("mode", SWEEP)
    micro_batch = whole(cells.get("micro_batch"))
    return RunSpec(
        run=f"{group}_r{repeat}",
        group=group,
        repeat=repeat,
        plan=PLAN,
        mode=mode,
        workload=WorkloadSpec(
            name=SCRIPT,
            script=SCRIPT,
            args=tuple(mask_words(block.script_args)),
            reads="seed",
            samples_per_step=None if micro_batch is None else float(micro_batch),
        ),
        settings=settings_of(cells),
        axes={VARIANT: group} if mode == AB else {name: typed(name, cells[name]) for name in SWEEP_LABELS if name in cells},
        labels={} if mode == AB else {name: label for name, label in SWEEP_LABELS.items() if name in cells},
        launcher=LauncherSpec(kind="deepspeed", args=tuple(mask_words(block.launcher_args))),
        place=PlaceSpec(kind="local", ranks=world_size(attempt) or 1, devices=block.devices),
        cwd="",
        steps=steps_of(attempt),
        rank_scope=cells.get("timing_rank_scope", RANK0),
        timing=_timing(cells, tail_points),
        telemetry=TelemetrySpec(
            gpu_s=number(cells.get("gpu_telemetry_interval_sec")), host_s=number(cells.get("host_telemetry_interval_sec"))
        ),
    )


def _timing(cells: Mapping[str, str], tail_points: int) -> TimingSpec:
    spec = TimingSpec(
        tail_points=tail_points,
        sync=typed("enable_cuda_sync_timing", cells.get("enable_cuda_sync_timing", "")) is True,
        log_every=max(whole(cells.get("log_every_steps")) or TimingSpec().log_every, 1),
        eta_mode=cells.get("last_eta_mode") or cells.get("eta_distributed_mode", RANK0),
        eta_min_samples=whole(cells.get("eta_min_samples")) or TimingSpec().eta_min_samples,
    )
    if typed("enable_eta_logging", cells.get("enable_eta_logging", "true")) is False:
        return replace(spec, eta_mode=OFF)
    # The driver's own guess, where the trainer had said nothing yet, is no mode of the trainer's.
    return spec if spec.eta_mode in (RANK0, "global_max") else replace(spec, eta_mode=RANK0)


def settings_of(cells: Mapping[str, str]) -> dict[str, Scalar]:
    """Every setting that is told, under the name by which the seeds' columns are filled."""
    told = {name: cells.get(name) for name in (*sorted(SEED_SETTINGS), *BESIDE)}
    told |= {name: cells.get(f"{name}_req") for name in RESOLVED}
    told["log_every"] = cells.get("log_every_steps")
    return {name: typed(name, text) for name, text in told.items() if text is not None}


def typed(name: str, text: str) -> Scalar:
    """The value that a cell's text stands for."""
    if text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    if name in BINARY and text in ("0", "1"):
        return text == "1"
    value = whole(text) if "." not in text else number(text)
    return text if value is None else value


def effective_of(cells: Mapping[str, str]) -> Effective:
    """What the settings came to on the machine: asked for, used, and why they differ."""
    found: Effective = {}
    for name in RESOLVED:
        used, asked = cells.get(f"{name}_effective"), cells.get(f"{name}_req")
        if used is not None:
            # What `auto` comes to takes the place of nothing.
            found[name] = (asked, used, REPLACED if asked not in (None, AUTO, used) else "")
    found |= {name: (None, typed(name, cells[name]), "") for name in SWITCHES if name in cells}
    return found


def provenance_of(cells: Mapping[str, str], context: Any) -> Provenance:
    """The machine and the code, as the row tells them and, where it is there, the trainer's run_context.json."""
    runtime = context.get("runtime") if isinstance(context, dict) else None
    told = {name: str(value) for name, value in runtime.items() if value} if isinstance(runtime, dict) else {}
    packages = {name: told[f"{name}_version"] for name in ("torch", "deepspeed") if f"{name}_version" in told}
    machine = {name: cells.get(name, "") for name in MACHINE}
    found = Provenance(
        host=told.get("hostname", ""),
        platform=told.get("platform", ""),
        python=told.get("python", ""),
        packages=packages,
        cuda=told.get("cuda_version", ""),
        git_commit_hash=cells.get("git_commit_hash") or cells.get("git_commit_short", ""),
    )
    found = replace(found, **machine)  # type: ignore[arg-type]
    return replace(found, fingerprint=fingerprint(found))


def world_size(attempt: OriginalAttempt) -> int | None:
    """Ranks of the attempt; the GPUs that the command names, or the ranks that print, where the row does not know; None for neither."""
    told = whole(attempt.cells.get("world_size")) or 0
    named = len(attempt.block.devices) if attempt.block else 0
    return told or named or len({match[2] for line in attempt.trainer_lines.lines if (match := RANK.search(line))}) or None


def steps_of(attempt: OriginalAttempt) -> int | None:
    """Steps it was to take: 0 to MAX_STEPS, both counted; None where neither the command nor an estimate nor a good end tells."""
    asked, printed = whole(attempt.cells.get("max_steps")), attempt.trainer_lines
    if asked is None:
        asked = printed.max_steps
    if asked is None and attempt.row is not None and attempt.row.is_success:
        asked = printed.last_step
    return None if asked is None or asked < 0 else asked + 1


def identified(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The same specs with hash and group key. Of one group only the settings that all its attempts tell part two of them: a row of an
    older version knows fewer."""
    together: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in specs:
        together.setdefault((spec.mode, spec.group), []).append(spec)
    return [_identified(spec, together[spec.mode, spec.group]) for spec in specs]


def _identified(spec: RunSpec, alike: Sequence[RunSpec]) -> RunSpec:
    steps = {one.steps for one in alike if one.steps is not None}
    filled = spec if spec.steps is not None or len(steps) != 1 else replace(spec, steps=next(iter(steps)))
    common = [name for name in spec.settings if all(name in one.settings for one in alike)]
    key = [spec.mode, spec.group, {name: spec.settings[name] for name in common}, spec.place.ranks, filled.steps]
    return replace(filled, group_key=short_hash(key), hash=short_hash([*key, spec.repeat]))
