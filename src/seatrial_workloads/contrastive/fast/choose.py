"""Which parts of the model are computed the fast way. In: a model on its device, with its weights. Out: the model with fast parts in place,
and for each part whether it was taken and why not.

front_end      the frozen CNN as matrix products                 anywhere
positions      the positional convolution by Fourier transform   anywhere
text_graph     the frozen text encoder as CUDA graphs            CUDA, sdpa
tower_graph    the speech tower as CUDA graphs                   CUDA, batches of one shape, no ZeRO

Every one has its plain counterpart beside it and a test that both give the same. `fast_paths=false` takes none of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seatrial_workloads.common.choice import Choice, as_requested
from seatrial_workloads.common.compiling import first_words
from seatrial_workloads.common.precision import Precision, torch_dtype
from seatrial_workloads.contrastive.fast import front_end
from seatrial_workloads.contrastive.fast.positions import FourierPositions
from seatrial_workloads.contrastive.fast.text_graph import GraphedTextEncoder
from seatrial_workloads.contrastive.fast.tower_graph import GraphedTower
from seatrial_workloads.contrastive.model import SpeechTextModel
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE

# Modes in which torch.compile captures graphs of its own.
CAPTURING_MODES = ("reduce-overhead", "max-autotune")


def take_fast_parts(model: SpeechTextModel, settings: Settings, device: torch.device, load_dtype: str) -> dict[str, Choice]:
    """All but the tower's graphs, which come last of all (`capture_tower`)."""
    reasons = {
        "front_end": _why_plain(settings) or front_end.applies_to(model.tower.speech.config),
        "positions": _why_plain(settings) or _why_plain_positions(model),
        "text_graph": _why_plain(settings) or _why_no_text_graph(model, device),
    }
    if not reasons["front_end"]:
        model.paths.front_end = front_end.MatrixFrontEnd(model.tower.speech, torch_dtype(load_dtype)).to(device)
    if not reasons["positions"]:
        model.tower.speech.encoder.pos_conv_embed = FourierPositions(model.tower.speech.encoder.pos_conv_embed)
    if not reasons["text_graph"]:
        model.paths.text = GraphedTextEncoder(model.plain_text_encoder)
    return {name: _choice(settings, reason) for name, reason in reasons.items()}


def capture_tower(model: SpeechTextModel, settings: Settings, device: torch.device, precision: Precision) -> Choice:
    """Graphs of the tower, compiled or not, for batches of the longest slice. Nothing may hold on to an earlier step: its gradients would
    be bound to a stream that is not captured."""
    reason = _why_plain(settings) or _why_no_tower_graph(settings, model, device)
    if reason:
        return _choice(settings, reason)
    graphed = GraphedTower(model.tower, model.paths.speech)
    try:
        with torch.no_grad():
            features = model.paths.front_end(torch.zeros(settings.micro_batch, longest_samples(settings), device=device))
        graphed.capture(features, torch.autocast(device.type, precision.dtype, enabled=precision.effective != "fp32", cache_enabled=False))
    except RuntimeError as error:
        return Choice(True, False, first_words(error))
    model.paths.speech = graphed
    return as_requested(True)


def longest_samples(settings: Settings) -> int:
    """Samples of the longest slice."""
    return round(settings.slice_range_s[1] * SAMPLE_RATE)


def padded(inputs: dict[str, Tensor | None], num_samples: int, num_frames: int) -> dict[str, Tensor | None]:
    """The same batch in the one shape that was captured: zeros behind the audio, which a frame mask then hides. The CNN's group norm sees
    them, as it sees those behind the shorter rows of any batch."""
    audio, time_mask = inputs["audio"], inputs["time_mask"]
    assert audio is not None
    missing = num_samples - audio.shape[1]
    if not missing:
        return inputs
    if inputs["num_samples"] is None:
        inputs["num_samples"] = torch.full((audio.shape[0],), audio.shape[1], device=audio.device)
    if time_mask is not None:
        inputs["time_mask"] = torch.nn.functional.pad(time_mask, (0, num_frames - time_mask.shape[1]))
    inputs["audio"] = torch.nn.functional.pad(audio, (0, missing))
    return inputs


def _choice(settings: Settings, reason: str) -> Choice:
    if not settings.fast_paths:
        return as_requested(False)
    return Choice(True, False, reason) if reason else as_requested(True)


def _why_plain(settings: Settings) -> str:
    if not settings.fast_paths:
        return "fast_paths is false"
    if settings.zero_stage == 3:
        return "ZeRO 3 brings a module's weights together only while that module itself is called"
    return ""


def _why_plain_positions(model: SpeechTextModel) -> str:
    return "the encoder has no positional convolution of its own" if model.tower.speech.config.do_stable_layer_norm else ""


def _why_no_text_graph(model: SpeechTextModel, device: torch.device) -> str:
    if device.type != "cuda":
        return "no GPU"
    attention = model.text.config._attn_implementation
    return "" if attention == "sdpa" else f"attention of the text encoder is {attention}, not sdpa"


def _why_no_tower_graph(settings: Settings, model: SpeechTextModel, device: torch.device) -> str:
    if device.type != "cuda":
        return "no GPU"
    if settings.zero_stage:
        return f"ZeRO {settings.zero_stage} hooks into the gradients, and a capture beside its hooks was seen to fail"
    if settings.length_buckets:
        return "length_buckets: batches are of several shapes"
    if settings.torch_compile and settings.torch_compile_mode in CAPTURING_MODES:
        return f"torch.compile captures graphs itself in mode {settings.torch_compile_mode}"
    attention = model.tower.speech.config._attn_implementation
    return "flash_attention_2 asks the GPU for lengths" if attention == "flash_attention_2" else ""
