"""Selected and sliding-window branches with FlexAttention: tiles of 128 × 128, and a mask evaluated inside each. CUDA only.

The sequence length alone decides which tiles exist: all causal ones for the selected branch (over 128 queries the union of selected
blocks is nearly everything at the lengths this path is for), a band for the window. Nothing is read from the scores on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seatrial_workloads.sparse_lm.ops.selection import block_bytes
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

TILE = 128


def selected(query: Tensor, key: Tensor, value: Tensor, bits: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    """`bits` (batch, groups, S, words) from `selection.block_bits`."""
    return _fused(_selected)(query, key, value, bits, starts, shape)


def window(query: Tensor, key: Tensor, value: Tensor, shape: ModelShape, starts: Tensor | None = None) -> Tensor:
    return _fused(_window)(query, key, value, starts, shape)


def _fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """FlexAttention is a kernel only when compiled: compile it, unless the caller is being compiled."""
    return function if torch.compiler.is_compiling() else _compiled(function)


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # With fullgraph torch raises beyond its recompile limit (8 shapes), where it would run FlexAttention without its kernel.
    return torch.compile(function, dynamic=False, fullgraph=True)


def _selected(query: Tensor, key: Tensor, value: Tensor, bits: Tensor, starts: Tensor | None, shape: ModelShape) -> Tensor:
    heads, block = shape.heads_per_group, shape.sel_block
    # Up to 64 blocks, one word serves all keys: read once per query and tile. Beyond, the kernel reads per query and key, and its shared
    # memory holds bytes but not words.
    word, chosen = bits[..., 0].contiguous(), None if bits.shape[-1] == 1 else block_bytes(bits)

    def keep(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        group, of = h // heads, kv // block
        in_block = ((word[b, group, q] >> of) & 1) == 1 if chosen is None else chosen[b, group, q, of] == 1
        seen = in_block & (kv <= q)
        return seen if starts is None else seen & (kv >= starts[b, q])

    return _flex(query, key, value, keep, reach=query.shape[2])


def _window(query: Tensor, key: Tensor, value: Tensor, starts: Tensor | None, shape: ModelShape) -> Tensor:
    size = shape.window

    def keep(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        seen = (kv <= q) & (q - kv < size)
        return seen if starts is None else seen & (kv >= starts[b, q])

    return _flex(query, key, value, keep, reach=size)


def _flex(query: Tensor, key: Tensor, value: Tensor, keep: Callable[..., Tensor], reach: int) -> Tensor:
    """Attention over the causal tiles whose keys are at most `reach` tokens back."""
    # Imported here: it takes a while, and CPU paths need none of it.
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    seq_len = query.shape[2]
    tile = torch.arange(-(-seq_len // TILE), device=query.device)
    nearest = ((tile * TILE - reach + 1).clamp(min=0) // TILE).int()
    count = (tile + 1 - nearest).int()
    indices = (nearest[:, None] + tile).clamp(max=tile.shape[0] - 1).int()
    mask: Any = BlockMask.from_kv_blocks(
        count[None, None], indices[None, None], BLOCK_SIZE=TILE, mask_mod=keep, seq_lengths=(seq_len, seq_len)
    )
    return flex_attention(query, key, value, block_mask=mask, enable_gqa=True)
