"""Forecasts of memory against autograd itself, to the byte, on a CPU: which tensors are kept does not depend on the device, but for the
differences that `Formats` names. Against GPUs: docs/memory-forecast.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from seatrial_workloads.common.memory import Activations, Formats
from tests.workloads.saved_bytes import autocast, saved_bytes, without_dropout

FP32, CPU_BF16 = Formats(compute=4, fused_rms_norm=False), Formats(compute=2, norm=2, fused_rms_norm=False)
BOTH = pytest.mark.parametrize("formats", [FP32, CPU_BF16], ids=["fp32", "bf16"])


def kept(activations: Activations, log_softmax: int = 0) -> int:
    """What autograd keeps: of the logits only their log-softmax."""
    return sum(activations.saved.values()) + activations.weight_copies + log_softmax


@BOTH
def test_tiny_lm(formats: Formats) -> None:
    from seatrial_workloads.tiny_lm import memory
    from seatrial_workloads.tiny_lm.model import TinyLM, next_token_loss
    from seatrial_workloads.tiny_lm.settings import Settings

    settings = Settings(d_model=64, n_layers=3, n_heads=4, seq_len=16, vocab_size=320, micro_batch=2)
    model, ids = TinyLM(settings), torch.randint(0, 320, (2, 16))

    def loss() -> torch.Tensor:
        with autocast(formats.compute):
            logits = model(ids)
        return next_token_loss(logits, ids)

    assert model.num_parameters == memory.num_parameters(settings)
    expected = kept(memory.activations(settings, formats), log_softmax=2 * 16 * 320 * 4)
    assert saved_bytes(loss, [*model.parameters(), ids]) == expected


@BOTH
@pytest.mark.parametrize("checkpointing", [False, True])
def test_sparse_lm(formats: Formats, checkpointing: bool) -> None:
    from seatrial_workloads.sparse_lm import memory
    from seatrial_workloads.sparse_lm.model import SparseLM
    from seatrial_workloads.sparse_lm.settings import Settings

    settings = Settings(dim=64, n_layers=2, seq_len=72, gradient_checkpointing=checkpointing, selected_path="mask")
    shape = settings.shape(256)
    model = SparseLM(shape, paths=settings.attention_paths(), gradient_checkpointing=checkpointing).train()
    ids = torch.randint(0, 256, (3, 72))

    def loss() -> torch.Tensor:
        with autocast(formats.compute):
            return model(ids, ids)

    # The residual stream is fp32, on a CPU too.
    counted = memory.activations(settings, shape, 3, dataclasses.replace(formats, norm=4), device="cpu")
    found = saved_bytes(loss, [*model.parameters(), ids])
    if checkpointing:
        # Casts within a recomputed block are not kept, and the first layer's input is the embedding's output.
        assert found == pytest.approx(sum(counted.saved.values()) + 3 * 72 * 256 * 4 + formats.compute % 4 * 256 * 64, rel=0.01)
    else:
        assert found == kept(counted, log_softmax=3 * 72 * 256 * 4)


@BOTH
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("fast_paths", ["none", "positions"])
def test_contrastive(formats: Formats, attention: str, fast_paths: str) -> None:
    from seatrial_workloads.contrastive import memory
    from seatrial_workloads.contrastive.model import shapes
    from seatrial_workloads.contrastive.model.encoders import speech_model, text_model
    from seatrial_workloads.contrastive.model.front_end import FourierPositions
    from seatrial_workloads.contrastive.model.speech_text import SpeechTextModel, num_parameters
    from seatrial_workloads.contrastive.settings import Settings

    settings = Settings(micro_batch=3, fixed_slice_s=1.0, attn_impl=attention, fast_paths=fast_paths)
    config = {**shapes.SPEECH_DEFAULTS, **shapes.SPEECH_CONFIGS["tiny"]}
    speech = memory.Speech(config | dict.fromkeys(("hidden_dropout", "activation_dropout", "attention_dropout"), 0.0))
    text = {**shapes.TEXT_DEFAULTS, **shapes.TEXT_CONFIGS["tiny"], "vocab_size": 300}
    model = SpeechTextModel(speech_model("tiny", attention), text_model("tiny", attention, 300))
    trained, total = num_parameters(model)
    assert (trained, total - trained) == (speech.trained(64), speech.cnn + memory.text_parameters(text))
    without_dropout(model.train())
    if fast_paths == "positions":
        model.tower.speech.encoder.pos_conv_embed = FourierPositions(model.tower.speech.encoder.pos_conv_embed)
    frames = speech.num_frames(16000)
    features, time_mask = torch.randn(3, frames, 32), torch.ones(3, frames, dtype=torch.bool)

    def encode() -> torch.Tensor:
        with autocast(formats.compute):
            encoded: torch.Tensor = model.tower(features, None, time_mask)
            return encoded

    found = saved_bytes(encode, [*model.parameters()])
    assert found == kept(memory.activations(settings, speech, 64, formats, autocast=formats.compute == 2))


def gib(size: int) -> float:
    return size / 2**30


# Peaks of torch.cuda.max_memory_allocated on an H200: docs/memory-forecast.md.
@pytest.mark.parametrize(
    ("micro_batch", "seconds", "attention", "peak_gib"),
    [(160, 2.0, "eager", 9.9), (128, 2.0, "sdpa", 7.1), (160, 2.0, "sdpa", 8.4), (192, 2.0, "sdpa", 9.7), (160, 3.0, "sdpa", 11.7)],
)
def test_stage1_peaks_of_a_gpu(micro_batch: int, seconds: float, attention: str, peak_gib: float) -> None:
    from seatrial_workloads.contrastive.memory import forecast
    from seatrial_workloads.contrastive.settings import Settings

    settings = Settings(
        speech_model="base",
        text_model="base",
        micro_batch=micro_batch,
        fixed_slice_s=seconds,
        attn_impl=attention,
        precision="bf16",
        model_load_dtype="fp32",
        fast_paths="none",
    )
    assert gib(forecast(settings, world_size=1, cwd=Path()).allocated_bytes) == pytest.approx(peak_gib, rel=0.05)


@pytest.mark.parametrize(("rows", "seq_len", "peak_gib"), [(2, 2048, 3.1), (16, 2048, 16.7), (4, 8192, 27.1)])
def test_sparse_lm_peaks_of_a_gpu(rows: int, seq_len: int, peak_gib: float) -> None:
    """Measured compiled, which keeps less."""
    from seatrial_workloads.sparse_lm.memory import forecast
    from seatrial_workloads.sparse_lm.ops.shape import ModelShape
    from seatrial_workloads.sparse_lm.settings import Settings

    shape = dataclasses.asdict(ModelShape())
    del shape["vocab_size"]
    settings = Settings(**shape, seq_len=seq_len, batch_size=rows, precision="bf16")
    assert peak_gib <= gib(forecast(settings, world_size=1, cwd=Path()).allocated_bytes) <= 1.12 * peak_gib
