"""RMSNorm with the residual sum, rotary positions and SwiGLU: one kernel forward, one backward, each beside its plain reference.

Each is an autograd function whose two formulas are written out. On a GPU torch.compile fuses a formula into one kernel, once per shape;
on the CPU the same formulas run as they stand. They compute in fp32 and round their result. Weights of the norms are frozen: they get no
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@cache
def _compiled(formula: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(formula, fullgraph=True)
    return compiled


def fused(formula: Callable[..., Any], *inputs: Any) -> Any:
    """Compute the formula, as one kernel where the first input is on a GPU."""
    # A formula inside a compiled region is fused with what is around it.
    plain = torch.compiler.is_compiling() or not inputs[0].is_cuda
    return formula(*inputs) if plain else _compiled(formula)(*inputs)


def rms_norm_reference(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Computed as in transformers."""
    wide = hidden.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * scaled.to(hidden.dtype)


def _norm(hidden: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = hidden.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * inverse).to(hidden.dtype), inverse


def _add_norm(hidden: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    total = hidden + delta
    return total, *_norm(total, weight, eps)


def _norm_backward(hidden: Tensor, weight: Tensor, inverse: Tensor, grad_normed: Tensor, grad_hidden: Tensor) -> Tensor:
    scaled = hidden.float() * inverse
    grad = grad_normed.float() * weight.float()
    grad = inverse * (grad - scaled * (grad * scaled).mean(-1, keepdim=True))
    return (grad + grad_hidden.float()).to(hidden.dtype)


class _RMSNorm(torch.autograd.Function):
    """(hidden, delta or None) → (hidden + delta, its norm). The sum goes through, so that both gradients meet in one kernel."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        if delta is None:
            total = hidden.view_as(hidden)
            normed, inverse = fused(_norm, hidden, weight, eps)
        else:
            total, normed, inverse = fused(_add_norm, hidden, delta, weight, eps)
        ctx.save_for_backward(total, weight, inverse)
        ctx.has_delta = delta is not None
        return total, normed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_total, grad_normed = grads
        total, weight, inverse = ctx.saved_tensors
        grad = fused(_norm_backward, total, weight, inverse, grad_normed, grad_total)
        return grad, grad if ctx.has_delta else None, None, None


def add_rms_norm(hidden: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """hidden + delta, and its norm."""
    total, normed = _RMSNorm.apply(hidden, delta, weight, eps)
    return total, normed


def rope_reference(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(…, (heads + 2 kv_heads) · width) → queries and keys rotated, values; each (…, heads, width)."""
    query, key, value = _split_heads(qkv, heads, kv_heads)

    def rotated(part: Tensor) -> Tensor:
        first, second = part.chunk(2, dim=-1)
        return part * cos.unsqueeze(-2) + torch.cat((-second, first), dim=-1) * sin.unsqueeze(-2)

    return rotated(query), rotated(key), value


def _split_heads(qkv: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = qkv.unflatten(-1, (heads + 2 * kv_heads, -1)).split((heads, kv_heads, kv_heads), dim=-2)
    return query, key, value


def _rotate(part: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = part.shape[-1] // 2
    first, second = part[..., :half].float(), part[..., half:].float()
    cos, sin = cos.unsqueeze(-2).float(), sin.unsqueeze(-2).float()
    turned = (first * cos[..., :half] - second * sin[..., :half], second * cos[..., half:] + first * sin[..., half:])
    return torch.cat(turned, dim=-1).to(part.dtype)


def _rotate_back(grad: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = grad.shape[-1] // 2
    first, second = grad[..., :half].float(), grad[..., half:].float()
    cos, sin = cos.unsqueeze(-2).float(), sin.unsqueeze(-2).float()
    turned = (first * cos[..., :half] + second * sin[..., half:], second * cos[..., half:] - first * sin[..., :half])
    return torch.cat(turned, dim=-1).to(grad.dtype)


def _rope(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    query, key, _ = _split_heads(qkv, heads, kv_heads)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


def _rope_backward(grad_query: Tensor, grad_key: Tensor, grad_value: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    parts = (_rotate_back(grad_query, cos, sin), _rotate_back(grad_key, cos, sin), grad_value)
    return torch.cat(parts, dim=-2).flatten(-2)


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        query, key = fused(_rope, qkv, cos, sin, heads, kv_heads)
        return query, key, _split_heads(qkv, heads, kv_heads)[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return fused(_rope_backward, *grads, *ctx.saved_tensors), None, None, None, None


def rope(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """`rope_reference`, with the gradient of the stacked projection in one piece."""
    query, key, value = _Rope.apply(qkv, cos, sin, heads, kv_heads)
    return query, key, value


def swiglu_reference(gate_up: Tensor) -> Tensor:
    """(…, 2 · width), gates first → (…, width)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


def _swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return (functional.silu(gate.float()) * up.float()).to(gate_up.dtype)


def _swiglu_backward(gate_up: Tensor, grad: Tensor) -> Tensor:
    gate, up = (part.float() for part in gate_up.chunk(2, dim=-1))
    wide, open_ = grad.float(), torch.sigmoid(gate)
    grad_gate = wide * up * open_ * (1 + gate * (1 - open_))
    return torch.cat((grad_gate, wide * gate * open_), dim=-1).to(gate_up.dtype)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        activated: Tensor = fused(_swiglu, gate_up)
        return activated

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        grad: Tensor = fused(_swiglu_backward, ctx.saved_tensors[0], grads[0])
        return grad


def swiglu(gate_up: Tensor) -> Tensor:
    """`swiglu_reference`, keeping nothing but its input for the backward pass."""
    activated: Tensor = _SwiGLU.apply(gate_up)
    return activated
