"""Frozen linear layers with LoRA that share an input, as one product with the frozen weights and one with all adapters.

    y = x Wᵀ + (x Aᵀ) Bᵀ        W the frozen weights stacked, A stacked, B block-diagonal with the scaling in it
    dx = dy W + (dy B) A         no gradient for W

Where the output is much wider than the input, adding (x Aᵀ) Bᵀ to it costs memory traffic: there x and x Aᵀ side by side are multiplied by
W and B side by side, one product instead of two. The same for dx where the input is much wider.

Adapters keep their own weights (fp32, as PEFT has them over 16-bit models); the products use copies in the format of W, as autocast would,
and accumulate in fp32. `Stack.refresh` writes these copies, once per forward pass of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from seatrial_workloads.sft.fast import padding_of_stack
from seatrial_workloads.sft.fast.elementwise import fused


def lora_reference(x: Tensor, weights: Sequence[Tensor], adapters: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Each layer computed separately, outputs side by side; an adapter is (A, B, scaling)."""
    outputs = [
        functional.linear(x, weight) + (functional.linear(functional.linear(x.to(a.dtype), a), b) * scaling).to(x.dtype)
        for weight, (a, b, scaling) in zip(weights, adapters, strict=True)
    ]
    return torch.cat(outputs, dim=-1)


def why_not_stackable(layers: Sequence[nn.Module]) -> str:
    """Why PEFT's layers cannot be stacked; empty where they can."""
    for layer in layers:
        if not hasattr(layer, "lora_A"):
            return "a projection has no adapter"
        if list(layer.lora_A) != list(layer.active_adapters) or len(layer.lora_A) != 1:
            return "more than one adapter, or one that is not active"
        name = layer.active_adapters[0]
        if layer.merged or layer.disable_adapters:
            return "adapters are merged or disabled"
        if not isinstance(layer.base_layer, nn.Linear) or layer.base_layer.bias is not None or getattr(layer, "fan_in_fan_out", False):
            return "a projection has a bias, or is not a plain linear layer"
        if layer.base_layer.weight.requires_grad:
            return "the projections' own weights are trained"
        if layer.lora_variant or layer.lora_bias.get(name):
            return "a variant of LoRA (DoRA, bias)"
    return ""


class Stack:
    """PEFT's linear layers that share an input. Their frozen weights become views of one matrix."""

    def __init__(self, layers: Sequence[Any]) -> None:
        names = [layer.active_adapters[0] for layer in layers]
        self.bases = [layer.base_layer for layer in layers]
        self.a_s = [layer.lora_A[name].weight for layer, name in zip(layers, names, strict=True)]
        self.b_s = [layer.lora_B[name].weight for layer, name in zip(layers, names, strict=True)]
        self.scalings = [float(layer.scaling[name]) for layer, name in zip(layers, names, strict=True)]
        self.dropout = max(getattr(layer.lora_dropout[name], "p", 0.0) for layer, name in zip(layers, names, strict=True))
        self.rows = _slices(base.weight.shape[0] for base in self.bases)
        self.ranks = _slices(a.shape[0] for a in self.a_s)
        self._allocate()
        self.refresh()

    def _allocate(self) -> None:
        """`joint` is W with B beside it (wide output) or A below it (wide input), with some room; else W alone."""
        first = self.bases[0].weight.detach()
        outputs, inputs, rank = self.rows[-1].stop, first.shape[1], self.ranks[-1].stop
        below, beside = padding_of_stack(outputs, inputs, rank)
        self.widens, self.narrows = beside > 0, below > 0
        self.joint = first.new_zeros(outputs + below, inputs + beside)
        self.weight = self.joint[:outputs, :inputs]
        for base, rows in zip(self.bases, self.rows, strict=True):
            self.weight[rows] = base.weight.detach()
            base.weight.data = self.weight[rows]
        self.a = self.joint[outputs : outputs + rank] if self.narrows else first.new_zeros(rank, inputs)
        self.b = self.joint[:, inputs : inputs + rank] if self.widens else first.new_zeros(outputs, rank)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the adapters' current weights into the stacked ones."""
        for a, b, scaling, rows, ranks in zip(self.a_s, self.b_s, self.scalings, self.rows, self.ranks, strict=True):
            self.a[ranks].copy_(a)
            torch.mul(b, scaling, out=self.b[rows, ranks])

    def restore(self) -> None:
        """Give each layer a weight of its own again."""
        for base in self.bases:
            base.weight.data = base.weight.data.clone()

    def __call__(self, x: Tensor) -> Tensor:
        """All outputs side by side, in training."""
        # The format is that of the frozen weights, whatever autocast would choose.
        with torch.autocast(x.device.type, enabled=False):
            output: Tensor = _Lora.apply(x.to(self.weight.dtype), self, *self.a_s, *self.b_s)
        return output


