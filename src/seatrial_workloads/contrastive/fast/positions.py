"""wav2vec2's positional convolution by Fourier transform. In: hidden states (rows, frames, width). Out: what the module itself gives.

The kernel is 128 frames wide, longer than most slices: as a product of spectra it costs a small part of the direct convolution, forward
and backward. It takes the place of `encoder.pos_conv_embed` and keeps the names of its parameters, so that checkpoints fit either way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FourierPositions(nn.Module):
    """Same parameters, same result, other arithmetic."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.conv = plain.conv
        self.activation = plain.activation

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            positions = self._convolved(hidden.float()) + self.conv.bias.float()
        return self.activation(positions.to(hidden.dtype))

    def _convolved(self, hidden: Tensor) -> Tensor:
        rows, frames, width = hidden.shape
        groups, kernel = self.conv.groups, self.conv.kernel_size[0]
        before = self.conv.padding[0]
        length = smooth_length(frames + kernel - 1)
        spectrum = torch.fft.rfft(hidden, n=length, dim=1)
        # (out, in / groups, taps): a convolution of neural networks is a correlation, hence the conjugate.
        filters = torch.fft.rfft(self.conv.weight.float(), n=length, dim=2).conj()
        by_group = spectrum.view(rows, -1, groups, width // groups).permute(1, 2, 0, 3)
        filters = filters.view(groups, width // groups, width // groups, -1).permute(3, 0, 2, 1)
        product = torch.matmul(by_group, filters).permute(2, 0, 1, 3).reshape(rows, -1, width)
        correlated = torch.fft.irfft(product, n=length, dim=1)
        # Frame t begins `before` frames earlier; what is below zero stands at the end of the circle.
        return correlated.roll(before, dims=1)[:, :frames]


def smooth_length(least: int) -> int:
    """The next length that splits into twos, threes and fives: transforms of such lengths are the fast ones."""
    length = least
    while not _is_smooth(length):
        length += 1
    return length


def _is_smooth(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1
