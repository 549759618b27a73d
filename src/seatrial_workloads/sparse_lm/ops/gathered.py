"""The selected branch over copies of each query's blocks: work and memory grow with S × n_sel, not with S².

Backward copies again, so that a layer keeps only queries, keys, values and ids.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from seatrial_workloads.sparse_lm.ops.naive import positions
from seatrial_workloads.sparse_lm.ops.shape import ModelShape


def selected(query: Tensor, key: Tensor, value: Tensor, ids: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """`ids` (batch, queries, groups, n_sel), -1 for none. If there are fewer queries than keys, they are the last ones."""
    return checkpoint(_selected, query, key, value, ids, shape, starts, use_reentrant=False)


def _selected(query: Tensor, key: Tensor, value: Tensor, ids: Tensor, shape: ModelShape, starts: Tensor | None) -> Tensor:
    batch, _, num_queries, d_k = query.shape
    by_query = query.unflatten(1, (shape.n_kv_groups, shape.heads_per_group)).transpose(2, 3)
    ids = ids.transpose(1, 2)
    keys, values = _blocks(key, ids, shape), _blocks(value, ids, shape)
    scores = (by_query * d_k**-0.5) @ keys.transpose(-1, -2)
    # Masked out by a large finite score: every query sees its own token, so no row is empty.
    scores = scores.float().masked_fill(~_seen(ids, shape, key.shape[2], starts)[:, :, :, None], -1e30)
    mixed = torch.softmax(scores, dim=-1).to(values.dtype) @ values
    return mixed.transpose(2, 3).reshape(batch, shape.n_heads, num_queries, -1)


def _blocks(tokens: Tensor, ids: Tensor, shape: ModelShape) -> Tensor:
    """(batch, groups, queries, n_sel × sel_block, d): each query's blocks in a row, block 0 in place of a missing one."""
    batch, groups, seq_len, d = tokens.shape
    num_blocks = shape.num_sel(seq_len)
    blocks = functional.pad(tokens, (0, 0, 0, num_blocks * shape.sel_block - seq_len)).reshape(batch * groups * num_blocks, -1)
    row = torch.arange(batch * groups, device=ids.device).view(batch, groups, 1, 1) * num_blocks + ids.clamp(min=0)
    return _CopyRows.apply(blocks, row.flatten()).view(batch, groups, ids.shape[2], -1, d)


class _CopyRows(torch.autograd.Function):
    """Rows by index. A row is copied for up to S queries, and their gradients are added in fp32: in 16 bits most would vanish."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = rows.shape
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        added = gradient.new_zeros(ctx.size, dtype=torch.float32).index_add_(0, index, gradient.float())
        return added.to(gradient.dtype), None


def _seen(ids: Tensor, shape: ModelShape, seq_len: int, starts: Tensor | None) -> Tensor:
    """Mask (batch, groups, queries, n_sel × sel_block)."""
    token = ids[..., None] * shape.sel_block + torch.arange(shape.sel_block, device=ids.device)
    query_at = positions(ids.shape[2], seq_len, ids.device)[..., None]
    seen = (ids[..., None] >= 0) & (token <= query_at)
    return (seen if starts is None else seen & (token >= starts[:, None, :, None, None])).flatten(3)
