"""A folder as the original stage-1 scripts leave it, written by hand after the spec: for the tests of everything that reads one.

In: runs with their attempts, and which oddities the folder is to have. Out: `run_manifest.tsv` with the 60 columns, and a folder for each
run with `launcher.log` (META block, CMD block, the launcher's lines), `train.log` (every attempt appended), `gpu_telemetry.csv` and
`host_telemetry.csv`; nothing of Seatrial's. Times of day are those of a machine eight hours ahead of UTC, as its clocks would write them.

    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128), sweep_run(0, 160), torn_line=True)
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

ZONE = timezone(timedelta(hours=8))
FIRST_START = datetime(2026, 2, 18, 17, 56, 20, tzinfo=ZONE)
BETWEEN_RUNS_S = 60.0
WORLD_SIZE = 2
PORT_BASE = 29650
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GPU_NAME = "NVIDIA GeForce RTX 4090"
GPU_UUIDS = ("GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-bbbb1111-1111-1111-1111-111111111111")
ELSEWHERE = "/code/outputs/bench_2x4090"
"""The folder on the machine that wrote it: the paths in the manifest and in META are those."""
TIMING_WINDOW = 100
SHUTDOWN_S = 5.0
SAMPLE_EVERY_S = 2.0
FIRST_LOSS, LAST_LOSS = 4.8672, 3.5
# Share of each phase in iter_ms.
PHASES = {"data_wait_ms": 0.02, "preprocess_ms": 0.08, "fwd_ms": 0.25, "bwd_ms": 0.35, "step_ms": 0.30}


@dataclass(frozen=True, kw_only=True)
class OriginalAttempt:
    """One start of one run."""

    status: str = "success"
    exit_code: int = 0
    max_steps: int = 300
    last_step: int | None = None
    """The last step whose lines were printed; None for max_steps, -1 for an attempt that never wrote to train.log."""
    log_every: int = 50
    iter_p50_ms: float = 400.0
    """Of the first timing window."""
    iter_p50_growth_ms: float = 0.0
    """By which every later window's p50 is larger."""
    iter_p90_over_p50: float = 1.1
    wall_iter_ms: float = 500.0
    """What a step takes by the stamps of the lines: more than iter_ms, which leaves the sync, logging and validation out."""
    startup_s: float = 30.0
    """Launch to the line of step 0."""
    duration_s: float | None = None
    """As in the row; None for what the stamps come to."""
    rank_spread_ms: float = 8.0
    """By how much the slowest rank's instant iter_ms is above the fastest, with TimingRank lines."""
    has_row: bool = True
    """False for an attempt that was interrupted: the driver then writes no row."""
    launcher_lines: tuple[str, ...] = ()
    """What the launcher printed at the end, a traceback for example."""


@dataclass(frozen=True, kw_only=True)
class OriginalRun:
    """One run folder, `<group>_r<repeat>`, and its rows."""

    group: str
    repeat: int = 1
    mode: str = "sweep"
    zero_stage: int = 0
    micro_batch: int = 128
    num_workers: int = 6
    prefetch_factor: int = 4
    deterministic: bool = False
    wall_clock_breakdown: bool = False
    validation_every: int = 1_000_000
    checkpoint_every: int = 1_000_000
    rank_scope: str = "rank0"
    attn_impl: str = "sdpa"
    commit: str = COMMIT
    world_size: int = WORLD_SIZE
    attempts: tuple[OriginalAttempt, ...] = (OriginalAttempt(),)
    train_log: bool = True
    launcher_log: bool = True
    gpu_telemetry: str = "rows"
    """`rows`, `header` (a header and nothing else), `absurd` (every fifth utilisation cannot be), or `none`."""
    host_telemetry: str = "driver"
    """`driver` (rss_kib), `header`, or `none`."""
    gpu_mem_growth_mib_per_min: float = 0.0
    rss_growth_mib_per_min: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.group}_r{self.repeat}"


def sweep_run(zero_stage: int = 0, micro_batch: int = 128, num_workers: int = 6, prefetch_factor: int = 4, **more: object) -> OriginalRun:
    """A run of a sweep, named as the driver names it."""
    group = f"sweep_z{zero_stage}_mb{micro_batch}_nw{num_workers}_pf{prefetch_factor}"
    run = OriginalRun(group=group, zero_stage=zero_stage, micro_batch=micro_batch, num_workers=num_workers, prefetch_factor=prefetch_factor)
    return replace(run, **more)  # type: ignore[arg-type]


