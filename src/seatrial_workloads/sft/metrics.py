"""metrics.json: the original procedure's fields, and with them correct figures. In: counts and times of a run. Out: one flat object.

The original counts padding as tokens, leaves out gradient accumulation, and divides by a wall time that includes start-up and checkpoint;
these fields keep its arithmetic. Ours: real and computed tokens of all ranks over the steady window, start-up apart, peak memory, MFU.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.shapes import Shape

# Datasheet, dense bf16 without sparsity, TFLOP/s, by the product's whole name as CUDA reports it, without "NVIDIA": a part of it may be
# that of a card of another speed (A4000 has A40 in it), or of a slice (MIG).
PEAK_TFLOPS = {
    **dict.fromkeys(("H100 80GB HBM3", "H200", "GH200 480GB", "GH200 144G HBM3e"), 989.4),
    **dict.fromkeys(("H100 NVL", "H200 NVL"), 835.5),
    "H100 PCIe": 756.0,
    "H20": 148.0,
    "B200": 2250.0,
    **dict.fromkeys(("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-PCIE-80GB", "A100 80GB PCIe"), 312.0),
    **dict.fromkeys(("A800-SXM4-40GB", "A800-SXM4-80GB", "A800 80GB PCIe"), 312.0),
    "L40S": 362.05,
    "L40": 181.05,
    "L4": 121.0,
    "A10G": 70.0,
    "A10": 125.0,
    "A40": 149.7,
    "RTX A6000": 154.8,
}
MIG = " MIG "
MATMUL_SIZE, MATMUL_REPEATS = 8192, 20


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steady steps of a run, summed over all ranks."""

    steps: int
    seconds: float
    real_tokens: int
    computed_tokens: int
    """Padding included."""
    learnt_tokens: int
    attended_tokens: int
    """Tokens that each real token attends to, itself included, summed over all."""

    @property
    def tokens_per_s(self) -> float | None:
        return self.real_tokens / self.seconds if self.seconds > 0 else None


def seed_fields(
    settings: Settings, *, steps: int, wall_s: float, world_size: int, gpu: str | None, precision: str, strategy: str
) -> dict[str, Any]:
    """The fields of the procedure, with its arithmetic, for the steps of this attempt."""
    tokens = steps * settings.micro_batch * settings.seq_len
    alone = {"approx_tokens": tokens, "approx_tokens_per_s": tokens / wall_s, "gpu": gpu} if world_size == 1 else {}
    return {
        "wall_time_s": wall_s,
        "approx_tokens_per_rank": tokens,
        "approx_tokens_per_s_per_rank": tokens / wall_s,
        **alone,
        "world_size": world_size,
        "gpu0": gpu,
        "torch": torch.__version__,
        "model": settings.model,
        "dataset": settings.dataset,
        "use_lora": settings.use_lora,
        "bf16": precision == "bf16",
        "gradient_checkpointing": settings.gradient_checkpointing,
        **({"fsdp": "full_shard"} if strategy == "fsdp" else {}),
    }


def window_fields(settings: Settings, window: Window, world_size: int) -> dict[str, Any]:
    """Throughput of all ranks over the steady window, and how it scales."""
    speed = window.tokens_per_s
    return {
        "steady_steps": window.steps,
        "steady_s": window.seconds,
        "steady_real_tokens": window.real_tokens,
        "steady_padded_tokens": window.computed_tokens,
        "steady_learnt_tokens": window.learnt_tokens,
        "real_token_share": window.real_tokens / window.computed_tokens if window.computed_tokens else None,
        "tokens_per_s": speed,
        "tokens_per_s_per_rank": speed / world_size if speed else None,
        "padded_tokens_per_s": window.computed_tokens / window.seconds if window.seconds > 0 else None,
        "scaling_efficiency": scaling_efficiency(settings, speed, world_size),
        "baseline_tokens_per_s": settings.baseline_tokens_per_s,
        "baseline_world_size": settings.baseline_world_size,
    }


def scaling_efficiency(settings: Settings, tokens_per_s: float | None, world_size: int) -> float | None:
    """Tokens per second and rank, relative to the baseline's; None without one."""
    if settings.baseline_tokens_per_s is None or settings.baseline_world_size is None or tokens_per_s is None:
        return None
    return (tokens_per_s / world_size) / (settings.baseline_tokens_per_s / settings.baseline_world_size)


def peak_tflops(device_name: str | None, precision: str) -> tuple[float | None, str | None]:
    """The datasheet's peak, or why there is none."""
    if device_name is None:
        return None, "no datasheet peak for a CPU"
    if MIG in device_name:
        return None, f"{device_name} is a MIG slice, and the datasheet's peak is of a whole GPU"
    peak = PEAK_TFLOPS.get(device_name.removeprefix("NVIDIA ")) if precision == "bf16" else None
    return peak, None if peak else f"no datasheet peak for {device_name} in {precision}"


def mfu_fields(
    shape: Shape | None, window: Window, *, lora_rank: int | None, world_size: int, gpu: str | None, precision: str, no_shape: str = ""
) -> dict[str, Any]:
    """Model FLOPs of real tokens over the datasheet's peak of all GPUs, or why it is unknown. `no_shape` is why the shape is unknown."""
    peak, reason = peak_tflops(gpu, precision)
    if shape is None:
        return {"model_tflops": None, "peak_tflops_per_gpu": peak, "mfu": None, "mfu_reason": f"FLOPs unknown: {no_shape}"}
    achieved = mfu = None
    if window.real_tokens and window.seconds > 0:
        context = window.attended_tokens / window.real_tokens
        flops = shape.flops_per_token(lora_rank=lora_rank, context=context) * window.real_tokens
        achieved = flops / window.seconds / 1e12
        mfu = achieved / (peak * world_size) if peak else None
    if mfu is not None and mfu > 1:
        mfu, reason = None, f"{achieved:.0f} TFLOP/s is above the datasheet's {peak * world_size:.0f}: the clock or the shape is wrong"
    return {"model_tflops": achieved, "peak_tflops_per_gpu": peak, "mfu": mfu, "mfu_reason": reason}


def measured_peak_tflops(device: torch.device, dtype: torch.dtype) -> float | None:
    """TFLOP/s of a large matrix product on this GPU; None on a CPU."""
    if device.type != "cuda":
        return None
    left = torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=device, dtype=dtype)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for repeat in range(MATMUL_REPEATS + 3):
        if repeat == 3:
            begin.record()
        left @ left
    end.record()
    torch.cuda.synchronize(device)
    return 2.0 * MATMUL_SIZE**3 * MATMUL_REPEATS / (begin.elapsed_time(end) / 1e3) / 1e12


def peak_memory_mib(device: torch.device) -> dict[str, float | None]:
    """Peaks of this process: memory that torch allocated and reserved on its GPU, and resident memory."""
    on_gpu = device.type == "cuda"
    return {
        "peak_memory_mib": torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else None,
        "peak_reserved_mib": torch.cuda.max_memory_reserved(device) / 2**20 if on_gpu else None,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def highest(by_rank: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The highest of each figure over all ranks; None where no rank has it."""
    return {name: max((found for rank in by_rank if (found := rank[name]) is not None), default=None) for name in by_rank[0]}
