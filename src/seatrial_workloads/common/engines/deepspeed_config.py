"""DeepSpeed's configuration. In: the options, the effective precision and how it is computed. Out: the dictionary. A pure function.

The learning rate and the optimiser are not in it: the engine makes the one and sets the other (see schedule.py).
"""

from __future__ import annotations

from typing import Any

from seatrial_workloads.common.choice import AS_REQUESTED, Choice
from seatrial_workloads.common.engines.engine import EngineOptions

MIXED = ("auto", "autocast", "weights")
_TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16"}


def deepspeed_config(options: EngineOptions, precision: str, mixed: str) -> dict[str, Any]:
    """`mixed` is the effective way of computing 16 bits: autocast or weights; of no effect in fp32."""
    return {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.gradient_clipping,
        "zero_optimization": _zero_section(options),
        # The optimiser is our own object, and DeepSpeed knows only its own by heart.
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": options.wall_clock_breakdown,
        "steps_per_print": None,
        # Its throughput clock waits for the GPU twice a step; the probe measures without.
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
        **_precision_section(precision, mixed),
    }


def _zero_section(options: EngineOptions) -> dict[str, Any]:
    if options.zero_stage == 0:
        return {"stage": 0}
    section: dict[str, Any] = {
        "stage": options.zero_stage,
        "overlap_comm": options.overlap_comm,
        "reduce_bucket_size": options.bucket_size,
        "allgather_bucket_size": options.bucket_size,
    }
    if options.zero_stage == 3:
        section["stage3_param_persistence_threshold"] = options.persistence_threshold
    return section


def _precision_section(precision: str, mixed: str) -> dict[str, Any]:
    if precision == "fp32":
        return {}
    if mixed == "autocast":
        return {"torch_autocast": {"enabled": True, "dtype": _TORCH_NAMES[precision]}}
    if precision == "bf16":
        # bf16 has the range of fp32: looking for an overflow would only wait for the GPU, and ddp does not look either.
        return {"bf16": {"enabled": True, "check_grad_overflow": False}}
    return {"fp16": {"enabled": True}}


def choose_mixed_precision(requested: str, zero_stage: int, precision: str) -> Choice:
    """How 16 bits are computed."""
    if requested not in MIXED:
        raise ValueError(f"mixed_precision is '{requested}'; expected one of {', '.join(MIXED)}")
    if precision == "fp32":
        return Choice(requested, "none", "fp32: nothing is computed in 16 bits")
    if precision == "fp16" and requested == "autocast" and zero_stage:
        return Choice(requested, "weights", f"ZeRO {zero_stage} scales the loss only for weights in fp16")
    if requested == "auto":
        if zero_stage == 0:
            return Choice(requested, "autocast", "ZeRO 0 keeps weights in fp32, as ddp does")
        return Choice(requested, "weights", f"ZeRO {zero_stage} keeps weights in {precision} and their fp32 copies in the optimiser")
    return Choice(requested, requested, AS_REQUESTED)
