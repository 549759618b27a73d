"""What one step is fed: the value that goes from the loader's workers to the model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Slices of speech and the words spoken in them, one row each."""

    audio: Tensor
    """(rows, samples) float32: each row of mean 0 and variance 1 over its own samples, zeros behind its end."""
    num_samples: Tensor
    """(rows,) int64: samples of each row before the zeros."""
    token_ids: Tensor
    """(rows, tokens) int64, [CLS] first."""
    token_mask: Tensor
    """(rows, tokens) int64: 1 for a token, 0 for padding."""
    time_mask: Tensor | None = None
    """(rows, frames) bool: frames hidden from the speech encoder; None where nothing is hidden."""
    same_length: bool
    """Every row fills the batch. Known here, where the lengths are on the CPU: asking the GPU would wait for it."""

    def pin_memory(self) -> Batch:
        """For the loader's pinning thread."""
        return self._mapped(lambda part: part.pin_memory())

    def to(self, device: torch.device) -> Batch:
        return self._mapped(lambda part: part.to(device, non_blocking=True))

    def _mapped(self, change) -> Batch:  # type: ignore[no-untyped-def]
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(part) for name, part in parts.items() if isinstance(part, Tensor)})


def still_batch(rows: int, num_samples: int, num_frames: int | None) -> Batch:
    """A batch with nothing in it; `num_frames` is given where frames are masked."""
    return Batch(
        audio=torch.zeros(rows, num_samples),
        num_samples=torch.full((rows,), num_samples),
        token_ids=torch.zeros(rows, 8, dtype=torch.long),
        token_mask=torch.ones(rows, 8, dtype=torch.long),
        time_mask=None if num_frames is None else torch.zeros(rows, num_frames, dtype=torch.bool),
        same_length=True,
    )
