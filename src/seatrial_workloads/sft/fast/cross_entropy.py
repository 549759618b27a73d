"""Cross entropy from hidden states and a frozen head, chunk by chunk: all logits never exist at once.

The forward pass also computes the gradient of the hidden states, as the head needs none: a chunk's logits are computed only once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from seatrial_workloads.sft.fast import CHUNK
from seatrial_workloads.sft.fast.elementwise import fused

IGNORED = -100


def cross_entropy_reference(hidden: Tensor, head: Tensor, targets: Tensor, num_items: Tensor | int | None = None) -> Tensor:
    """Computed as in transformers: all logits, in fp32."""
    logits = functional.linear(hidden, head).float()
    if num_items is None:
        return functional.cross_entropy(logits, targets, ignore_index=IGNORED)
    return functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum") / num_items


def _loss_and_gradient(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the chunk's losses, and the gradient of its logits; both times `scale`."""
    wide = logits.float()
    log_probs = wide - wide.logsumexp(-1, keepdim=True)
    is_target = torch.arange(logits.shape[-1], device=logits.device) == targets.unsqueeze(-1)
    counts = (targets != IGNORED).unsqueeze(-1)
    loss = -torch.where(is_target & counts, log_probs, 0.0).sum()
    grad = torch.where(counts, log_probs.exp() - is_target.float(), 0.0) * scale
    return loss * scale, grad.to(logits.dtype)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, num_items: Tensor) -> Tensor:
        scale = 1.0 / num_items.float()
        loss = torch.zeros((), device=hidden.device)
        grad = torch.empty_like(hidden)
        for start in range(0, len(hidden), CHUNK):
            rows = slice(start, start + CHUNK)
            part, grad_logits = fused(_loss_and_gradient, hidden[rows] @ head.T, targets[rows], scale)
            loss += part
            torch.mm(grad_logits, head, out=grad[rows])
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * grads[0].to(ctx.saved_tensors[0].dtype), None, None, None


def linear_cross_entropy(hidden: Tensor, head: Tensor, targets: Tensor, num_items: Tensor | int | None = None) -> Tensor:
    """Mean over targets that are not -100, or their sum over `num_items`; hidden (tokens, width), head (vocabulary, width)."""
    if num_items is None:
        num_items = (targets != IGNORED).sum()
    loss: Tensor = _LinearCrossEntropy.apply(hidden, head, targets, torch.as_tensor(num_items, device=hidden.device))
    return loss
