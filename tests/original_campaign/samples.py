"""gpu_telemetry.csv and host_telemetry.csv of the original samplers, the driver's and the hand-made one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.original_campaign.runs import GPU_NAME, GPU_UUIDS, WORLD_SIZE, Laid, OriginalAttempt, OriginalRun, duration_s, epoch_s

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


def _sample_times(start: datetime, attempt: OriginalAttempt, interval_s: float) -> list[datetime]:
    count = int(duration_s(attempt) / interval_s) + 1
    return [start + timedelta(seconds=at * interval_s) for at in range(count)]


def gpu_lines(run: OriginalRun, start: datetime, attempt: OriginalAttempt) -> list[str]:
    """Header and rows; [] where no sampler ran."""
    if run.gpu_telemetry == "none":
        return []
    times = _sample_times(start, attempt, run.gpu_interval_s) if run.gpu_telemetry != "header" else []
    return [GPU_HEADER, *(_gpu_row(run, start, when, at, gpu) for at, when in enumerate(times) for gpu in range(WORLD_SIZE))]


def _gpu_row(run: OriginalRun, start: datetime, when: datetime, at: int, gpu: int) -> str:
    util = 6553 if run.gpu_telemetry == "absurd" and at % 5 == 4 else 90 + at % 7
    mem_mib = 18_000 + run.gpu_mem_growth_mib_per_min * (when - start).total_seconds() / 60
    cells = [when.isoformat(timespec="seconds"), epoch_s(when), gpu, GPU_UUIDS[gpu], GPU_NAME, 61, util, 40, f"{380 + at % 5}.50", 2520]
    return ",".join(map(str, [*cells, 10501, round(mem_mib), 24564]))


def host_lines(run: OriginalRun, start: datetime, attempt: OriginalAttempt) -> list[str]:
    if run.host_telemetry == "none":
        return []
    times = _sample_times(start, attempt, run.host_interval_s) if run.host_telemetry != "header" else []
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
