"""wav2vec2's frozen CNN as matrix products. In: audio (rows, samples). Out: the features its own modules give, (rows, frames, channels).

The plain way is `SpeechTextModel.plain_front_end`. Two facts make this one faster:

- A convolution whose kernel is at most twice its stride is two matrix products on memory that is already in order, once time comes before
  channels: each output frame needs the `stride` frames of its own block, and the first `kernel - stride` of the next block. No copy is
  made, and no layer changes the layout.
- The first layer's group norm has one channel a group: mean and variance over time of a linear map of windows of `kernel` samples. Both
  follow from the windows' mean and covariance (10 x 10 numbers a row), so the norm is folded into weights of each row's own, and the
  largest tensor of the model is written once instead of being read again twice.

Time is padded to whole blocks; frames beyond the end are computed from whatever stands there and cut off at the end: no frame that is
kept depends on them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Wav2Vec2Config, Wav2Vec2Model

# Rows of a matrix product must begin at multiples of 16 bytes, or a slower kernel is taken.
ALIGNED = 8


def applies_to(config: Wav2Vec2Config) -> str:
    """Why these products cannot stand for the CNN of such a model; empty when they can."""
    if config.feat_extract_norm != "group":
        return f"the CNN normalises by {config.feat_extract_norm}, not by group"
    if config.feat_extract_activation != "gelu":
        return f"the CNN's activation is {config.feat_extract_activation}, not gelu"
    shapes = list(zip(config.conv_kernel, config.conv_stride, strict=True))
    if any(not stride <= kernel <= 2 * stride for kernel, stride in shapes):
        return f"a kernel of the CNN is shorter than its stride or longer than twice that: {shapes}"
    return ""


class MatrixFrontEnd(nn.Module):
    """The frozen CNN. It holds copies of the weights, in the layout the products need: make it after weights are loaded."""

    def __init__(self, speech: Wav2Vec2Model, dtype: torch.dtype) -> None:
        super().__init__()
        config, layers = speech.config, speech.feature_extractor.conv_layers
        self.kernels, self.strides = tuple(config.conv_kernel), tuple(config.conv_stride)
        first = layers[0]
        self.eps = first.layer_norm.eps
        self.dtype = dtype
        # float64: windows of low hum and a filter that hears only treble leave little of large numbers.
        self._keep("filters", first.conv.weight.squeeze(1).T.double())
        self._keep("gain", first.layer_norm.weight.double())
        self._keep("shift", first.layer_norm.bias.double())
        for number, layer in enumerate(layers[1:], start=1):
            taps = layer.conv.weight.permute(2, 1, 0)
            self._keep(f"block{number}", taps[: self.strides[number]].flatten(0, 1).to(dtype))
            self._keep(f"next{number}", taps[self.strides[number] :].flatten(0, 1).to(dtype))
            self._keep(f"bias{number}", None if layer.conv.bias is None else layer.conv.bias.to(dtype))

    def _keep(self, name: str, value: Tensor | None) -> None:
        self.register_buffer(name, None if value is None else value.detach().contiguous(), persistent=False)

    @torch.no_grad()
    def forward(self, audio: Tensor) -> Tensor:
        with torch.autocast(audio.device.type, enabled=False):
            frames = (audio.shape[1] - self.kernels[0]) // self.strides[0] + 1
            hidden = self._first_layer(audio, frames)
            for number in range(1, len(self.kernels)):
                hidden = self._layer(number, hidden)
                frames = (frames - self.kernels[number]) // self.strides[number] + 1
            return hidden[:, :frames]

    def _first_layer(self, audio: Tensor, frames: int) -> Tensor:
        """Convolution, group norm and gelu at once: one product a row with weights of its own."""
        blocks = math.prod(self.strides[1:])
        padded_frames = -(-frames // blocks) * blocks
        kernel, stride = self.kernels[0], self.strides[0]
        missing = (padded_frames - 1) * stride + kernel - audio.shape[1]
        windows = functional.pad(audio, (0, max(missing, 0))).unfold(1, kernel, stride)[:, :padded_frames]
        weights, offset = self._folded_norm(windows[:, :frames])
        width = -(-(kernel + 1) // ALIGNED) * ALIGNED
        # One more column of ones carries the offset through the product.
        columns = torch.zeros(*windows.shape[:2], width, dtype=self.dtype, device=audio.device)
        columns[..., :kernel] = windows
        columns[..., kernel] = 1
        matrix = torch.zeros(audio.shape[0], width, weights.shape[-1], dtype=self.dtype, device=audio.device)
        matrix[:, :kernel] = weights
        matrix[:, kernel] = offset
        return functional.gelu(torch.bmm(columns, matrix))

    def _folded_norm(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Filters and offset of each row that give the normalised output of the first convolution."""
        count = windows.shape[1]
        exact = windows.double()
        mean = exact.mean(dim=1)
        covariance = torch.bmm(exact.transpose(1, 2), exact) / count - mean.unsqueeze(2) * mean.unsqueeze(1)
        variance = (torch.matmul(covariance, self.filters) * self.filters).sum(dim=1).clamp(min=0)
        scale = self.gain * torch.rsqrt(variance + self.eps)
        return self.filters * scale.unsqueeze(1), self.shift - mean @ self.filters * scale

    def _layer(self, number: int, hidden: Tensor) -> Tensor:
        """A convolution without a norm, and gelu, on blocks of `stride` frames."""
        rows, frames, channels = hidden.shape
        stride, kernel = self.strides[number], self.kernels[number]
        blocks = hidden.reshape(rows * frames // stride, stride * channels)
        bias = getattr(self, f"bias{number}")
        block_weight, next_weight = getattr(self, f"block{number}"), getattr(self, f"next{number}")
        out = blocks @ block_weight if bias is None else torch.addmm(bias, blocks, block_weight)
        if kernel > stride:
            # The last block of a row looks into the next row: that frame is beyond the end and is cut off.
            out[:-1].addmm_(blocks[1:, : (kernel - stride) * channels], next_weight)
        return functional.gelu(out.view(rows, frames // stride, -1))
