"""The compressed branch: pooled blocks, attention over them, and their probabilities as scores for selection. Shapes are those of `naive`.

Scores are held for all queries and blocks, S² / cmp_stride of them: selection needs each, and they are not computed twice.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from seatrial_workloads.sparse_lm.ops.naive import positions
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

# Matrix products of 16-bit numbers are several times slower over a width that is not a multiple of this.
ALIGNED = 8
# Finite, so that a query that sees no block gives no NaN; far below any score.
MASKED = -1e30


def pool(tokens: Tensor, shape: ModelShape, weight: Tensor | None = None) -> Tensor:
    """(batch, groups, compressed blocks, d) in fp32, padded with zeros to a multiple of 8, at least 8."""
    num_blocks = shape.num_cmp(tokens.shape[2])
    if not num_blocks:
        pooled = tokens[:, :, :0].float()
    elif weight is None:
        chunks = (
            tokens[:, :, : tokens.shape[2] // shape.cmp_stride * shape.cmp_stride].unflatten(2, (-1, shape.cmp_stride)).float().mean(dim=3)
        )
        pooled = chunks.unfold(2, shape.cmp_block // shape.cmp_stride, 1).mean(dim=-1)
    else:
        pooled = (tokens.unfold(2, shape.cmp_block, shape.cmp_stride).float() * weight.float()).sum(dim=-1)
    padded = max(ALIGNED, -(-num_blocks // ALIGNED) * ALIGNED)
    return functional.pad(pooled, (0, 0, 0, padded - num_blocks))


def compressed(query: Tensor, key: Tensor, value: Tensor, shape: ModelShape, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The branch's output, and its probabilities summed over the heads of each group (batch, groups, S, blocks) without a gradient."""
    batch, _, seq_len, d_k = query.shape
    by_group = query.reshape(batch, shape.n_kv_groups, -1, d_k)
    mask = _mask(shape, seq_len, key.shape[2], starts, query.device)
    # In fp32 (TF32 where it is on): scores of 16 bits would choose other blocks for several rows in a hundred.
    with torch.autocast(query.device.type, enabled=False):
        scores = (by_group.float() * d_k**-0.5) @ key.float().transpose(-1, -2)
        scores = scores.unflatten(2, (shape.heads_per_group, seq_len)).masked_fill(~mask, MASKED)
        probabilities = torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
        output = probabilities.flatten(2, 3).to(query.dtype) @ value.to(query.dtype)
    return output.view(batch, shape.n_heads, seq_len, -1), probabilities.detach().sum(dim=2)


def _mask(shape: ModelShape, seq_len: int, num_blocks: int, starts: Tensor | None, device: torch.device) -> Tensor:
    """(batch or 1, 1, 1, S, blocks); the padding ends after every query."""
    block_start = torch.arange(num_blocks, device=device) * shape.cmp_stride
    seen = (block_start + shape.cmp_block <= positions(seq_len, seq_len, device) + 1)[None]
    return (seen if starts is None else seen & (block_start >= starts[..., None]))[:, None, None]


def block_scores(by_group: Tensor, shape: ModelShape) -> Tensor:
    """(batch, S, groups, selection blocks): a selection block gets a compressed block's probability in proportion to the tokens that they
    share. Each stride of tokens collects from the blocks that cover it, and a selection block is a run of strides: sums in fp32, where
    TF32 or autocast would round a matrix product."""
    covering, strides = shape.cmp_block // shape.cmp_stride, shape.sel_block // shape.cmp_stride
    num_blocks = shape.num_sel(by_group.shape[2])
    # Padding beyond the last selection block is cut: no token is there.
    right = max(0, num_blocks * strides - by_group.shape[-1])
    per_stride = functional.pad(by_group, (covering - 1, right)).unfold(-1, covering, 1).sum(dim=-1)[..., : num_blocks * strides]
    return (per_stride.unflatten(-1, (num_blocks, strides)).sum(dim=-1) / covering).transpose(1, 2)
