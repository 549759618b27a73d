"""Selected and sliding-window branches through scaled_dot_product_attention with an explicit mask (batch, heads, S, S)."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial_workloads.sparse_lm.ops import naive
from seatrial_workloads.sparse_lm.ops.selection import block_bytes
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

BACKENDS = {"no_flash": [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]}


def selected(
    query: Tensor, key: Tensor, value: Tensor, bits: Tensor, shape: ModelShape, starts: Tensor | None = None, sdpa: str = "any"
) -> Tensor:
    """`bits` (batch, groups, S, words) from `selection.block_bits`."""
    seq_len = query.shape[2]
    token_block = torch.arange(seq_len, device=query.device) // shape.sel_block
    chosen = block_bytes(bits).bool()[..., token_block]
    seen = chosen & naive.visible(naive.positions(seq_len, seq_len, query.device), seq_len, starts)[:, None]
    return _attend(query, key, value, seen.repeat_interleave(shape.heads_per_group, dim=1), sdpa)


def window(query: Tensor, key: Tensor, value: Tensor, shape: ModelShape, starts: Tensor | None = None, sdpa: str = "any") -> Tensor:
    query_at = naive.positions(query.shape[2], query.shape[2], query.device)
    return _attend(query, key, value, naive.window_mask(shape, query_at, query.shape[2], starts)[:, None], sdpa)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sdpa: str) -> Tensor:
    with sdpa_kernel(BACKENDS[sdpa]) if sdpa in BACKENDS else contextlib.nullcontext():
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
