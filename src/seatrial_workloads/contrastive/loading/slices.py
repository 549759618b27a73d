"""Which piece of an utterance is fed. In: epoch, indices and lengths of utterances. Out: where each slice starts and how long it is.

An utterance at least as long as the longest slice gives a slice of random length from a random place; a shorter one is fed whole. The
transcript is cut by the same ratio. Nothing is remembered: the order of an epoch asks for all utterances at once (it puts slices of like
length together), a worker asks for those of its batch, and both get the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial_workloads.contrastive.loading.draws import Stream, uniforms
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE

# What wav2vec2's front end needs for one frame: 25 ms.
FEWEST_SAMPLES = 400


class Slices(NamedTuple):
    """One slice for each utterance asked about, in samples."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SliceRule:
    """How slices are cut in one training."""

    seed: int
    shortest_samples: int
    longest_samples: int

    @classmethod
    def of(cls, settings: Settings) -> SliceRule:
        shortest, longest = (round(seconds * SAMPLE_RATE) for seconds in settings.slice_range_s)
        return cls(seed=settings.seed, shortest_samples=shortest, longest_samples=longest)

    def cut(self, epoch: int, indices: NDArray[np.integer], num_samples: NDArray[np.int64]) -> Slices:
        """The slices of these utterances, `num_samples` long each, in this epoch."""
        lengths_drawn = uniforms(Stream.SLICE_LENGTH, self.seed, epoch, indices)
        starts_drawn = uniforms(Stream.SLICE_START, self.seed, epoch, indices)
        choices = self.longest_samples - self.shortest_samples + 1
        lengths = self.shortest_samples + (lengths_drawn * choices).astype(np.int64)
        is_whole = num_samples < self.longest_samples
        lengths = np.where(is_whole, num_samples, lengths)
        # A whole one has a single place to start from, and the draw of it is 0.
        starts = (starts_drawn * (num_samples - lengths + 1)).astype(np.int64)
        return Slices(starts, lengths)


def cut_text(text: str, start: int, length: int, num_samples: int) -> str:
    """The characters that take the same share of `text` as the slice takes of `num_samples` samples.

    Both ends are rounded down, so slices that touch share no character and leave none out. At least one character, where there is one.
    """
    first = start * len(text) // num_samples
    behind = (start + length) * len(text) // num_samples
    return text[first : max(behind, first + 1)]
