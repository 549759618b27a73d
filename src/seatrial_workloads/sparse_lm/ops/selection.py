"""Choice of blocks. In: scores (batch, S, groups, selection blocks). Out: ids (batch, S, groups, n_sel), ascending, padded with -1, and as
a bitmask for kernels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from seatrial_workloads.sparse_lm.ops.naive import positions
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

WORD = 64


def select(scores: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """The n_sel best blocks that a query may see. Its document's first block, its own and the one before are always selected; ties go to
    the lower index."""
    seq_len, num_blocks = scores.shape[1], scores.shape[-1]
    block = torch.arange(num_blocks, device=scores.device)
    own = positions(seq_len, seq_len, scores.device) // shape.sel_block
    first = torch.zeros_like(own)[None] if starts is None else starts[..., None] // shape.sel_block
    candidate = ((block <= own) & (block >= first))[:, :, None]
    forced = candidate & ((block == first) | (block >= own - 1))[:, :, None]
    # Scores are sums of probabilities: at least 0, and far below the forced value.
    scores = torch.where(forced, 1e30, torch.where(candidate, scores, -1.0))
    ranked, ids = torch.sort(scores, dim=-1, descending=True, stable=True)
    ids = torch.where(ranked < 0, num_blocks, ids)[..., : shape.n_sel].sort(dim=-1).values
    ids = functional.pad(ids, (0, shape.n_sel - ids.shape[-1]), value=num_blocks)
    return torch.where(ids == num_blocks, -1, ids)


def block_bits(ranges: Tensor, shape: ModelShape, num_blocks: int) -> Tensor:
    """(batch, groups, S, words): bit i of word w is set where a range holds tokens of block 64 w + i."""
    first, end = ranges[..., 0] // shape.sel_block, (ranges[..., 1] + shape.sel_block - 1) // shape.sel_block
    word = torch.arange(-(-num_blocks // WORD), device=ranges.device)[:, None] * WORD
    # (…, words, ranges); a run of k bits is 2^k - 1, and 2 << 63 wraps to 0, so that 64 of them are -1: all bits.
    first, end = (part[..., None, :].sub(word).clamp(0, WORD) for part in (first, end))
    length = end - first
    run = ((2 << (length - 1).clamp(min=0)) - 1) << first.clamp(max=WORD - 1)
    return torch.where(length > 0, run, 0).sum(dim=-1).transpose(1, 2)


def block_bytes(bits: Tensor) -> Tensor:
    """(batch, groups, S, 64 × words) of 0 and 1."""
    place = torch.arange(WORD, device=bits.device)
    return ((bits[..., None] >> place) & 1).flatten(-2).to(torch.int8)
