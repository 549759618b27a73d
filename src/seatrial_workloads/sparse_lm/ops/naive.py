"""Native sparse attention with explicit masks in plain PyTorch: the reference for every other path. Computes in fp32, O(S²) memory.

Queries are (batch, heads, S, d_k), the heads of a group adjacent; keys and values (batch, groups, S, d); gates (batch, groups, S, 3) in the
order compressed, selected, window. `starts` (batch, S) is the position of the first token of each token's document, None where a row is one
document: blocks lie on the row's grid, and a query sees nothing before its document's start. If there are fewer queries than keys,
they are the last ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.ops.layout import Heads
from seatrial_workloads.sparse_lm.ops.shape import ModelShape


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Output and probabilities. `mask` (…, S, keys) is true where a query sees a key; a query that sees none gets zeros."""
    heads_per_group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(heads_per_group, dim=1).float() for tensor in (key, value))
    with torch.autocast(query.device.type, enabled=False):
        scores = query.float() @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        # A row of -inf would become NaN: it is computed without a mask, then zeroed.
        seen = mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~mask & seen, float("-inf"))
        probabilities = torch.softmax(scores, dim=-1) * seen
        return (probabilities @ value).to(query.dtype), probabilities


def positions(num_queries: int, seq_len: int, device: torch.device) -> Tensor:
    """(queries, 1): the last `num_queries` of `seq_len` positions."""
    return torch.arange(seq_len - num_queries, seq_len, device=device)[:, None]


def visible(query_at: Tensor, seq_len: int, starts: Tensor | None) -> Tensor:
    """(batch or 1, queries, S): causal, and within the query's document."""
    position = torch.arange(seq_len, device=query_at.device)
    causal = (position <= query_at)[None]
    return causal if starts is None else causal & (position >= starts[..., None])


def compressed_mask(shape: ModelShape, query_at: Tensor, seq_len: int, starts: Tensor | None) -> Tensor:
    """(batch or 1, queries, compressed blocks): blocks that end at the query or before, and begin within its document."""
    block_start = torch.arange(shape.num_cmp(seq_len), device=query_at.device) * shape.cmp_stride
    ended = (block_start + shape.cmp_block <= query_at + 1)[None]
    return ended if starts is None else ended & (block_start >= starts[..., None])


def pool(tokens: Tensor, shape: ModelShape, weight: Tensor | None = None) -> Tensor:
    """(batch, groups, compressed blocks, d): the average of each block, or its sum weighted by `weight` (d, cmp_block)."""
    num_blocks = shape.num_cmp(tokens.shape[2])
    at = torch.arange(num_blocks, device=tokens.device)[:, None] * shape.cmp_stride + torch.arange(shape.cmp_block, device=tokens.device)
    blocks = tokens.float()[:, :, at]
    pooled = blocks.mean(dim=3) if weight is None else (blocks * weight.float().T).sum(dim=3)
    return pooled.to(tokens.dtype)


def overlap(shape: ModelShape, seq_len: int, device: torch.device) -> Tensor:
    """(compressed blocks, selection blocks): the share of a compressed block's tokens that lie in a selection block."""
    cmp_start = torch.arange(shape.num_cmp(seq_len), device=device)[:, None] * shape.cmp_stride
    sel_start = torch.arange(shape.num_sel(seq_len), device=device) * shape.sel_block
    end = torch.minimum(cmp_start + shape.cmp_block, sel_start + shape.sel_block)
    return (end - torch.maximum(cmp_start, sel_start)).clamp(min=0).float() / shape.cmp_block


