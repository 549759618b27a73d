"""Causal attention without a mask tensor: rows of one example each, or packed rows by sequence bounds.

Rows padded on the right need no mask: a token sees only what is before it, and the loss ignores padding. Packed rows go to torch's flash
kernel for sequences of several lengths; where that is not available, to scaled_dot_product_attention with a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Bounds:
    """Where the sequences of a packed batch begin and end, over all its rows."""

    offsets: Tensor
    """(sequences + 1), int32, from 0 to the number of tokens; further sequences may be empty."""
    longest: int


def bounds_of(position_ids: Tensor) -> Bounds:
    """Bounds from positions that start again at 0 with each sequence. Reads them back from the GPU."""
    flat = position_ids.flatten()
    starts = (flat == 0).nonzero().flatten()
    offsets = torch.cat((starts, torch.tensor([len(flat)], device=starts.device)))
    return Bounds(offsets.to(torch.int32), int(offsets.diff().max()))


def attention_reference(query: Tensor, key: Tensor, value: Tensor, bounds: Bounds | None, scale: float) -> Tensor:
    """Inputs are (rows, tokens, heads, width). Softmax written out; the mask allows earlier tokens of the same sequence."""
    rows, tokens, heads, _ = query.shape
    if bounds is None:
        sequence = torch.arange(rows, device=query.device).repeat_interleave(tokens)
    else:
        sequence = torch.searchsorted(bounds.offsets[1:], torch.arange(rows * tokens, device=query.device), right=True)
    groups = heads // key.shape[2]
    q, k, v = (part.flatten(0, 1).transpose(0, 1) for part in (query, key, value))
    k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
    allowed = (sequence[:, None] == sequence[None, :]).tril()
    weights = (q @ k.transpose(1, 2) * scale).masked_fill(~allowed, float("-inf")).softmax(-1)
    return (weights @ v).transpose(0, 1).unflatten(0, (rows, tokens))


def has_varlen_kernel(tensor: Tensor) -> bool:
    """Whether torch's flash kernel takes such tensors."""
    return tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16) and torch.cuda.get_device_capability(tensor.device) >= (8, 0)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, bounds: Bounds | None, scale: float) -> Tensor:
    """`attention_reference` by fused kernels."""
    if bounds is None:
        q, k, v = (part.transpose(1, 2) for part in (query, key, value))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True).transpose(1, 2)
    rows, tokens = query.shape[:2]
    q, k, v = (part.flatten(0, 1) for part in (query, key, value))
    if has_varlen_kernel(query):
        ends = (bounds.offsets, bounds.offsets, bounds.longest, bounds.longest)
        mixed: Tensor = torch.ops.aten._flash_attention_forward(q, k, v, *ends, 0.0, True, False, scale=scale)[0]
        return mixed.unflatten(0, (rows, tokens))
    sequence = torch.searchsorted(bounds.offsets[1:], torch.arange(rows * tokens, device=query.device), right=True)
    allowed = (sequence[:, None] == sequence[None, :]).tril()
    q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale, enable_gqa=True)
    return mixed[0].transpose(0, 1).unflatten(0, (rows, tokens))
