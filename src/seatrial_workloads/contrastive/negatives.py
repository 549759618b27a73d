"""Rows of all ranks. In: this rank's embeddings. Out: those of all ranks in rank order, with gradients that find their way back.

Every rank's loss depends on every rank's rows: on the way back the gradients of all ranks are summed and each keeps its own rows' share.
DDP then averages over ranks, which gives the gradient of the mean loss.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(rows: Tensor) -> Tensor:
    """(rows, width) of this rank → (world_size × rows, width)."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows.contiguous())
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed)
        return summed.chunk(dist.get_world_size())[dist.get_rank()]