def block_scores(probabilities: Tensor, shape: ModelShape, seq_len: int) -> Tensor:
    """(batch, queries, groups, selection blocks): the compressed branch's probabilities, summed over a group's heads and mapped."""
    batch, heads, num_queries, num_cmp = probabilities.shape
    by_group = probabilities.float().view(batch, shape.n_kv_groups, heads // shape.n_kv_groups, num_queries, num_cmp).sum(dim=2)
    with torch.autocast(probabilities.device.type, enabled=False):
        return (by_group @ overlap(shape, seq_len, probabilities.device)).transpose(1, 2)


def select(scores: Tensor, shape: ModelShape, seq_len: int, starts: Tensor | None = None) -> Tensor:
    """Ids of the selected blocks, (batch, queries, groups, n_sel), ascending, padded with -1."""
    num_blocks = scores.shape[-1]
    block = torch.arange(num_blocks, device=scores.device)
    own = positions(scores.shape[1], seq_len, scores.device) // shape.sel_block
    first = torch.zeros_like(own)[None] if starts is None else starts[..., None] // shape.sel_block
    candidate = (block <= own) & (block >= first)
    forced = candidate & ((block == first) | (block >= own - 1))
    scores = scores.masked_fill(forced[:, :, None], float("inf")).masked_fill(~candidate[:, :, None], float("-inf"))
    scores, ids = torch.sort(scores, dim=-1, descending=True, stable=True)
    ids = torch.where(scores == float("-inf"), num_blocks, ids)[..., : shape.n_sel]
    ids = torch.nn.functional.pad(ids, (0, shape.n_sel - ids.shape[-1]), value=num_blocks).sort(dim=-1).values
    return torch.where(ids == num_blocks, -1, ids)


def selected_mask(ids: Tensor, shape: ModelShape, seq_len: int, starts: Tensor | None = None) -> Tensor:
    """(batch, heads, queries, S): tokens of the selected blocks that the query may see."""
    token_block = torch.arange(seq_len, device=ids.device) // shape.sel_block
    chosen = (ids[..., None] == token_block).any(dim=-2).transpose(1, 2)
    seen = visible(positions(ids.shape[1], seq_len, ids.device), seq_len, starts)
    return (chosen & seen[:, None]).repeat_interleave(shape.heads_per_group, dim=1)


def window_mask(shape: ModelShape, query_at: Tensor, seq_len: int, starts: Tensor | None) -> Tensor:
    """(batch or 1, queries, S): the last `window` tokens, the query's own included."""
    return visible(query_at, seq_len, starts) & (query_at - torch.arange(seq_len, device=query_at.device) < shape.window)


def compressed(
    query: Tensor, key: Tensor, value: Tensor, shape: ModelShape, seq_len: int, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The compressed branch over pooled keys and values, and its probabilities, which score the blocks for selection."""
    query_at = positions(query.shape[2], seq_len, query.device)
    return attend(query, key, value, compressed_mask(shape, query_at, seq_len, starts)[:, None])


def selected(query: Tensor, key: Tensor, value: Tensor, ids: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """The selected branch, given the ids of its blocks."""
    return attend(query, key, value, selected_mask(ids, shape, key.shape[2], starts))[0]


def window(query: Tensor, key: Tensor, value: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """The sliding-window branch."""
    query_at = positions(query.shape[2], key.shape[2], query.device)
    return attend(query, key, value, window_mask(shape, query_at, key.shape[2], starts)[:, None])[0]


def gated(branches: tuple[Tensor, Tensor, Tensor], gates: Tensor) -> Tensor:
    """Sum of the branches' outputs (batch, heads, queries, d_v), each weighted by its group's gate."""
    by_head = gates.repeat_interleave(branches[0].shape[1] // gates.shape[1], dim=1).to(branches[0].dtype)
    cmp, sel, win = by_head.unsqueeze(-2).unbind(dim=-1)
    return branches[0] * cmp + branches[1] * sel + branches[2] * win


def sparse_attention(
    heads: Heads,
    shape: ModelShape,
    pool_key: Tensor | None = None,
    pool_value: Tensor | None = None,
    starts: Tensor | None = None,
    ids: Tensor | None = None,
) -> Tensor:
    """The three branches, gated. `ids` replace the selection's own."""
    seq_len = heads.query.shape[2]
    key, value = pool(heads.cmp_key, shape, pool_key), pool(heads.cmp_value, shape, pool_value)
    cmp, probabilities = compressed(heads.query, key, value, shape, seq_len, starts)
    if ids is None:
        ids = select(block_scores(probabilities.detach(), shape, seq_len), shape, seq_len, starts)
    sel = selected(heads.query, heads.sel_key, heads.sel_value, ids, shape, starts)
    win = window(heads.query, heads.win_key, heads.win_value, shape, starts)
    return gated((cmp, sel, win), heads.gates)