def ab_run(group: str, repeat: int = 1, **more: object) -> OriginalRun:
    """A run of the A/B mode: `old_like` or `tuned`, with the settings the driver gives each."""
    old = group == "old_like"
    log_every, every = (1, 500) if old else (20, 5000)
    run = OriginalRun(
        group=group,
        repeat=repeat,
        mode="ab",
        zero_stage=1,
        num_workers=2,
        prefetch_factor=2,
        deterministic=old,
        wall_clock_breakdown=old,
        validation_every=every,
        checkpoint_every=every,
        attempts=(OriginalAttempt(log_every=log_every, max_steps=240, iter_p50_ms=480.0 if old else 400.0),),
    )
    return replace(run, **more)  # type: ignore[arg-type]


def epoch_s(when: datetime) -> int:
    """Seconds since the epoch, as the samplers write them."""
    return int(when.timestamp())


def last_step(attempt: OriginalAttempt) -> int:
    """The last step the attempt printed, -1 for none."""
    return attempt.max_steps if attempt.last_step is None else attempt.last_step


def logged_steps(attempt: OriginalAttempt) -> list[int]:
    """Steps with lines: 0 to the last one, every `log_every`."""
    return list(range(0, last_step(attempt) + 1, attempt.log_every))


def window_p50s_ms(attempt: OriginalAttempt) -> list[float]:
    """iter_ms p50 of every Timing line."""
    return [attempt.iter_p50_ms + at * attempt.iter_p50_growth_ms for at in range(len(logged_steps(attempt)))]


def duration_s(attempt: OriginalAttempt) -> float:
    """Launch to the launcher's end."""
    steps_s = max(last_step(attempt), 0) * attempt.wall_iter_ms / 1000
    return attempt.startup_s + steps_s + SHUTDOWN_S if attempt.duration_s is None else attempt.duration_s


Laid = list[tuple[OriginalRun, list[datetime]]]


