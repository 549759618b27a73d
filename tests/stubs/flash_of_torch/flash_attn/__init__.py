"""The functions of the package flash_attn that transformers calls, on torch's own build of FlashAttention 2: for GPU machines where the
package itself cannot be installed (`PYTHONPATH=tests/stubs/flash_of_torch`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, **unused: Any
) -> Tensor:
    """(rows, tokens, heads, width)."""
    lengths = (None, None, q.shape[1], k.shape[1])
    mixed: Tensor = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, dropout_p, causal, False, scale=softmax_scale)[0]
    return mixed


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
    **unused: Any,
) -> Tensor:
    """(tokens of all sequences, heads, width)."""
    lengths = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    mixed: Tensor = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, dropout_p, causal, False, scale=softmax_scale)[0]
    return mixed


def flash_attn_with_kvcache(*given: Any, **named: Any) -> Tensor:
    raise NotImplementedError("torch has no such kernel")