def _slices(sizes: Iterable[int]) -> list[slice]:
    return [slice(*ends) for ends in pairwise([0, *accumulate(sizes)])]


def _beside(left: Tensor, right: Tensor, width: int) -> Tensor:
    """The two side by side, padded with zeros to `width`."""
    joined = left.new_empty(len(left), width)
    end = left.shape[1] + right.shape[1]
    joined[:, : left.shape[1]] = left
    joined[:, left.shape[1] : end] = right
    joined[:, end:] = 0
    return joined


def _dropped(given: Tensor, keep: Tensor, dropout: float) -> Tensor:
    return (given * keep / (1 - dropout)).to(given.dtype)


def _plus_dropped(total: Tensor, given: Tensor, keep: Tensor, dropout: float) -> Tensor:
    return total + _dropped(given, keep, dropout)


def _product_fp32(left: Tensor, right: Tensor) -> Tensor:
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).float()


class _Lora(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stack: Stack, *adapters: Tensor) -> Tensor:
        dropout = stack.dropout
        tokens = x.reshape(-1, x.shape[-1])
        # One mask for the layers that share the input, where PEFT draws one for each.
        keep = torch.empty_like(tokens, dtype=torch.bool).bernoulli_(1 - dropout) if dropout else None
        dropped = tokens if keep is None else fused(_dropped, tokens, keep, dropout)
        inner = dropped @ stack.a.T
        if stack.widens:
            output = _beside(tokens, inner, stack.joint.shape[1]) @ stack.joint.T
        else:
            output = (tokens @ stack.weight.T).addmm_(inner, stack.b.T)
        # The copies of the adapters are not saved: `refresh` writes the same values until the optimiser's next step.
        ctx.save_for_backward(tokens, inner, *(() if keep is None else (keep,)))
        ctx.stack, ctx.shape = stack, x.shape
        return output.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tokens, inner, *masks = ctx.saved_tensors
        stack: Stack = ctx.stack
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        grad_inner = grad @ stack.b
        dropped = fused(_dropped, tokens, masks[0], stack.dropout) if masks else tokens
        grad_a, grad_b = _product_fp32(grad_inner.T, dropped), _product_fp32(grad.T, inner)
        grads_a = [grad_a[ranks].to(a.dtype) for a, ranks in zip(stack.a_s, stack.ranks, strict=True)]
        parts = zip(stack.b_s, stack.scalings, stack.rows, stack.ranks, strict=True)
        grads_b = [(grad_b[rows, ranks] * scaling).to(b.dtype) for b, scaling, rows, ranks in parts]
        return _grad_x(ctx, grad, grad_inner, masks) if ctx.needs_input_grad[0] else None, None, *grads_a, *grads_b


def _grad_x(ctx: Any, grad: Tensor, grad_inner: Tensor, masks: Sequence[Tensor]) -> Tensor:
    stack: Stack = ctx.stack
    if masks:
        grad_x = fused(_plus_dropped, grad @ stack.weight, grad_inner @ stack.a, masks[0], stack.dropout)
    elif stack.narrows:
        grad_x = _beside(grad, grad_inner, stack.joint.shape[0]) @ stack.joint
    else:
        grad_x = (grad @ stack.weight).addmm_(grad_inner, stack.a)
    return grad_x.view(ctx.shape)
