"""Runs and attempts of the original scripts as a test asks for them, and the times that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

ZONE = timezone(timedelta(hours=8))
FIRST_START = datetime(2026, 2, 18, 17, 56, 20, tzinfo=ZONE)
BETWEEN_RUNS_S = 60.0
WORLD_SIZE = 2
PORT_BASE = 29650
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GPU_NAME = "NVIDIA GeForce RTX 4090"
GPU_UUIDS = ("GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-bbbb1111-1111-1111-1111-111111111111")
ELSEWHERE = "/code/outputs/bench_2x4090"
"""Where the folder lay on the machine that wrote it: the paths in the manifest and in META are those."""
TIMING_WINDOW = 100
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
    step_p90_over_p50: float | None = None
    """Where the phase `step` has a tail of its own; None for that of the iteration."""
    wall_iter_ms: float = 500.0
    """What a step takes by the stamps of the lines: more than iter_ms, which leaves the sync, logging and validation out."""
    startup_s: float = 30.0
    """Launch to the line of step 0."""
    shutdown_s: float = 5.0
    duration_s: float | None = None
    """As in the row; None for what the stamps come to."""
    last_loss: float = 3.5
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
    launcher_appended: bool = False
    """Whether launcher.log keeps the blocks of earlier attempts; else the last attempt's stands alone."""
    gpu_telemetry: str = "rows"
    """`rows`, `header` (a header and nothing else), `absurd` (every fifth utilisation cannot be), or `none`."""
    host_telemetry: str = "driver"
    """`driver` (rss_kib), `header`, or `none`."""
    gpu_interval_s: float = 2.0
    host_interval_s: float = 2.0
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
        attempts=(OriginalAttempt(log_every=log_every, max_steps=60, iter_p50_ms=480.0 if old else 400.0),),
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
    return attempt.startup_s + steps_s + attempt.shutdown_s if attempt.duration_s is None else attempt.duration_s


Laid = list[tuple[OriginalRun, list[datetime]]]


def hms(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
