"""The positional convolution by Fourier transform against the convolution itself, forward and gradient, over odd shapes."""

from __future__ import annotations

import copy

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import Wav2Vec2Config, Wav2Vec2Model  # noqa: E402

from seatrial_workloads.contrastive.fast.positions import FourierPositions, smooth_length  # noqa: E402


def make(taps: int, groups: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=taps,
        num_conv_pos_embedding_groups=groups,
    )
    return Wav2Vec2Model(config).encoder.pos_conv_embed


@pytest.mark.parametrize("frames", [1, 2, 7, 16, 49, 99, 149])
@pytest.mark.parametrize(("taps", "groups", "width"), [(16, 4, 24), (128, 2, 6), (5, 1, 3)])
def test_same_result_and_same_gradients(frames, taps, groups, width):
    plain = make(taps, groups, width)
    fast = FourierPositions(copy.deepcopy(plain))
    hidden = torch.randn(2, frames, width)
    wanted = torch.randn(2, frames, width)
    found = []
    for module in (plain, fast):
        own = hidden.clone().requires_grad_()
        out = module(own)
        out.backward(wanted)
        found.append([out.detach(), own.grad, *(parameter.grad for parameter in module.parameters())])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * max(1, expected.abs().max().item()))


def test_names_of_parameters_stay_so_that_checkpoints_fit():
    plain = make(16, 4, 24)
    assert list(FourierPositions(plain).state_dict()) == list(plain.state_dict())


def test_bf16_keeps_its_type():
    fast = FourierPositions(make(16, 4, 24)).bfloat16()
    assert fast(torch.randn(1, 9, 24, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("least", "length"), [(1, 1), (7, 8), (226, 240), (128, 128)])
def test_lengths_are_the_next_with_small_factors(least, length):
    expected = next(n for n in range(least, 10 * least + 10) if _only_small_factors(n))
    assert smooth_length(least) == expected
    assert smooth_length(least) <= length


def _only_small_factors(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1
