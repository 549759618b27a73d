"""wav2vec2's convolutional front end as matrix products, and its positional convolution by FFT."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Wav2Vec2Config, Wav2Vec2Model

from seatrial_workloads.contrastive.model.shapes import smooth_length

# Rows of a matmul must be 16-byte aligned, or a slower kernel is used.
ALIGNED = 8


def why_not_matrix(config: Wav2Vec2Config) -> str:
    """Why the matrix form does not apply to this CNN; empty when it does."""
    if config.feat_extract_norm != "group":
        return f"the CNN normalises by {config.feat_extract_norm}, not by group"
    if config.feat_extract_activation != "gelu":
        return f"the CNN's activation is {config.feat_extract_activation}, not gelu"
    shapes = list(zip(config.conv_kernel, config.conv_stride, strict=True))
    if any(not stride <= kernel <= 2 * stride for kernel, stride in shapes):
        return f"a kernel of the CNN is shorter than its stride or longer than twice that: {shapes}"
    return ""


class MatrixFrontEnd(nn.Module):
    """The frozen CNN as matmuls. Holds copies of the weights in the matmul layout: construct it after weights are loaded."""

    def __init__(self, speech: Wav2Vec2Model, dtype: torch.dtype) -> None:
        super().__init__()
        config, layers = speech.config, speech.feature_extractor.conv_layers
        self.kernels, self.strides = tuple(config.conv_kernel), tuple(config.conv_stride)
        first = layers[0]
        self.eps = first.layer_norm.eps
        self.dtype = dtype
        # float64: low-frequency windows through a high-pass filter cancel almost completely.
        self._register("filters", first.conv.weight.squeeze(1).T.double())
        self._register("gain", first.layer_norm.weight.double())
        self._register("shift", first.layer_norm.bias.double())
        for number, layer in enumerate(layers[1:], start=1):
            taps = layer.conv.weight.permute(2, 1, 0)
            self._register(f"block{number}", taps[: self.strides[number]].flatten(0, 1).to(dtype))
            self._register(f"next{number}", taps[self.strides[number] :].flatten(0, 1).to(dtype))
            self._register(f"bias{number}", None if layer.conv.bias is None else layer.conv.bias.to(dtype))

    def _register(self, name: str, value: Tensor | None) -> None:
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
        """Convolution, group norm and gelu in one batched matmul, with the norm folded into per-row weights."""
        blocks = math.prod(self.strides[1:])
        padded_frames = -(-frames // blocks) * blocks
        kernel, stride = self.kernels[0], self.strides[0]
        missing = (padded_frames - 1) * stride + kernel - audio.shape[1]
        windows = functional.pad(audio, (0, max(missing, 0))).unfold(1, kernel, stride)[:, :padded_frames]
        weights, offset = self._folded_norm(windows[:, :frames])
        width = -(-(kernel + 1) // ALIGNED) * ALIGNED
        # A column of ones adds the offset.
        columns = torch.zeros(*windows.shape[:2], width, dtype=self.dtype, device=audio.device)
        columns[..., :kernel] = windows
        columns[..., kernel] = 1
        matrix = torch.zeros(audio.shape[0], width, weights.shape[-1], dtype=self.dtype, device=audio.device)
        matrix[:, :kernel] = weights
        matrix[:, kernel] = offset
        return functional.gelu(torch.bmm(columns, matrix))

    def _folded_norm(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Per-row filters and offset that give the normalised output of the first convolution."""
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
            # The last block of a row reads into the next row; that frame is beyond the end and is cut off.
            out[:-1].addmm_(blocks[1:, : (kernel - stride) * channels], next_weight)
        return functional.gelu(out.view(rows, frames // stride, -1))


class FourierPositions(nn.Module):
    """The positional convolution by FFT, sharing the plain module's parameters."""

    length = 0
    """FFT length for all inputs that fit; 0 chooses the best for each. A single length has no branch on the number of frames, which a
    compiled function would specialise on."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.conv = plain.conv
        self.activation = plain.activation

    def use_one_length(self, num_frames: int) -> None:
        """Use one FFT length for inputs of up to `num_frames`."""
        self.length = smooth_length(num_frames + self.conv.kernel_size[0] - 1)

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            positions = self._convolved(hidden.float()) + self.conv.bias.float()
        return self.activation(positions.to(hidden.dtype))

    def _convolved(self, hidden: Tensor) -> Tensor:
        rows, frames, width = hidden.shape
        groups, kernel = self.conv.groups, self.conv.kernel_size[0]
        before = self.conv.padding[0]
        length = self.length if frames + kernel - 1 <= self.length else smooth_length(frames + kernel - 1)
        spectrum = torch.fft.rfft(hidden, n=length, dim=1)
        # (out, in / groups, taps): conv1d is a correlation, hence the conjugate.
        filters = torch.fft.rfft(self.conv.weight.float(), n=length, dim=2).conj()
        by_group = spectrum.view(rows, -1, groups, width // groups).permute(1, 2, 0, 3)
        filters = filters.view(groups, width // groups, width // groups, -1).permute(3, 0, 2, 1)
        product = torch.matmul(by_group, filters).permute(2, 0, 1, 3).reshape(rows, -1, width)
        correlated = torch.fft.irfft(product, n=length, dim=1)
        # Frame t begins `before` frames earlier; negative indices wrap around.
        return correlated.roll(before, dims=1)[:, :frames]
