"""The functions of the package flash_attn that transformers calls, on torch's own build of FlashAttention 2: for GPU machines where the
package itself cannot be installed (`PYTHONPATH=tests/stubs/flash_of_torch`). transformers passes on only what the signatures here name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NO_WINDOW = (-1, -1)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = NO_WINDOW,
) -> Tensor:
    """(rows, tokens, heads, width)."""
    return _attention(q, k, v, (None, None, q.shape[1], k.shape[1]), dropout_p, softmax_scale, causal, window_size)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = NO_WINDOW,
) -> Tensor:
    """(tokens of all sequences, heads, width)."""
    lengths = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    return _attention(q, k, v, lengths, dropout_p, softmax_scale, causal, window_size)


def flash_attn_with_kvcache(*given: Any, **named: Any) -> Tensor:
    raise NotImplementedError("torch has no such kernel")


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: tuple[Tensor | None, Tensor | None, int, int],
    dropout_p: float,
    scale: float | None,
    causal: bool,
    window: tuple[int, int],
) -> Tensor:
    if tuple(window) != NO_WINDOW:
        raise NotImplementedError("a sliding window is not passed on to torch's kernel here")
    mixed: Tensor = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, dropout_p, causal, False, scale=scale)[0]
    return mixed
