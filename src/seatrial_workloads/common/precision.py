"""Number formats of a training. In: the requested formats and the lowest compute capability of its GPUs. Out: the effective ones and why.

precision    auto  compute capability 8 or more → bf16; older CUDA → fp16 with loss scaling; no usable GPU → fp32
load dtype   auto  follows precision; flash attention cannot read fp32 weights
mixed        auto  ddp and ZeRO 0: fp32 weights under autocast; ZeRO 1 to 3: 16-bit weights (DeepSpeed's own bf16 and fp16)

fp16 is refused on a CPU, which has no loss scaling for it. Light to import, since settings use the same choices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice, as_requested
from seatrial_workloads.common.errors import StartupError

if TYPE_CHECKING:
    import torch

CHOICES = ("auto", "bf16", "fp16", "fp32")
FP16_ON_CPU = "precision is 'fp16', and a CPU has no loss scaling for it: use precision=auto, bf16 or fp32, or a GPU"
FP16_WEIGHTS_ON_CPU = "model_load_dtype is 'fp16', which a CPU does not support: use model_load_dtype=auto, bf16 or fp32, or a GPU"
# The first compute capability (major) with bf16 and TF32.
AMPERE = 8
AUTOCAST, WEIGHTS, BY_PRECISION, NOT_MIXED = "autocast", "weights", "by_precision", "none"
# 16-bit weights without an fp32 copy, updated in 16 bits: small updates are lost to rounding.
PURE = "pure"
MIXED_CHOICES = ("auto", AUTOCAST, WEIGHTS, BY_PRECISION)
FLASH = "flash_attention_2"

TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
Capability = tuple[int, int]


@dataclass(frozen=True)
class Precision(Choice):
    """The format of the computation."""

    @property
    def dtype(self) -> torch.dtype:
        return torch_dtype(self.effective)

    @property
    def needs_scaler(self) -> bool:
        """fp16 gradients vanish unless the loss is scaled up."""
        return self.effective == "fp16"

    def autocast(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """Context for the forward pass; a no-op in fp32."""
        if self.effective == "fp32":
            return contextlib.nullcontext()
        import torch

        return torch.autocast(device.type, dtype=self.dtype)


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype for bf16, fp16 or fp32."""
    import torch

    dtype: torch.dtype = getattr(torch, TORCH_NAMES[name])
    return dtype


def choose_precision(requested: str, lowest: Capability | None) -> Precision:
    """The policy; `lowest` comes from `distributed.lowest_capability`, None on a CPU."""
    if lowest is None:
        if requested == "fp16":
            raise StartupError(FP16_ON_CPU)
        return Precision(requested, "fp32", "CPU: fp32") if requested == "auto" else Precision(requested, requested, AS_REQUESTED)
    capability = f"compute capability {lowest[0]}.{lowest[1]}"
    if lowest[0] < AMPERE and requested in ("auto", "bf16"):
        return Precision(requested, "fp16", f"{capability} has no bf16: fp16 with loss scaling")
    if requested == "auto":
        return Precision(requested, "bf16", f"{capability} has bf16")
    return Precision(requested, requested, AS_REQUESTED)


def check_fp16_has_gpu(precision: str, device: str) -> None:
    """Refuse fp16 on a CPU before the process group is joined."""
    if precision != "fp16":
        return
    import torch

    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        raise StartupError(FP16_ON_CPU)


def choose_load_dtype(requested: str, precision: Precision, attentions: Sequence[str], lowest: Capability | None) -> Choice:
    """Format of frozen weights; `attentions` are the encoders' effective implementations, `lowest` is None on a CPU."""
    if requested == "fp16" and lowest is None:
        raise StartupError(FP16_WEIGHTS_ON_CPU)
    if requested == "bf16" and lowest is not None and lowest[0] < AMPERE:
        return Choice(requested, "fp16", f"compute capability {lowest[0]}.{lowest[1]} has no bf16")
    if requested == "auto":
        return Choice(requested, precision.effective, f"follows precision ({precision.effective})")
    if requested == "fp32" and FLASH in attentions:
        return Choice(requested, precision.effective, f"{FLASH} does not support fp32 weights: {precision.effective}, as precision")
    return as_requested(requested)


def mixed_precision_problem(mixed: str, engine: str, zero_stage: int, precision: str) -> str | None:
    """Why this engine cannot compute `precision` in the mode `mixed`; None where it can."""
    if mixed == WEIGHTS and engine == "ddp":
        return "16-bit weights are DeepSpeed's, and ddp has autocast only"
    if mixed == PURE and engine != "ddp":
        return "16-bit weights without an fp32 copy are ddp's"
    if mixed == AUTOCAST and zero_stage and precision == "fp16":
        return f"fp16 under ZeRO {zero_stage} has 16-bit weights only"
    return None


def choose_mixed_precision(requested: str, engine: str, zero_stage: int, precision: str) -> Choice:
    """The mode for the effective `precision`; a StartupError where the engine does not have the requested one."""
    if precision == "fp32":
        return Choice(requested, NOT_MIXED, "fp32: no mixed precision")
    effective, reason = requested, AS_REQUESTED
    if requested == BY_PRECISION:
        effective = WEIGHTS if precision == "fp16" else AUTOCAST
        reason = f"{precision}: every ZeRO stage has it"
    elif requested == "auto" and zero_stage:
        effective, reason = WEIGHTS, f"ZeRO {zero_stage} keeps weights in {precision} and their fp32 copies in the optimiser"
    elif requested == "auto":
        effective, reason = AUTOCAST, "weights stay in fp32"
    problem = mixed_precision_problem(effective, engine, zero_stage, precision)
    if problem:
        raise StartupError(f"mixed_precision is '{requested}', and {problem}: use mixed_precision=auto")
    return Choice(requested, effective, reason)
