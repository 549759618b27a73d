"""What a run must do or tell so that a metric can be judged: a table of words."""

from __future__ import annotations

from seatrial.records.stability import LEAST_REPEATS

_NEEDS_STEPS = "let it report steps: use the probe, or name the log format it prints with `reads`"
_NEEDS_POINTS = "lower `timing.log_every` or run more steps, so that timing points are written"
_NEEDS_LOSSES = "report the loss in each step"
_NEEDS_GPU_SAMPLES = "leave `telemetry.gpu_s` on, on a machine with an NVIDIA GPU"
HOW_TO_GET = {
    "loss_falls": "its losses are missing, too few, or do not move beyond their noise; report them in each step, and run more steps",
    "loss_finite": _NEEDS_LOSSES,
    "loss_fall_pct": f"{_NEEDS_LOSSES}, and run at least 8 steps",
    "samples_per_s": "report samples in each step, or set `samples_per_step` of the workload",
    "tokens_per_s": "report tokens in each step, or set `tokens_per_step` of the workload",
    "samples_per_s_per_gpu": "report samples in each step, or set `samples_per_step` of the workload",
    "tokens_per_s_per_gpu": "report tokens in each step, or set `tokens_per_step` of the workload",
    "iter_p90_over_p50": _NEEDS_POINTS,
    "step_p90_over_p50": _NEEDS_POINTS,
    "iter_ratio_median": _NEEDS_POINTS,
    "iter_ratio_max": _NEEDS_POINTS,
    "unstable_run_ratio": _NEEDS_POINTS,
    "throughput_cv_pct": f"set repeats to {LEAST_REPEATS} or more",
    "stable": f"set repeats to {LEAST_REPEATS} or more, and run more steps",
    "gpu_mem_peak_mib": _NEEDS_GPU_SAMPLES,
    "gpu_throttled_pct": _NEEDS_GPU_SAMPLES,
    "gpu_telemetry_empty_ratio": _NEEDS_GPU_SAMPLES,
    "host_rss_peak_mib": "leave `telemetry.host_s` on",
    "straggler_score": "run more than one rank, and let every rank report its steps through the probe",
}


def how_to_get(metric: str) -> str:
    return HOW_TO_GET.get(metric, _NEEDS_STEPS)
