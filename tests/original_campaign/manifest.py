"""run_manifest.tsv of the original driver: its columns, and the row of an attempt."""

from __future__ import annotations

from tests.original_campaign.runs import (
    FIRST_START,
    GPU_NAME,
    GPU_UUIDS,
    PORT_BASE,
    OriginalAttempt,
    OriginalRun,
    duration_s,
    hms,
    logged_steps,
    window_p50s_ms,
)
from tests.original_campaign.samples import gpu_lines, host_lines


def split_names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Written down again, after the original: taken from the code they could not tell when it strays.
MANIFEST_COLUMNS = split_names(
    """
    mode group repeat status exit_code duration_sec last_step last_iter_ms_p50 last_eta_step last_eta_remaining_steps last_eta_sec
    last_eta_hms last_eta_mode iter_p90_over_p50 data_p90_over_p50 step_p90_over_p50 unstable_run_flag port run_dir launcher_log
    train_log zero_stage micro_batch world_size global_batch deterministic cudnn_benchmark wall_clock_breakdown log_every_steps
    validation_every_steps checkpoint_every_steps num_workers prefetch_factor dataset_manifest_path dataset_use_trim
    dataset_offline_trimmed enable_cuda_sync_timing timing_rank_scope precision_mode_req precision_mode_effective
    model_load_dtype_effective attn_impl_effective speech_attn_impl_effective text_attn_impl_effective torch_compile_enabled
    tf32_enabled gpu_name gpu_cc gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_hash git_commit_short git_branch
    git_dirty gpu_telemetry_rows gpu_telemetry_empty_flag host_telemetry_rows host_telemetry_empty_flag
    """
)
OLD_COLUMNS = split_names(
    "group mode repeat exit_code status last_step duration_sec run_dir micro_batch zero_stage num_workers prefetch_factor world_size"
)
"""A header of an earlier version: fewer columns, in another order."""


def manifest_row(run: OriginalRun, attempt: OriginalAttempt, stated: str) -> list[tuple[str, str]]:
    return list({**run_settings(run, attempt), **_row_ending(run, attempt), **_row_paths(run, stated), **_row_telemetry(run)}.items())


def run_settings(run: OriginalRun, attempt: OriginalAttempt) -> dict[str, str]:
    """What the manifest's row and the META block both hold, and more that only one of them does."""
    return {
        "mode": run.mode,
        "group": run.group,
        "repeat": str(run.repeat),
        "zero_stage": str(run.zero_stage),
        "micro_batch": str(run.micro_batch),
        "world_size": str(run.world_size),
        "global_batch": str(run.micro_batch * run.world_size) if run.world_size else "NaN",
        "deterministic": true_or_false(run.deterministic),
        "cudnn_benchmark": "false",
        "wall_clock_breakdown": true_or_false(run.wall_clock_breakdown),
        "log_every_steps": str(attempt.log_every),
        "validation_every_steps": str(run.validation_every),
        "checkpoint_every_steps": str(run.checkpoint_every),
        "num_workers": str(run.num_workers),
        "prefetch_factor": str(run.prefetch_factor),
        "dataset_manifest_path": "data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv",
        "dataset_use_trim": "false",
        "dataset_offline_trimmed": "true",
        "enable_cuda_sync_timing": "false",
        "timing_rank_scope": run.rank_scope,
        "precision_mode_req": "auto",
        "precision_mode_effective": "bf16",
        "model_load_dtype_req": "auto",
        "model_load_dtype_effective": "bf16",
        **{
            f"{word}attn_impl_{end}": value
            for word in ("", "speech_", "text_")
            for end, value in (("req", "auto"), ("effective", run.attn_impl))
        },
        "torch_compile_enabled": "false",
        "torch_compile_mode": "max-autotune",
        "torch_compile_dynamic": "true",
        "tf32_enabled": "true",
        "matmul_precision": "high",
        "gpu_name": ";".join([GPU_NAME] * 2),
        "gpu_cc": "0:8.9;1:8.9",
        "gpu_uuid_list": ";".join(GPU_UUIDS),
        "gpu_power_limit_w": "450.00;450.00",
        "pcie_gen": "4;4",
        "driver_version": "550.54.15",
        "git_commit_hash": run.commit,
        "git_commit_short": run.commit[:12],
        "git_branch": "main",
        "git_dirty": "false",
    }


def true_or_false(value: bool) -> str:
    return "true" if value else "false"


def _row_ending(run: OriginalRun, attempt: OriginalAttempt) -> dict[str, str]:
    cells = {
        "status": attempt.status,
        "exit_code": str(attempt.exit_code),
        "duration_sec": str(round(duration_s(attempt))),
        "port": str(PORT_BASE),
        "unstable_run_flag": "false",
    }
    steps = logged_steps(attempt) if run.train_log else []
    if not steps:
        return cells
    ratio, step_ratio = attempt.iter_p90_over_p50, attempt.step_p90_over_p50 or attempt.iter_p90_over_p50
    remain = attempt.max_steps - steps[-1]
    eta_s = remain * attempt.wall_iter_ms / 1000
    return cells | {
        "last_step": str(steps[-1]),
        "last_iter_ms_p50": f"{window_p50s_ms(attempt)[-1]:.2f}",
        "last_eta_step": str(steps[-1]),
        "last_eta_remaining_steps": str(remain),
        "last_eta_sec": f"{eta_s:.1f}",
        "last_eta_hms": hms(eta_s),
        "last_eta_mode": "rank0",
        "iter_p90_over_p50": f"{ratio:.6f}",
        "data_p90_over_p50": f"{ratio:.6f}",
        "step_p90_over_p50": f"{step_ratio:.6f}",
        "unstable_run_flag": true_or_false(ratio > 2.0 or step_ratio > 3.0),
    }


def _row_paths(run: OriginalRun, stated: str) -> dict[str, str]:
    folder = f"{stated}/{run.name}"
    return {"run_dir": folder, "launcher_log": f"{folder}/launcher.log", "train_log": f"{folder}/train.log"}


def _row_telemetry(run: OriginalRun) -> dict[str, str]:
    gpu = len(gpu_lines(run, FIRST_START, run.attempts[-1])) - 1
    host = len(host_lines(run, FIRST_START, run.attempts[-1])) - 1
    return {
        "gpu_telemetry_rows": str(max(gpu, 0)),
        "gpu_telemetry_empty_flag": true_or_false(gpu < 1),
        "host_telemetry_rows": str(max(host, 0)),
        "host_telemetry_empty_flag": true_or_false(host < 1),
    }
