"""Speech and text brought together. In: the parts of a Batch. Out: the contrastive loss of the batch.

front end   audio → wav2vec2's CNN (frozen) → features
tower       features → projection → transformer → attention pooling over time: what is trained
text        tokens → BERT (frozen) → [CLS]
loss        each row must find its own partner among the rows of the batch, in both directions; the temperature is learned

The parts are transformers' own modules, called here one by one: what they compute together is the same as Wav2Vec2Model's forward (there
is a test), and each can be exchanged for a faster one that computes the same (`fast/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel, Wav2Vec2Model

from seatrial_workloads.common.precision import torch_dtype
from seatrial_workloads.contrastive.negatives import gather_rows
from seatrial_workloads.contrastive.policies import Policies
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.contrastive.sources import speech_model, text_model

FIRST_TEMPERATURE = 0.07
# As CLIP has it: beyond this the logits outgrow what fp16 can hold.
LARGEST_SCALE = 100.0

FrontEnd = Callable[[Tensor], Tensor]
"""audio (rows, samples) → features (rows, frames, channels), no gradient."""
TextEncoder = Callable[[Tensor, Tensor], Tensor]
"""token ids and mask → [CLS] (rows, width), no gradient."""
SpeechEncoder = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""features, frame mask, time mask → one vector a row."""


@dataclass
class Paths:
    """Who computes each part: the plain modules, or what `fast.choose` put in their place."""

    front_end: FrontEnd
    speech: SpeechEncoder
    text: TextEncoder


class SpeechTextModel(nn.Module):
    """wav2vec2 with attention pooling against a frozen BERT."""

    def __init__(self, speech: Wav2Vec2Model, text: BertModel, *, gather_negatives: bool = False) -> None:
        super().__init__()
        self.tower = SpeechTower(speech, out_width=text.config.hidden_size)
        self.text = text.requires_grad_(False).eval()
        # One number in a row of one: DeepSpeed cannot cut a scalar.
        self.log_scale = nn.Parameter(torch.tensor([math.log(1 / FIRST_TEMPERATURE)]))
        self.gather_negatives = gather_negatives
        self.paths = Paths(front_end=self.tower.plain_front_end, speech=self.tower, text=self.plain_text_encoder)

    def train(self, mode: bool = True) -> SpeechTextModel:
        """The frozen text encoder never trains: its dropout would blur the targets."""
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
        """The loss. `num_samples` is None where every row fills the batch."""
        with torch.no_grad():
            features = self.paths.front_end(audio)
            words = self.paths.text(token_ids, token_mask)
        frame_mask = None if num_samples is None else self.tower.frame_mask(num_samples, features.shape[1])
        # What was compiled or captured for training is not made again for a validation.
        encode = self.paths.speech if self.training else self.tower
        return self.loss(encode(features, frame_mask, time_mask), words)

    def loss(self, speech: Tensor, words: Tensor) -> Tensor:
        """Symmetric cross entropy, in fp32 whatever the encoders computed in."""
        with torch.autocast(speech.device.type, enabled=False):
            speech, words = functional.normalize(speech.float(), dim=-1), functional.normalize(words.float(), dim=-1)
            scale = held_below(self.log_scale.float(), math.log(LARGEST_SCALE)).exp()
            # A validation is the same on every rank: gathered, each row would meet itself as a stranger.
            if self.gather_negatives and self.training:
                return symmetric_loss(speech, words, scale, gather_rows(speech), gather_rows(words), own_first_row(speech.shape[0]))
            return symmetric_loss(speech, words, scale, speech, words)

    def plain_text_encoder(self, token_ids: Tensor, token_mask: Tensor) -> Tensor:
        return self.text(input_ids=token_ids, attention_mask=token_mask).last_hidden_state[:, 0]


