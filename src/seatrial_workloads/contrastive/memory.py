"""Memory of the contrastive trainer on a GPU, from its settings. Standard library only.

What a layer of the speech encoder keeps for the backward pass, in elements per frame (h hidden width, m width of the feed-forward part):

    query, key, value inputs   3 h: layer norms return fp32 under CUDA's autocast, and each matrix casts for itself
    query, key, value          3 h
    attention                  its output h, a statistic for each head; eager: the softmax in fp32, cast, and its dropout mask, S each
    dropout masks              2 h + m, a byte each
    norm inputs                2 h in fp32: the residual stream
    feed-forward               its input h, GELU's input m, the second matrix's input m

The CNN and BERT are frozen and keep nothing. Batches count as the longest slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.records.memory import MemoryForecast, Remedy
from seatrial_workloads.common.memory import (
    FORMAT_BYTES,
    Activations,
    Counted,
    Formats,
    ModelState,
    Parameters,
    highest,
    model_config,
    replicated_state,
    zero_state,
)
from seatrial_workloads.common.precision import AUTOCAST, WEIGHTS, choose_mixed_precision
from seatrial_workloads.contrastive.equal_settings import POSITIONS, TOWER_GRAPH, excluded_parts
from seatrial_workloads.contrastive.model.shapes import (
    BASE_IDS,
    SPEECH_CONFIGS,
    SPEECH_DEFAULTS,
    TEXT_CONFIGS,
    TEXT_DEFAULTS,
    smooth_length,
)
from seatrial_workloads.contrastive.settings import Settings

SAMPLE_RATE = 16_000


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    speech = Speech(_config(settings.speech_model, SPEECH_CONFIGS, SPEECH_DEFAULTS, cwd, "speech_model"))
    text = _config(settings.text_model, TEXT_CONFIGS, TEXT_DEFAULTS, cwd, "text_model")
    precision = "bf16" if settings.precision == "auto" else settings.precision
    mixed = choose_mixed_precision(settings.mixed_precision, settings.engine, settings.zero_stage, precision).effective
    compute = FORMAT_BYTES[precision]
    formats = Formats(compute=compute, norm=compute if mixed == WEIGHTS else 4)
    held = activations(settings, speech, text["hidden_size"], formats, autocast=mixed == AUTOCAST)
    state = model_state(settings, speech, text, world_size, trained_bytes=compute if mixed == WEIGHTS else 4)
    notes = ("compiled code may keep less",) if settings.torch_compile else ()
    return highest(state, held, world_size=world_size, notes=notes)


def remedies(settings: Settings, *, world_size: int) -> Iterator[Remedy]:
    if world_size > 1:
        for stage in range(settings.zero_stage + 1, 4):
            yield Remedy(settings={"engine": "deepspeed", "zero_stage": stage})
    size = settings.micro_batch
    while size > 2:
        size //= 2
        yield Remedy(settings={"micro_batch": size})


def _config(source: str, named: dict[str, dict[str, Any]], defaults: dict[str, Any], cwd: Path, setting: str) -> dict[str, Any]:
    if source in named:
        return {**defaults, **named[source]}
    return defaults if source in BASE_IDS else {**defaults, **model_config(source, cwd, setting)}


@dataclass(frozen=True)
class Speech:
    """wav2vec2's sizes."""

    config: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.config[name]

    def num_frames(self, samples: int) -> int:
        for kernel, stride in zip(self.conv_kernel, self.conv_stride, strict=True):
            samples = (samples - kernel) // stride + 1
        return samples

    @property
    def cnn(self) -> int:
        """Frozen parameters."""
        widths = (1, *self.conv_dim)
        biases = sum(self.conv_dim) if self.conv_bias else 0
        norms = 2 * (self.conv_dim[0] if self.feat_extract_norm == "group" else sum(self.conv_dim))
        return sum(a * b * kernel for a, b, kernel in zip(widths, self.conv_dim, self.conv_kernel, strict=False)) + biases + norms

    @property
    def positions(self) -> int:
        """Parameters of the positional convolution."""
        return int(self.hidden_size**2 // self.num_conv_pos_embedding_groups * self.num_conv_pos_embeddings)

    def matrices(self, out_width: int) -> int:
        """Weights of matrix products and of the positional convolution, pooling included: what autocast casts."""
        width = self.hidden_size
        layer = 4 * width**2 + 2 * width * self.intermediate_size
        pooling = width * (width // 2) + width // 2 + width * out_width
        return int(self.conv_dim[-1] * width + self.positions + self.num_hidden_layers * layer + pooling)

    def trained(self, out_width: int) -> int:
        width, taps = self.hidden_size, self.num_conv_pos_embeddings
        layer = 4 * width + self.intermediate_size + width + 4 * width
        # The projection's norm and bias, the mask embedding, the convolution's scale and bias, the encoder's norm.
        around = 2 * self.conv_dim[-1] + width + width + taps + width + 2 * width
        pooling = width // 2 + 1 + out_width
        # The last is the temperature.
        return int(self.matrices(out_width) + around + self.num_hidden_layers * layer + pooling + 1)


def text_parameters(text: dict[str, Any]) -> int:
    """BERT without its pooling layer."""
    width, inner = text["hidden_size"], text["intermediate_size"]
    layer = 4 * (width**2 + width) + 2 * width * inner + inner + width + 4 * width
    embeddings = (text["vocab_size"] + text["max_position_embeddings"] + text["type_vocab_size"]) * width + 2 * width
    return int(embeddings + text["num_hidden_layers"] * layer)


def model_state(settings: Settings, speech: Speech, text: dict[str, Any], world_size: int, *, trained_bytes: int) -> ModelState:
    load = settings.model_load_dtype if settings.model_load_dtype != "auto" else settings.precision
    parameters = Parameters(
        trained=speech.trained(text["hidden_size"]),
        frozen=speech.cnn + text_parameters(text),
        trained_bytes=trained_bytes,
        frozen_bytes=FORMAT_BYTES["bf16" if load == "auto" else load],
    )
    if settings.zero_stage:
        return zero_state(
            parameters, world_size, stage=settings.zero_stage, bucket_elements=settings.bucket_size, overlap=settings.overlap_comm
        )
    # A captured graph writes gradients to memory of its own, which it keeps.
    return replicated_state(parameters, world_size, bucket_view=True, stay=_has(settings, TOWER_GRAPH))


def _has(settings: Settings, part: str) -> bool:
    return part in settings.fast_parts and part not in excluded_parts(settings)


def activations(settings: Settings, speech: Speech, out_width: int, formats: Formats, *, autocast: bool) -> Activations:
    rows, frames = settings.micro_batch, speech.num_frames(round(settings.slice_range_s[1] * SAMPLE_RATE))
    tokens, width, compute = rows * frames, speech.hidden_size, formats.compute
    saved = Counted()
    for name, size in _around(speech, formats).items():
        saved.add(name, tokens * size)
    for name, size in _layer(settings, speech, frames, formats).items():
        saved.add(name, tokens * size, speech.num_hidden_layers)
    # The norm of the convolution's weights, one a tap.
    saved.add("positions", _positions(settings, speech, rows, frames, formats) + 4 * speech.num_conv_pos_embeddings)
    saved.add("pooling", rows * compute * width)
    return Activations(
        saved=saved.tensors,
        logits=5 * 4 * rows * rows + 6 * 4 * rows * out_width,
        layer_backward=tokens * (formats.norm * width + 2 * compute * speech.intermediate_size),
        weight_copies=compute * (speech.matrices(out_width) - (speech.positions if _has(settings, POSITIONS) else 0)) if autocast else 0,
        inputs=4 * rows * round(settings.slice_range_s[1] * SAMPLE_RATE),
    )


def _around(speech: Speech, formats: Formats) -> dict[str, float]:
    """Tensor → bytes of a frame, before the layers and after them. Features arrive in the format of the trained weights."""
    compute, width, channels = formats.compute, speech.hidden_size, speech.conv_dim[-1]
    apart = formats.norm != compute
    return {
        "norm inputs": (compute if not formats.autocast else 4) * channels + compute * width + 2 * 8,
        "projection inputs": compute * channels,
        "dropout masks": formats.mask * width if speech.hidden_dropout else 0,
        "time mask": 1,
        # Scored and averaged: two casts of what the last norm returned.
        "pooling": compute * width * (2 if apart else 1) + compute * (width // 2) + 4 + (compute if formats.autocast else 0),
    }


def _layer(settings: Settings, speech: Speech, frames: int, formats: Formats) -> dict[str, float]:
    """Tensor → bytes of a frame in one layer."""
    compute, width, inner, heads = formats.compute, speech.hidden_size, speech.intermediate_size, speech.num_attention_heads
    sizes: dict[str, float] = {
        "query, key, value inputs": compute * width * (3 if formats.norm != compute else 1),
        "query, key, value": 3 * compute * width,
        "attention outputs": compute * width,
        "norm inputs": 2 * (formats.norm * width + 8),
        "feed-forward inputs": compute * width,
        "GELU inputs": compute * inner,
        "GELU outputs": compute * inner,
        "dropout masks": formats.mask * ((2 * width if speech.hidden_dropout else 0) + (inner if speech.activation_dropout else 0)),
    }
    if settings.speech_attention == "eager" or (settings.speech_attention == "auto" and settings.precision == "fp16"):
        cast = compute if formats.norm != compute or speech.attention_dropout else 0
        sizes["attention scores"] = heads * frames * (formats.norm + cast + (formats.mask if speech.attention_dropout else 0))
    else:
        sizes["attention statistics"] = 4 * heads
    return sizes


def _positions(settings: Settings, speech: Speech, rows: int, frames: int, formats: Formats) -> int:
    """The positional convolution: its input and GELU's; by FFT (a fast path) the padded input, spectra and filters."""
    width, taps, compute = speech.hidden_size, speech.num_conv_pos_embeddings, formats.compute
    if not _has(settings, POSITIONS):
        # Its weights are a direction and a length: their product is kept, in fp32 where nothing casts it.
        product = 0 if formats.autocast else 4 * speech.positions
        return int(rows * width * compute * (frames + frames + (1 - taps % 2))) + product
    length = smooth_length(frames + taps - 1)
    bins, group = length // 2 + 1, width // speech.num_conv_pos_embedding_groups
    filters = width * group * length * 4 + bins * width * group * 8
    return int(rows * width * (length * 4 + bins * 8 + frames * compute) + filters)