def hms(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


GPU_HEADER = (
    "timestamp,epoch_sec,gpu_index,gpu_uuid,gpu_name,temp_c,util_gpu_pct,util_mem_pct,power_w,sm_clock_mhz,mem_clock_mhz,mem_used_mib,"
    "mem_total_mib"
)
HOST_HEADER = (
    "timestamp,epoch_sec,load1,load5,load15,cpu_user_pct,cpu_system_pct,cpu_idle_pct,mem_total_kib,mem_available_kib,mem_used_kib,"
    "swap_total_kib,swap_free_kib,rss_kib"
)
SAMPLER_HEADER = (
    "timestamp,epoch_sec,mem_total_kib,mem_available_kib,swap_total_kib,swap_free_kib,load1,load5,load15,train_proc_count,train_rss_kib,"
    "train_vsz_kib"
)
MEM_TOTAL_KIB = 263_852_032
RSS_KIB = 24_000_000


def _sample_times(start: datetime, attempt: OriginalAttempt) -> list[datetime]:
    count = int(duration_s(attempt) / SAMPLE_EVERY_S) + 1
    return [start + timedelta(seconds=at * SAMPLE_EVERY_S) for at in range(count)]


def gpu_lines(run: OriginalRun, start: datetime, attempt: OriginalAttempt) -> list[str]:
    """Header and rows; [] where no sampler ran."""
    if run.gpu_telemetry == "none":
        return []
    times = _sample_times(start, attempt) if run.gpu_telemetry != "header" else []
    return [GPU_HEADER, *(_gpu_row(run, start, when, at, gpu) for at, when in enumerate(times) for gpu in range(WORLD_SIZE))]


def _gpu_row(run: OriginalRun, start: datetime, when: datetime, at: int, gpu: int) -> str:
    util = 6553 if run.gpu_telemetry == "absurd" and at % 5 == 4 else 90 + at % 7
    mem_mib = 18_000 + run.gpu_mem_growth_mib_per_min * (when - start).total_seconds() / 60
    cells = [when.isoformat(timespec="seconds"), epoch_s(when), gpu, GPU_UUIDS[gpu], GPU_NAME, 61, util, 40, f"{380 + at % 5}.50", 2520]
    return ",".join(map(str, [*cells, 10501, round(mem_mib), 24564]))


def host_lines(run: OriginalRun, start: datetime, attempt: OriginalAttempt) -> list[str]:
    if run.host_telemetry == "none":
        return []
    times = _sample_times(start, attempt) if run.host_telemetry != "header" else []
    return [HOST_HEADER, *(_host_row(run, start, when, is_first=at == 0) for at, when in enumerate(times))]


def _host_row(run: OriginalRun, start: datetime, when: datetime, *, is_first: bool) -> str:
    # Shares are differences, so the first row has none.
    shares = ["", "", ""] if is_first else ["42.10", "6.30", "51.60"]
    used_kib = 60_000_000
    cells = [when.isoformat(timespec="seconds"), epoch_s(when), "12.50", "11.90", "10.10", *shares, MEM_TOTAL_KIB, MEM_TOTAL_KIB - used_kib]
    return ",".join(map(str, [*cells, used_kib, 0, 0, _rss_kib(run, (when - start).total_seconds())]))


def _rss_kib(run: OriginalRun, passed_s: float) -> int:
    return RSS_KIB + round(run.rss_growth_mib_per_min * 1024 * passed_s / 60)


def sampler_lines(laid: Laid, interval_s: float = 5.0) -> list[str]:
    """The hand-made sampler, which runs from before the first run until after the last."""
    spans = [(run, start, duration_s(attempt)) for run, starts in laid for start, attempt in zip(starts, run.attempts, strict=True)]
    first = min(start for _, start, _ in spans) - timedelta(seconds=20)
    last = max(start + timedelta(seconds=length) for _, start, length in spans) + timedelta(seconds=20)
    count = int((last - first).total_seconds() / interval_s) + 1
    return [SAMPLER_HEADER, *(_sampler_row(spans, first + timedelta(seconds=at * interval_s)) for at in range(count))]


def _sampler_row(spans: Sequence[tuple[OriginalRun, datetime, float]], when: datetime) -> str:
    running = next((span for span in spans if span[1] <= when <= span[1] + timedelta(seconds=span[2])), None)
    rss_kib = _rss_kib(running[0], (when - running[1]).total_seconds()) if running else 0
    processes = 14 if running else 0
    cells = [when.isoformat(timespec="seconds"), epoch_s(when), MEM_TOTAL_KIB, MEM_TOTAL_KIB - 60_000_000, 0, 0, "12.50", "11.90", "10.10"]
    return ",".join(map(str, [*cells, processes, rss_kib, rss_kib * 3]))


def split_names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Copied from the original, not imported: a test against the code's own list could not fail.
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
    ratio = attempt.iter_p90_over_p50
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
        "step_p90_over_p50": f"{ratio:.6f}",
        "unstable_run_flag": true_or_false(ratio > 2.0),
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
        "gpu_telemetry_interval_sec": f"{SAMPLE_EVERY_S:g}",
        "gpu_telemetry_csv": f"{folder}/gpu_telemetry.csv",
        "enable_host_telemetry": true_or_false(run.host_telemetry != "none"),
        "host_telemetry_interval_sec": f"{SAMPLE_EVERY_S:g}",
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
        loss = FIRST_LOSS + (LAST_LOSS - FIRST_LOSS) * step / max(attempt.max_steps, 1)
        yield _stamped(when, f"Step {step}: Loss {loss:.4f}")
        yield _stamped(when, f"Timing(window={TIMING_WINDOW}): {_timing_text(attempt, window_p50s_ms(attempt)[at])}")
        if step >= 10:
            remain = attempt.max_steps - step
            eta_s = remain * attempt.wall_iter_ms / 1000
            estimate = f"remain_steps={remain} eta_sec={eta_s:.1f} eta_hms={hms(eta_s)} mode=rank0"
            yield _stamped(
                when, f"TimingETA step={step} {estimate} basis_iter_ms={attempt.wall_iter_ms:.2f} samples={min(step, TIMING_WINDOW)}"
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
    p50s_ms = {name: p50_ms * share for name, share in {**PHASES, "iter_ms": 1.0}.items()}
    return " | ".join(f"{name}:p50={p50:.2f} p90={p50 * attempt.iter_p90_over_p50:.2f}" for name, p50 in p50s_ms.items())


def _stamped(when: datetime, text: str) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} - train - INFO - {text}"


def write_original_campaign(
    root: Path,
    *runs: OriginalRun,
    columns: Sequence[str] = MANIFEST_COLUMNS,
    torn_line: bool = False,
    crlf: bool = False,
    bom: bool = False,
    manifest: bool = True,
    backup_rows: Sequence[OriginalRun] = (),
    own_tables: bool = False,
    tail_points: int = 20,
    baseline_group: str = "old_like",
    root_host_telemetry: bool = False,
    elsewhere: str = ELSEWHERE,
) -> Path:
    """Write the folder and give it back.

    `torn_line` ends the manifest in the middle of a row. `backup_rows` are runs whose rows (not folders) are in a manifest that the driver
    set aside as `run_manifest.tsv.bak_<time>`, with OLD_COLUMNS. `own_tables` adds the summariser's own summary.json, summary.md and
    per_run_metrics.csv. `root_host_telemetry` adds the separate sampler's file at the root. `elsewhere` is the folder in the paths of
    the files; "" for the real one.
    """
    root.mkdir(parents=True, exist_ok=True)
    laid = _laid_out(runs or (sweep_run(0, 128), sweep_run(0, 160)))
    stated = elsewhere or str(root)
    if manifest:
        _write_manifest(root / "run_manifest.tsv", laid, columns, stated, torn_line=torn_line, crlf=crlf, bom=bom)
    if backup_rows:
        _write_manifest(root / "run_manifest.tsv.bak_20260217_120000", _laid_out(backup_rows), OLD_COLUMNS, stated)
    for run, starts in laid:
        _write_run(root, run, starts, stated, crlf=crlf, bom=bom)
    if root_host_telemetry:
        _write(root / "host_telemetry.csv", sampler_lines(laid), crlf=crlf, bom=bom)
    if own_tables:
        _write_own_tables(root, laid, stated, tail_points, baseline_group)
    return root


def _laid_out(runs: Sequence[OriginalRun]) -> Laid:
    """Every attempt's start: first attempts one after another, then the second ones, as a driver that is started again makes them."""
    starts: list[list[datetime]] = [[] for _ in runs]
    now = FIRST_START
    for number in range(max(len(run.attempts) for run in runs)):
        for run, own in zip(runs, starts, strict=True):
            if number < len(run.attempts):
                own.append(now)
                now += timedelta(seconds=duration_s(run.attempts[number]) + BETWEEN_RUNS_S)
    return list(zip(runs, starts, strict=True))


def _write(path: Path, lines: Sequence[str], *, crlf: bool = False, bom: bool = False, torn: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    end = "\r\n" if crlf else "\n"
    text = ("\ufeff" if bom else "") + "".join(f"{line}{end}" for line in lines) + torn
    path.write_bytes(text.encode())


def _write_manifest(
    path: Path, laid: Laid, columns: Sequence[str], stated: str, *, torn_line: bool = False, crlf: bool = False, bom: bool = False
) -> None:
    rows = sorted(
        (start, manifest_row(run, attempt, stated))
        for run, starts in laid
        for start, attempt in zip(starts, run.attempts, strict=True)
        if attempt.has_row
    )
    lines = ["\t".join(columns), *("\t".join(dict(row).get(name, "") for name in columns) for _, row in rows)]
    torn = lines[-1][: len(lines[-1]) // 3] if torn_line else ""
    _write(path, lines, crlf=crlf, bom=bom, torn=torn)


def _write_run(root: Path, run: OriginalRun, starts: Sequence[datetime], stated: str, *, crlf: bool, bom: bool) -> None:
    folder = root / run.name
    folder.mkdir(exist_ok=True)
    started = list(zip(starts, run.attempts, strict=True))
    if run.launcher_log:
        start, attempt = started[-1]
        _write(folder / "launcher.log", launcher_lines(run, attempt, start, stated), crlf=crlf, bom=bom)
    lines = [line for start, attempt in started for line in train_lines(run, attempt, start)]
    if run.train_log and lines:
        _write(folder / "train.log", lines, crlf=crlf, bom=bom)
    start, attempt = started[-1]
    for name, rows in (("gpu_telemetry.csv", gpu_lines(run, start, attempt)), ("host_telemetry.csv", host_lines(run, start, attempt))):
        if rows:
            _write(folder / name, rows, crlf=crlf, bom=bom)


def _write_own_tables(root: Path, laid: Laid, stated: str, tail_points: int, baseline_group: str) -> None:
    """What the original summariser left, as far as anybody reads it back."""
    summary: Mapping[str, object] = {
        "generated_at": "2026-02-18T20:00:00",
        "output_root": stated,
        "tail_points": tail_points,
        "baseline_group": baseline_group,
        "groups": [],
        "runs": [],
        "skipped_runs": [],
    }
    (root / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    (root / "summary.md").write_text("# Stage1 Bench Summary\n", encoding="utf-8")
    rows = [f"{run.mode},{run.group},{run.repeat},{stated}/{run.name}" for run, _ in laid]
    _write(root / "per_run_metrics.csv", ["mode,group,repeat,run_dir", *rows])
    _write(root / "driver.log", ["[INFO] Output root: " + stated])
