"""The CNN as matrix products against the CNN itself, over odd lengths and signals."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import Wav2Vec2Config, Wav2Vec2Model  # noqa: E402

from seatrial_workloads.contrastive.fast.front_end import MatrixFrontEnd, applies_to  # noqa: E402

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "num_conv_pos_embedding_groups": 2}


def make(**config) -> Wav2Vec2Model:
    torch.manual_seed(0)
    model = Wav2Vec2Model(Wav2Vec2Config(**{**SMALL, "conv_dim": (24,) * 7, **config})).eval()
    for layer in model.feature_extractor.conv_layers:
        # Random weights of the usual size fade to nothing over seven layers: differences could not be seen.
        torch.nn.init.normal_(layer.conv.weight, std=0.3)
    return model


def plain(model: Wav2Vec2Model, audio: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.feature_extractor(audio).transpose(1, 2)


@pytest.mark.parametrize("samples", [400, 401, 719, 720, 7777, 16000, 31999, 32000])
@pytest.mark.parametrize("rows", [1, 3])
def test_same_features_at_odd_lengths(rows, samples):
    model = make()
    audio = torch.randn(rows, samples, generator=torch.Generator().manual_seed(samples))
    expected = plain(model, audio)
    actual = MatrixFrontEnd(model, torch.float32)(audio)
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3 * expected.abs().max().item())


@pytest.mark.parametrize(
    "config", [{"conv_bias": True}, {"conv_kernel": (10, 4, 3, 2), "conv_stride": (5, 2, 3, 2), "conv_dim": (8, 12, 16, 20)}]
)
def test_same_features_for_other_shapes_of_cnn(config):
    config = {"num_feat_extract_layers": 4, **config} if "conv_kernel" in config else config
    model = make(**config)
    audio = torch.randn(2, 5001)
    torch.testing.assert_close(MatrixFrontEnd(model, torch.float32)(audio), plain(model, audio), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "audio",
    [
        torch.zeros(2, 2000),
        torch.ones(2, 2000),
        torch.sin(torch.arange(4000.0) / 400).expand(2, -1) * 1e3,
        torch.cat((torch.randn(2, 1000), torch.zeros(2, 3000)), dim=1),
    ],
    ids=["silence", "constant", "loud hum", "zeros behind the end"],
)
def test_same_features_for_odd_signals(audio):
    model = make()
    expected = plain(model, audio)
    torch.testing.assert_close(
        MatrixFrontEnd(model, torch.float32)(audio), expected, rtol=1e-2, atol=1e-2 * max(1, expected.abs().max().item())
    )


def test_bf16_is_as_near_to_the_truth_as_the_cnn_in_bf16():
    model = make()
    audio = torch.randn(2, 16000)
    truth = plain(model, audio)
    own_error = (MatrixFrontEnd(model, torch.bfloat16)(audio).float() - truth).abs().mean()
    model.feature_extractor.bfloat16()
    plain_error = (plain(model, audio.bfloat16()).float() - truth).abs().mean()
    assert own_error < 1.5 * plain_error


def test_frames_that_are_kept_do_not_depend_on_neighbours():
    model, audio = make(), torch.randn(3, 7777)
    front_end = MatrixFrontEnd(model, torch.float32)
    alone = torch.cat([front_end(row.unsqueeze(0)) for row in audio])
    torch.testing.assert_close(front_end(audio), alone, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, ""),
        ({"feat_extract_norm": "layer"}, "normalises by layer"),
        ({"feat_extract_activation": "relu"}, "activation is relu"),
        ({"conv_kernel": (11, 3, 3, 3, 3, 2, 2)}, "longer than twice"),
    ],
)
def test_what_it_cannot_stand_for_is_said(config, reason):
    said = applies_to(Wav2Vec2Config(**config))
    assert reason in said
    assert bool(said) == bool(reason)


def test_it_adds_nothing_to_a_checkpoint():
    assert MatrixFrontEnd(make(), torch.float32).state_dict() == {}
