"""Which number formats a training uses. In: the words asked for and the lowest compute capability of its GPUs. Out: what is used, and why.

precision    auto  on CUDA of compute capability 8 or more → bf16; on older CUDA → fp16 with loss scaling; no usable GPU → fp32
load dtype   auto  follows precision; flash attention cannot read fp32 weights

fp16 is refused on a CPU, which has no loss scaling for it. Nothing heavy at import, so that settings can hold the same words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seatrial_workloads.common.choice import AS_REQUESTED, Choice
from seatrial_workloads.common.startup_error import StartupError

if TYPE_CHECKING:
    import torch

CHOICES = ("auto", "bf16", "fp16", "fp32")
FP16_ON_CPU = "precision is 'fp16', and a CPU has no loss scaling for it: use precision=auto, bf16 or fp32, or a GPU"
FP16_WEIGHTS_ON_CPU = "model_load_dtype is 'fp16', and a CPU computes nothing in it: use model_load_dtype=auto, bf16 or fp32, or a GPU"
# The first compute capability (major) with bf16 and TF32.
AMPERE = 8
FLASH = "flash_attention_2"

_TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
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
        """Where the forward pass runs; nothing at all in fp32."""
        if self.effective == "fp32":
            return contextlib.nullcontext()
        import torch

        return torch.autocast(device.type, dtype=self.dtype)


def torch_dtype(word: str) -> torch.dtype:
    """bf16, fp16 or fp32 as torch knows it."""
    import torch

    dtype: torch.dtype = getattr(torch, _TORCH_NAMES[word])
    return dtype


def choose_precision(requested: str, lowest: Capability | None) -> Precision:
    """The policy; `lowest` is what `distributed.lowest_capability` says, None on a CPU."""
    _check_word("precision", requested)
    effective, reason = _choose(requested, lowest)
    return Precision(requested=requested, effective=effective, reason=reason)


def _choose(requested: str, lowest: Capability | None) -> tuple[str, str]:
    if lowest is None:
        if requested == "fp16":
            raise StartupError(FP16_ON_CPU)
        return ("fp32", "CPU: fp32") if requested == "auto" else (requested, AS_REQUESTED)
    capability = f"compute capability {lowest[0]}.{lowest[1]}"
    if lowest[0] >= AMPERE:
        return ("bf16", f"{capability} has bf16") if requested == "auto" else (requested, AS_REQUESTED)
    if requested in ("auto", "bf16"):
        return "fp16", f"{capability} has no bf16: fp16 with loss scaling"
    return requested, AS_REQUESTED


def refuse_fp16_without_gpu(precision: str, device_wanted: str) -> None:
    """For a trainer, before it joins the others: device=auto may have come to a CPU."""
    if precision != "fp16":
        return
    import torch

    if device_wanted == "cpu" or (device_wanted == "auto" and not torch.cuda.is_available()):
        raise StartupError(FP16_ON_CPU)


def choose_load_dtype(requested: str, precision: Precision, attentions: Sequence[str], *, on_gpu: bool) -> Choice:
    """The format of weights that do not train; `attentions` are the effective ones of the encoders."""
    _check_word("model_load_dtype", requested)
    if requested == "fp16" and not on_gpu:
        raise StartupError(FP16_WEIGHTS_ON_CPU)
    if requested == "auto":
        return Choice(requested, precision.effective, f"follows precision ({precision.effective})")
    if requested == "fp32" and FLASH in attentions:
        return Choice(requested, precision.effective, f"{FLASH} reads no fp32 weights: {precision.effective}, as precision")
    return Choice(requested, requested, AS_REQUESTED)


def _check_word(name: str, word: str) -> None:
    if word not in CHOICES:
        raise ValueError(f"{name} is '{word}'; expected one of {', '.join(CHOICES)}")
