"""Which number format a training computes in. In: the word asked for and the device. Out: the format that is used, and why.

auto  on CUDA of compute capability 8 or more → bf16; on older CUDA → fp16 with loss scaling; on CPU → fp32
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch

CHOICES = ("auto", "bf16", "fp16", "fp32")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Requested, effective, reason."""

    requested: str
    effective: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.effective]

    @property
    def needs_scaler(self) -> bool:
        """fp16 gradients vanish unless the loss is scaled up."""
        return self.effective == "fp16"

    def autocast(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """Where the forward pass runs; nothing at all in fp32."""
        if self.effective == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.dtype)


def resolve_precision(requested: str, device: torch.device) -> Precision:
    """The policy for this device."""
    if device.type == "cuda":
        return choose_precision(requested, torch.cuda.get_device_capability(device))
    return choose_precision(requested, None)


def choose_precision(requested: str, compute_capability: tuple[int, int] | None) -> Precision:
    """The policy itself; no compute capability means CPU."""
    if requested not in CHOICES:
        raise ValueError(f"precision is '{requested}'; expected one of {', '.join(CHOICES)}")
    effective, reason = _choose(requested, compute_capability)
    return Precision(requested=requested, effective=effective, reason=reason)


def _choose(requested: str, compute_capability: tuple[int, int] | None) -> tuple[str, str]:
    if compute_capability is None:
        if requested == "fp16":
            return "fp32", "CPU has no loss scaling for fp16: computed in fp32"
        return ("fp32", "CPU: fp32") if requested == "auto" else (requested, "as requested")
    capability = f"compute capability {compute_capability[0]}.{compute_capability[1]}"
    if compute_capability[0] >= 8:
        return ("bf16", f"{capability} has bf16") if requested == "auto" else (requested, "as requested")
    if requested in ("auto", "bf16"):
        return "fp16", f"{capability} has no bf16: fp16 with loss scaling"
    return requested, "as requested"
