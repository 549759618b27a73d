"""Each fast part of LoRA fine-tuning against its plain reference, forward and gradients, over odd shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from seatrial_workloads.sft.fast.attention import Bounds, attention_reference, bounds_of, causal_attention
from seatrial_workloads.sft.fast.cross_entropy import CHUNK, IGNORED, cross_entropy_reference, linear_cross_entropy
from seatrial_workloads.sft.fast.elementwise import (
    add_rms_norm,
    rms_norm_reference,
    rope,
    rope_reference,
    swiglu,
    swiglu_reference,
)
from seatrial_workloads.sft.fast.lora import Stack, lora_reference

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(output: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Of a weighted sum, so that no gradient is zero by symmetry."""
    return list(torch.autograd.grad((output * random(*output.shape, seed=9)).sum(), inputs))


def assert_alike(fast: list[Tensor], plain: list[Tensor]) -> None:
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("width", [1, 7, 64])
def test_rms_norm(width: int) -> None:
    hidden, delta = random(3, 5, width).requires_grad_(), random(3, 5, width, seed=1).requires_grad_()
    weight = random(width, seed=2)
    total, normed = add_rms_norm(hidden, delta, weight, 1e-5)
    plain = hidden + delta
    # The sum is used again after the norm, as the residual is.
    fast_grads = gradients(normed * total, hidden, delta)
    plain_normed = rms_norm_reference(plain, weight, 1e-5)
    assert_alike([total, normed, *fast_grads], [plain, plain_normed, *gradients(plain_normed * plain, hidden, delta)])
    first, alone = add_rms_norm(hidden, None, weight, 1e-5)
    plain_alone = rms_norm_reference(hidden, weight, 1e-5)
    assert_alike([alone, *gradients(alone + first, hidden)], [plain_alone, *gradients(plain_alone + hidden, hidden)])


@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(1, 1, 2), (6, 2, 8), (4, 4, 6)])
def test_rope(heads: int, kv_heads: int, width: int) -> None:
    qkv = random(2, 7, (heads + 2 * kv_heads) * width).requires_grad_()
    # Not the same in both halves, as some scalings of positions have it.
    cos, sin = random(1, 7, width, seed=1).cos(), random(1, 7, width, seed=2).sin()
    fast, plain = rope(qkv, cos, sin, heads, kv_heads), rope_reference(qkv, cos, sin, heads, kv_heads)
    assert_alike(list(fast), list(plain))
    joined = [torch.cat([part.flatten() for part in parts]) for parts in (fast, plain)]
    assert_alike(gradients(joined[0], qkv), gradients(joined[1], qkv))


@pytest.mark.parametrize("width", [1, 9, 32])
def test_swiglu(width: int) -> None:
    gate_up = random(3, 5, 2 * width).requires_grad_()
    fast, plain = swiglu(gate_up), swiglu_reference(gate_up)
    assert_alike([fast, *gradients(fast, gate_up)], [plain, *gradients(plain, gate_up)])


@pytest.mark.parametrize(("tokens", "items"), [(1, None), (CHUNK + 3, None), (37, 11)])
def test_cross_entropy(tokens: int, items: int | None) -> None:
    hidden, head = random(tokens, 5).requires_grad_(), random(13, 5, seed=1)
    targets = torch.randint(0, 13, (tokens,), generator=torch.Generator().manual_seed(2))
    targets[1::3] = IGNORED
    fast, plain = linear_cross_entropy(hidden, head, targets, items), cross_entropy_reference(hidden, head, targets, items)
    # An upstream factor, as gradient accumulation has it.
    assert_alike([fast, *torch.autograd.grad(fast * 0.5, hidden)], [plain, *torch.autograd.grad(plain * 0.5, hidden)])


BOUNDS = [None, Bounds(torch.tensor([0, 1, 8, 14], dtype=torch.int32), 7), Bounds(torch.tensor([0, 14, 14], dtype=torch.int32), 14)]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (6, 2)])
def test_attention(bounds: Bounds | None, heads: int, kv_heads: int) -> None:
    inputs = [random(2, 7, count, 8, seed=count).requires_grad_() for count in (heads, kv_heads, kv_heads)]
    fast, plain = causal_attention(*inputs, bounds, 0.3), attention_reference(*inputs, bounds, 0.3)
    assert_alike([fast, *gradients(fast, *inputs)], [plain, *gradients(plain, *inputs)])


def test_bounds_come_from_positions_that_start_again() -> None:
    bounds = bounds_of(torch.tensor([[0, 1, 2, 0, 0, 1, 0, 1]]))
    assert (bounds.offsets.tolist(), bounds.longest) == ([0, 3, 4, 6, 8], 3)


class Projections(nn.Module):
    def __init__(self, widths: list[int], dtype: torch.dtype) -> None:
        super().__init__()
        self.config: dict[str, Any] = {}
        self.layers = nn.ModuleList(nn.Linear(11, width, bias=False, dtype=dtype) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([layer(x) for layer in self.layers], dim=-1)


def adapted(widths: list[int], rank: int, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    targets = [f"layers.{index}" for index in range(len(widths))]
    config = LoraConfig(r=rank, lora_alpha=3 * rank, lora_dropout=dropout, target_modules=targets, init_lora_weights=False)
    model = get_peft_model(Projections(widths, dtype), config)
    return list(model.base_model.model.layers), model


@pytest.mark.parametrize(("widths", "rank"), [([5], 1), ([4, 2, 2], 3), ([13, 13], 8)])
def test_lora(widths: list[int], rank: int) -> None:
    layers, model = adapted(widths, rank)
    plain_weights = [layer.base_layer.weight.detach().clone() for layer in layers]
    adapters = [(layer.lora_A.default.weight, layer.lora_B.default.weight, layer.scaling["default"]) for layer in layers]
    trained = [weight for a, b, _ in adapters for weight in (a, b)]
    x = random(2, 3, 11).requires_grad_()
    stock = model(x)
    plain = lora_reference(x, plain_weights, adapters)
    stack = Stack(layers)
    fast = stack(x)
    assert_alike([fast, plain], [stock, stock])
    assert_alike(gradients(fast, x, *trained), gradients(plain, x, *trained))
    # PEFT's own modules still compute with the same weights, and so they do after the stack is gone.
    assert_alike([model(x)], [stock])
    stack.restore()
    assert_alike([model(x)], [stock])


def test_adapters_follow_the_optimiser() -> None:
    layers, model = adapted([4, 2], 2)
    stack, x = Stack(layers), random(3, 11)
    with torch.no_grad():
        layers[1].lora_B.default.weight.mul_(2)
    stack.refresh()
    assert_alike([stack(x)], [model(x)])


def test_dropout_has_the_mean_of_the_adapters_and_gradients_of_its_own_mask() -> None:
    layers, model = adapted([6], 2, dropout=0.5)
    stack, x = Stack(layers), random(1, 11).requires_grad_()
    torch.manual_seed(1)
    mean = torch.stack([stack(x) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, model.eval()(x), rtol=0.1, atol=0.1)
    torch.manual_seed(2)
    output = stack(x)
    torch.manual_seed(2)
    shifted = stack(x + 1e-3)
    predicted = output + 1e-3 * torch.autograd.functional.jvp(lambda given: _same_mask(stack, given), x.detach(), torch.ones_like(x))[1]
    torch.testing.assert_close(shifted, predicted, rtol=1e-4, atol=1e-5)


def _same_mask(stack: Stack, x: Tensor) -> Tensor:
    torch.manual_seed(2)
    return stack(x)