class SpeechTower(nn.Module):
    """One vector for each row of features; frames behind the end of a row count nowhere."""

    def __init__(self, speech: Wav2Vec2Model, out_width: int) -> None:
        super().__init__()
        self.speech = speech
        self.pooling = AttentionPooling(speech.config.hidden_size, out_width)
        speech.feature_extractor.requires_grad_(False)
        # The flip of a coin for every layer: a rank whose layer was skipped has no gradient for it, and the others would wait.
        speech.config.layerdrop = 0.0

    def forward(self, features: Tensor, frame_mask: Tensor | None, time_mask: Tensor | None) -> Tensor:
        hidden, _ = self.speech.feature_projection(features.to(self.pooling.project.weight.dtype))
        if time_mask is not None:
            hidden = torch.where(time_mask.unsqueeze(-1), self.speech.masked_spec_embed.to(hidden.dtype), hidden)
        return self.pooling(self.transformed(hidden, frame_mask), frame_mask)

    def transformed(self, hidden: Tensor, frame_mask: Tensor | None) -> Tensor:
        """The transformer. Its layers are called here: transformers' own loop flips a coin for each layer and asks the GPU whether a mask
        masks anything, which a compiler cannot look through and a CUDA graph cannot contain."""
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
        """(rows, frames) bool: which frames come from audio, not from the zeros behind it."""
        valid = num_samples
        for kernel, stride in zip(self.speech.config.conv_kernel, self.speech.config.conv_stride, strict=True):
            valid = torch.div(valid - kernel, stride, rounding_mode="floor") + 1
        return torch.arange(frames, device=valid.device) < valid.unsqueeze(-1)

    def num_frames(self, num_samples: int) -> int:
        """Frames that the CNN makes of so many samples."""
        frames = num_samples
        for kernel, stride in zip(self.speech.config.conv_kernel, self.speech.config.conv_stride, strict=True):
            frames = (frames - kernel) // stride + 1
        return frames

    def plain_front_end(self, audio: Tensor) -> Tensor:
        weight = self.speech.feature_extractor.conv_layers[0].conv.weight
        return self.speech.feature_extractor(audio.to(weight.dtype)).transpose(1, 2)


def attention_mask(frame_mask: Tensor | None, dtype: torch.dtype, implementation: str) -> Tensor | None:
    """Which frames may be looked at, in the form the attention takes."""
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


def symmetric_loss(speech: Tensor, words: Tensor, scale: Tensor, all_speech: Tensor, all_words: Tensor, first_row: int = 0) -> Tensor:
    """Row i of this rank belongs to row `first_row` + i of all."""
    own = torch.arange(first_row, first_row + speech.shape[0], device=speech.device)
    to_words = functional.cross_entropy(scale * speech @ all_words.T, own)
    to_speech = functional.cross_entropy(scale * words @ all_speech.T, own)
    return (to_words + to_speech) / 2


def held_below(value: Tensor, most: float) -> Tensor:
    """At most `most`, with the gradient of the value itself: one that has grown beyond it can still come down."""
    return value + (value.clamp(max=most) - value).detach()


def own_first_row(rows: int) -> int:
    """Where this rank's rows begin among those of all ranks."""
    return rows * torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def new_model(settings: Settings, policies: Policies, vocab_size: int) -> SpeechTextModel:
    """On the CPU, so that the same seed gives the same weights everywhere; the frozen parts in their own number format."""
    model = SpeechTextModel(
        speech_model(settings.speech_model, policies.speech_attention),
        text_model(settings.text_model, policies.text_attention, vocab_size),
        gather_negatives=settings.gather_negatives,
    )
    frozen = torch_dtype(policies.load_dtype)
    model.text.to(frozen)
    model.tower.speech.feature_extractor.to(frozen)
    if not settings.mask_time_prob:
        # Nothing is masked, so what stands for masked frames has no gradient, and ranks would wait for one.
        model.tower.speech.masked_spec_embed.requires_grad_(False)
    return model


def num_parameters(model: nn.Module) -> tuple[int, int]:
    """Trained ones, and all; asked before ZeRO 3 shares them out."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)
