"""The contrastive model: speech and text towers, projections, and the loss over the rows of all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel, Wav2Vec2Model

from seatrial_workloads.common.precision import torch_dtype
from seatrial_workloads.contrastive.effective_settings import EffectiveSettings
from seatrial_workloads.contrastive.model.encoders import speech_model, text_model
from seatrial_workloads.contrastive.settings import Settings


def gather_rows(rows: Tensor) -> Tensor:
    """(rows, width) of this rank → (world_size × rows, width)."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows.contiguous())
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed)
        return summed.chunk(dist.get_world_size())[dist.get_rank()]


FIRST_TEMPERATURE = 0.07
# As in CLIP: beyond this the logits overflow fp16.
MAX_SCALE = 100.0

FrontEnd = Callable[[Tensor], Tensor]
"""audio (rows, samples) → features (rows, frames, channels), no gradient."""
TextEncoder = Callable[[Tensor, Tensor], Tensor]
"""token ids and mask → [CLS] (rows, width), no gradient."""
SpeechEncoder = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""features, frame mask, time mask → one vector a row."""


@dataclass
class ComputePaths:
    """What computes each part: the plain modules, or their fast replacements (`model.fast_paths`)."""

    front_end: FrontEnd
    speech: SpeechEncoder
    text: TextEncoder


class SpeechTextModel(nn.Module):
    """wav2vec2 with attention pooling against a frozen BERT."""

    def __init__(self, speech: Wav2Vec2Model, text: BertModel, *, gather_negatives: bool = False) -> None:
        super().__init__()
        self.tower = SpeechTower(speech, out_width=text.config.hidden_size)
        self.text = text.requires_grad_(False).eval()
        # Of shape (1,): DeepSpeed cannot shard a scalar.
        self.log_scale = nn.Parameter(torch.tensor([math.log(1 / FIRST_TEMPERATURE)]))
        self.gather_negatives = gather_negatives
        self.paths = ComputePaths(front_end=self.tower.plain_front_end, speech=self.tower, text=self.plain_text_encoder)

    def train(self, mode: bool = True) -> SpeechTextModel:
        """The frozen text encoder stays in eval mode: dropout would blur the targets."""
        super().train(mode)
        self.text.eval()
        return self

    def forward(
        self,
        audio: Tensor,
        token_ids: Tensor,
        token_mask: Tensor,
        num_samples: Tensor | None = None,
        time_mask: Tensor | None = None,
    ) -> Tensor:
        """The loss. `num_samples` is None where no row is padded."""
        with torch.no_grad():
            features = self.paths.front_end(audio)
            text = self.paths.text(token_ids, token_mask)
        frame_mask = None if num_samples is None else self.tower.frame_mask(num_samples, features.shape[1])
        # Compiled and captured paths are for training only; a validation would compile them again.
        encode = self.paths.speech if self.training else self.tower
        return self.loss(encode(features, frame_mask, time_mask), text)

    def loss(self, speech: Tensor, text: Tensor) -> Tensor:
        """Symmetric cross entropy, always in fp32."""
        with torch.autocast(speech.device.type, enabled=False):
            speech, text = functional.normalize(speech.float(), dim=-1), functional.normalize(text.float(), dim=-1)
            scale = clamp_straight_through(self.log_scale.float(), math.log(MAX_SCALE)).exp()
            # A validation is the same on every rank: gathered, each row would have itself as a negative.
            if self.gather_negatives and self.training:
                first_row = len(speech) * dist.get_rank() if dist.is_initialized() else 0
                return symmetric_loss(speech, text, scale, gather_rows(speech), gather_rows(text), first_row)
            return symmetric_loss(speech, text, scale, speech, text)

    def plain_text_encoder(self, token_ids: Tensor, token_mask: Tensor) -> Tensor:
        return self.text(input_ids=token_ids, attention_mask=token_mask).last_hidden_state[:, 0]


class SpeechTower(nn.Module):
    """One vector for each row of features; padded frames are masked everywhere."""

    def __init__(self, speech: Wav2Vec2Model, out_width: int) -> None:
        super().__init__()
        self.speech = speech
        self.pooling = AttentionPooling(speech.config.hidden_size, out_width)
        speech.feature_extractor.requires_grad_(False)
        # Layer drop is random per rank: a skipped layer has no gradient, and the other ranks would wait for it.
        speech.config.layerdrop = 0.0

    def forward(self, features: Tensor, frame_mask: Tensor | None, time_mask: Tensor | None) -> Tensor:
        hidden, _ = self.speech.feature_projection(features.to(self.pooling.project.weight.dtype))
        if time_mask is not None:
            hidden = torch.where(time_mask.unsqueeze(-1), self.speech.masked_spec_embed.to(hidden.dtype), hidden)
        return self.pooling(self.transformed(hidden, frame_mask), frame_mask)

    def transformed(self, hidden: Tensor, frame_mask: Tensor | None) -> Tensor:
        """The transformer, layer by layer: transformers' own loop draws a random number per layer and reads the mask back from the GPU,
        which torch.compile cannot trace and a CUDA graph cannot contain."""
        encoder = self.speech.encoder
        if self.speech.config.do_stable_layer_norm:
            return encoder(hidden, attention_mask=frame_mask).last_hidden_state
        if frame_mask is not None:
            hidden = hidden.masked_fill(~frame_mask.unsqueeze(-1), 0)
        attend = attention_mask(frame_mask, hidden.dtype, self.speech.config._attn_implementation)
        hidden = encoder.dropout(encoder.layer_norm(hidden + encoder.pos_conv_embed(hidden)))
        for layer in encoder.layers:
            hidden = layer(hidden, attention_mask=attend)
        return hidden

    def frame_mask(self, num_samples: Tensor, frames: int) -> Tensor:
        """(rows, frames) bool: which frames come from audio, not from padding."""
        return torch.arange(frames, device=num_samples.device) < self.num_frames(num_samples).unsqueeze(-1)

    def num_frames(self, num_samples: Any) -> Any:
        """Frames that the CNN outputs for this many samples, a number or a tensor."""
        frames = num_samples
        for kernel, stride in zip(self.speech.config.conv_kernel, self.speech.config.conv_stride, strict=True):
            frames = (frames - kernel) // stride + 1
        return frames

    def plain_front_end(self, audio: Tensor) -> Tensor:
        weight = self.speech.feature_extractor.conv_layers[0].conv.weight
        return self.speech.feature_extractor(audio.to(weight.dtype)).transpose(1, 2)


def attention_mask(frame_mask: Tensor | None, dtype: torch.dtype, implementation: str) -> Tensor | None:
    """The frame mask in the form the attention implementation takes."""
    if frame_mask is None or implementation == "flash_attention_2":
        return frame_mask
    attend = frame_mask[:, None, None, :]
    return attend if implementation == "sdpa" else torch.zeros_like(attend, dtype=dtype).masked_fill(~attend, torch.finfo(dtype).min)


class AttentionPooling(nn.Module):
    """A weighted mean over time with learned weights, then a linear layer."""

    def __init__(self, width: int, out_width: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1))
        self.project = nn.Linear(width, out_width)

    def forward(self, hidden: Tensor, frame_mask: Tensor | None) -> Tensor:
        scores = self.score(hidden).squeeze(-1).float()
        if frame_mask is not None:
            scores = scores.masked_fill(~frame_mask, -torch.inf)
        weights = scores.softmax(dim=-1).to(hidden.dtype)
        return self.project(torch.bmm(weights.unsqueeze(1), hidden).squeeze(1))


def symmetric_loss(speech: Tensor, text: Tensor, scale: Tensor, all_speech: Tensor, all_text: Tensor, first_row: int = 0) -> Tensor:
    """Row i of this rank belongs to row `first_row` + i of all."""
    own = torch.arange(first_row, first_row + speech.shape[0], device=speech.device)
    to_text = functional.cross_entropy(scale * speech @ all_text.T, own)
    to_speech = functional.cross_entropy(scale * text @ all_speech.T, own)
    return (to_text + to_speech) / 2


def clamp_straight_through(value: Tensor, most: float) -> Tensor:
    """Clamp to `most` with the gradient of the identity, so that a value beyond it can still come down."""
    return value + (value.clamp(max=most) - value).detach()


def new_model(settings: Settings, effective: EffectiveSettings, vocab_size: int) -> SpeechTextModel:
    """Created on the CPU, so that a seed gives the same weights everywhere; frozen parts in their load dtype."""
    model = SpeechTextModel(
        speech_model(settings.speech_model, effective.speech_attention, settings.speech_revision),
        text_model(settings.text_model, effective.text_attention, vocab_size, settings.text_revision),
        gather_negatives=settings.gather_negatives,
    )
    frozen = torch_dtype(effective.load_dtype)
    model.text.to(frozen)
    model.tower.speech.feature_extractor.to(frozen)
    if not settings.mask_time_prob:
        # Nothing is masked, so the mask embedding gets no gradient, and ranks would wait for one.
        model.tower.speech.masked_spec_embed.requires_grad_(False)
    return model


def num_parameters(model: nn.Module) -> tuple[int, int]:
    """Number of trained parameters and of all; call before ZeRO 3 shards them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)
