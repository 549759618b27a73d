"""launcher.log and train.log of the original scripts: the lines of an attempt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.original_campaign.manifest import run_settings, split_names, true_or_false
from tests.original_campaign.runs import (
    PHASES,
    PORT_BASE,
    TIMING_WINDOW,
    WORLD_SIZE,
    OriginalAttempt,
    OriginalRun,
    hms,
    logged_steps,
    window_p50s_ms,
)

META_KEYS = split_names(
    """
    timestamp mode group repeat port zero_stage micro_batch world_size global_batch precision_mode_req precision_mode_effective
    model_load_dtype_req model_load_dtype_effective attn_impl_req attn_impl_effective speech_attn_impl_req speech_attn_impl_effective
    text_attn_impl_req text_attn_impl_effective torch_compile_enabled torch_compile_mode torch_compile_dynamic tf32_enabled
    matmul_precision gpu_name gpu_cc gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_hash git_commit_short git_branch
    git_dirty enable_gpu_telemetry gpu_telemetry_interval_sec gpu_telemetry_csv enable_host_telemetry host_telemetry_interval_sec
    host_telemetry_csv enable_eta_logging eta_distributed_mode eta_min_samples stall_alert_ratio enable_length_fixed_slice
    fixed_slice_seconds enable_length_bucket length_bucket_boundaries_sec run_dir
    """
)


def launcher_lines(run: OriginalRun, attempt: OriginalAttempt, start: datetime, stated: str) -> list[str]:
    folder = f"{stated}/{run.name}"
    meta = {
        **run_settings(run, attempt),
        "timestamp": start.isoformat(timespec="seconds"),
        "port": str(PORT_BASE),
        "enable_gpu_telemetry": true_or_false(run.gpu_telemetry != "none"),
        "gpu_telemetry_interval_sec": f"{run.gpu_interval_s:g}",
        "gpu_telemetry_csv": f"{folder}/gpu_telemetry.csv",
        "enable_host_telemetry": true_or_false(run.host_telemetry != "none"),
        "host_telemetry_interval_sec": f"{run.host_interval_s:g}",
        "host_telemetry_csv": f"{folder}/host_telemetry.csv",
        "enable_eta_logging": "true",
        "eta_distributed_mode": "rank0",
        "eta_min_samples": "10",
        "stall_alert_ratio": "2.0",
        "enable_length_fixed_slice": "false",
        "enable_length_bucket": "false",
        "length_bucket_boundaries_sec": "1.0,1.5,2.0,2.5,3.0",
        "run_dir": folder,
    }
    stamp = (start + timedelta(seconds=4)).strftime("%Y-%m-%d %H:%M:%S,123")
    return [
        "=== META ===",
        *(f"{name}={meta.get(name, '')}" for name in META_KEYS),
        "=== CMD ===",
        shlex.join(_command(run, attempt, folder)),
        "",
        f"[{stamp}] [INFO] [runner.py:605:main] cmd = /opt/conda/bin/python -u -m deepspeed.launcher.launch train.py",
        *attempt.launcher_lines,
    ]


def _command(run: OriginalRun, attempt: OriginalAttempt, folder: str) -> list[str]:
    ids = ",".join(map(str, range(run.world_size or WORLD_SIZE)))
    return [
        *("deepspeed", "--include", f"localhost:{ids}", "--master_port", str(PORT_BASE), "train.py"),
        *("+experiment=limit_longest_1-3_stage1_bf16", f"experiment_output_dir={folder}", f"hydra.run.dir={folder}"),
        f"++train.max_step_iterations={attempt.max_steps}",
        f"++train.log_every_steps={attempt.log_every}",
        f"++train.timing_rank_scope={run.rank_scope}",
        f"++train.data.num_workers={run.num_workers}",
        f"++train.data.prefetch_factor={run.prefetch_factor}",
        "++dataset.root_dir=data/LibriSpeech/LibriSpeech_16k_trim",
        f"deepspeed_config_yaml.train_micro_batch_size_per_gpu={run.micro_batch}",
        f"deepspeed_config_yaml.zero_optimization.stage={run.zero_stage}",
    ]


def train_lines(run: OriginalRun, attempt: OriginalAttempt, start: datetime) -> Iterator[str]:
    """What rank 0 appends to train.log in one attempt."""
    steps = logged_steps(attempt)
    if not steps:
        return
    yield _stamped(start + timedelta(seconds=attempt.startup_s / 2), "Training options: precision bf16, zero stage as configured")
    for at, step in enumerate(steps):
        when = start + timedelta(seconds=attempt.startup_s + step * attempt.wall_iter_ms / 1000)
        loss = 4.8672 + (attempt.last_loss - 4.8672) * step / max(attempt.max_steps, 1)
        yield _stamped(when, f"Step {step}: Loss {loss:.4f}")
        yield _stamped(when, f"Timing(window={TIMING_WINDOW}): {_timing_text(attempt, window_p50s_ms(attempt)[at])}")
        if step >= 10:
            remain = attempt.max_steps - step
            eta_s = remain * attempt.wall_iter_ms / 1000
            told = f"remain_steps={remain} eta_sec={eta_s:.1f} eta_hms={hms(eta_s)} mode=rank0"
            yield _stamped(
                when, f"TimingETA step={step} {told} basis_iter_ms={attempt.wall_iter_ms:.2f} samples={min(step, TIMING_WINDOW)}"
            )
        if run.rank_scope == "all":
            yield from (_stamped(when, line) for line in _rank_lines(run, attempt, step, loss))


def _rank_lines(run: OriginalRun, attempt: OriginalAttempt, step: int, loss: float) -> Iterator[str]:
    for rank in range(run.world_size):
        iter_ms = attempt.iter_p50_ms + attempt.rank_spread_ms * rank / max(run.world_size - 1, 1)
        # The whole of the spread is in the phase `step`, where a rank waits for the others.
        values = {name: attempt.iter_p50_ms * share for name, share in PHASES.items()}
        values["step_ms"] += iter_ms - attempt.iter_p50_ms
        phases = " ".join(f"{name.removesuffix('_ms')}={value:.2f}" for name, value in values.items())
        yield f"TimingRank step={step} rank={rank} loss={loss:.4f} {phases} iter={iter_ms:.2f}"


def _timing_text(attempt: OriginalAttempt, p50_ms: float) -> str:
    parts = []
    for name, share in {**PHASES, "iter_ms": 1.0}.items():
        own = attempt.step_p90_over_p50 if name == "step_ms" and attempt.step_p90_over_p50 else attempt.iter_p90_over_p50
        parts.append(f"{name}:p50={p50_ms * share:.2f} p90={p50_ms * share * own:.2f}")
    return " | ".join(parts)


def _stamped(when: datetime, text: str) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} - train - INFO - {text}"
