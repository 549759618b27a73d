"""The batch of one step, as it goes from the loader's workers to the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Speech slices and their texts, one row each."""

    audio: Tensor
    """(rows, samples) float32: each row normalised to mean 0 and variance 1 over its own samples, zero-padded."""
    num_samples: Tensor
    """(rows,) int64: samples of each row without padding."""
    token_ids: Tensor
    """(rows, tokens) int64, [CLS] first."""
    token_mask: Tensor
    """(rows, tokens) int64: 1 for a token, 0 for padding."""
    time_mask: Tensor | None = None
    """(rows, frames) bool: masked frames; None where nothing is masked."""
    same_length: bool
    """No row is padded. Determined here, where the lengths are on the CPU: reading it from the GPU would synchronise."""

    def pin_memory(self) -> Batch:
        """Called by the loader's pinning thread."""
        return self._mapped(lambda part: part.pin_memory())

    def to(self, device: torch.device) -> Batch:
        return self._mapped(lambda part: part.to(device, non_blocking=True))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(part) for name, part in parts.items() if isinstance(part, Tensor)})


def zero_batch(rows: int, num_samples: int, num_frames: int | None) -> Batch:
    """A batch of zeros; `num_frames` is given where frames are masked."""
    return Batch(
        audio=torch.zeros(rows, num_samples),
        num_samples=torch.full((rows,), num_samples),
        token_ids=torch.zeros(rows, 8, dtype=torch.long),
        token_mask=torch.ones(rows, 8, dtype=torch.long),
        time_mask=None if num_frames is None else torch.zeros(rows, num_frames, dtype=torch.bool),
        same_length=True,
    )
